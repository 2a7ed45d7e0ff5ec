"""Calls as a name and JSON. `read` cuts every answer at every place."""

import pytest
from answer_reading import FUNCTIONARY, KIMI, Read, read, read_in, tool

from hybrid.infer.answers.chat.format import CallFormat, ChatFormat, NamedCall
from hybrid.infer.answers.chat.tools import tools_of

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
)
def test_sections(format: CallFormat, answer: str, expected: Read) -> None:
    assert read(answer, format, TOOLS) == expected


def test_an_id_beside_the_name_is_the_calls() -> None:
    """Mistral Small 3.2 writes an id where its template has one, once per answer."""
    form = CallFormat("[TOOL_CALLS]", "", "", NamedCall("[TOOL_CALLS]", "[CALL_ID]kq1Ab2Cd3[ARGS]", ""))
    written = ("123456789", "123456789", "", "a-b_c", "x" * 65, "x" * 64)
    answer = "".join(f"[TOOL_CALLS]f[CALL_ID]{id}[ARGS]{{}}" for id in written)
    for pieces in ([answer], list(answer)):
        _, parts = read_in(pieces, ChatFormat(None, form), tools_of(TOOLS))
        ids = [part.id for part in parts if part.kind == "call"]
        assert ids == ["123456789", "id0", "id1", "a-b_c", "id2", "x" * 64]


def test_a_number_beside_the_name_is_no_id() -> None:
    """Kimi K2 writes the number of the call."""
    answer = "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}"
    _, parts = read_in([answer], ChatFormat(None, KIMI), tools_of(TOOLS))
    assert parts[0].id == "id0"
