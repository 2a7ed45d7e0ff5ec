"""Calls that templates tell the model to write and do not write themselves: known by what they say of tools."""

from .format import FALLBACK, CallFormat, JsonCall, PythonCall

PYTHON_LIST = CallFormat("<|tool_call_start|>", "<|tool_call_start|>[", "]<|tool_call_end|>", PythonCall(), ", ")

# what the template writes for tools -> what its model was taught to answer
_TOLD = (
    ("<|tool_list_start|>[", PYTHON_LIST),
    ("system\nList of tools: [", PYTHON_LIST),
    ("<|tool_call|> followed by a JSON list", CallFormat("<|tool_call|>", "<|tool_call|>[", "]", JsonCall(), ", ")),
    ("<tool_call>\n[", CallFormat("<tool_call>", "<tool_call>\n[", "]\n</tool_call>", JsonCall(), ", ")),
    ('<tool_call>\n{"name":', FALLBACK),
    ("<tool_call>\n{'arguments':", FALLBACK),
)


def told_format(told: str) -> CallFormat | None:
    """The format that `told`, what the template writes for tools, asks for; None: it says nothing that we know."""
    return next((form for words, form in _TOLD if words in told), None)
