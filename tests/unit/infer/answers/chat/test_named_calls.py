"""Calls as a name and JSON. `read` cuts every answer at every place."""

import pytest
from answer_reading import FUNCTIONARY, KIMI, Read, read, tool

from hybrid.infer.answers.chat.format import CallFormat, NamedCall

TOOLS = [tool("f"), tool("g")]
F, G = ("f", '{"a": 1}'), ("g", "{}")
ARGS = CallFormat("[TOOL_CALLS]", "", "", NamedCall("[TOOL_CALLS]", "[ARGS]", ""))


@pytest.mark.parametrize(
    ("format", "answer", "expected"),
    [
        (FUNCTIONARY, '<function=f>{"a": 1}</function>', Read("", "", [F])),
        (FUNCTIONARY, 'x\n<function=f> {"a": 1} </function>\n<function=g>{}</function> y', Read("", "x\ny", [F, G])),
        (FUNCTIONARY, '<function=f>"{\\"a\\": 1}"</function>', Read("", "", [F])),
        (FUNCTIONARY, "<function=g></function><function=g>null</function>", Read("", "", [G] * 2)),
        (FUNCTIONARY, "<function=g>text", Read("", "text", [G])),
        (FUNCTIONARY, '<function=f>{"a": "</function>"}</function>', Read("", "", [("f", '{"a": "</function>"}')])),
        (FUNCTIONARY, '<function=f>{"a": {"b": 1}</function>x', Read("", "x", [("f", '{"a": {"b": 1}')])),
        (FUNCTIONARY, '<function=f>{"a": "b', Read("", "", [("f", '{"a": "b')])),
        (FUNCTIONARY, "<function=h>{}</function>", Read("", "<function=h>{}</function>")),
        (FUNCTIONARY, "<function=f", Read("", "<function=f")),
        (FUNCTIONARY, "<function=f>", Read("", "", [("f", "")])),
        (
            KIMI,
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
            '{"a": 1}<|tool_call_end|>'
            "<|tool_call_begin|>functions.g:17<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>x",
            Read("", "x", [F, G]),
        ),
        (
            KIMI,
            "<|tool_calls_section_begin|> <|tool_call_begin|> functions.f:call_a1 <|tool_call_argument_begin|> "
            '{"a": 1}',
            Read("", "", [F]),
        ),
        (ARGS, '[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{}', Read("", "", [F, G])),
        (ARGS, "[TOOL_CALLS]f{}", Read("", "[TOOL_CALLS]f{}")),
    ],
)  # fmt: skip
def test_sections(format: CallFormat, answer: str, expected: Read) -> None:
    assert read(answer, format, TOOLS) == expected
