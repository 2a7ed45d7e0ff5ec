"""Call formats that templates describe to the model but never write: recognized by their description of the tools."""

from .format import FALLBACK, CallFormat, JsonCall, PythonCall

PYTHON_LIST = CallFormat("<|tool_call_start|>", "<|tool_call_start|>[", "]<|tool_call_end|>", PythonCall(), ", ")

# part of the template's description of tools -> the format that its model was taught
_TOLD = (
    ("<|tool_list_start|>[", PYTHON_LIST),
    ("system\nList of tools: [", PYTHON_LIST),
    ("<|tool_call|> followed by a JSON list", CallFormat("<|tool_call|>", "<|tool_call|>[", "]", JsonCall(), ", ")),
    ("<tool_call>\n[", CallFormat("<tool_call>", "<tool_call>\n[", "]\n</tool_call>", JsonCall(), ", ")),
    ('<tool_call>\n{"name":', FALLBACK),
    ("<tool_call>\n{'arguments':", FALLBACK),
)


def told_format(told: str) -> CallFormat | None:
    """The format that `told`, the template's description of tools, asks for; None if it is unknown."""
    return next((form for words, form in _TOLD if words in told), None)
