"""Random answers in all formats are read back, and read the same in any pieces, also when damaged."""

import ast
import json
import random
import re
from collections.abc import Sequence
from typing import Any

import pytest
from answer_reading import (
    FALCON,
    FUNCTIONARY,
    GRANITE,
    JAMBA,
    KIMI,
    LFM,
    LLAMA,
    MISTRAL,
    NEMOTRON2,
    QWEN,
    THINK,
    Read,
    read_in,
    tool,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from hybrid.infer.answers.chat.cursor import WHITE
from hybrid.infer.answers.chat.format import CallFormat, ChatFormat, JsonCall, NamedCall, PythonCall, XmlCall
from hybrid.infer.answers.chat.tools import tools_of

pytestmark = pytest.mark.exhaustive

FORMATS = {
    "Jamba": JAMBA, "Granite": GRANITE, "Falcon": FALCON, "Nemotron 2": NEMOTRON2, "Mistral": MISTRAL, "Llama": LLAMA,
    "Functionary": FUNCTIONARY, "Kimi": KIMI, "Qwen": QWEN, "LFM": LFM,
}  # fmt: skip
SCHEMAS = {
    "s": {"type": "string"},
    "n": {"type": ["string", "null"]},
    "i": {"type": "integer"},
    "x": {"type": "number"},
    "b": {"type": "boolean"},
    "l": {"type": "array"},
    "o": {"type": "object"},
}
TOOLS = tools_of([tool("f", SCHEMAS), tool("Calendar.add-1", SCHEMAS), tool("g", SCHEMAS)])

TEXT = st.text("ab <>[]{}\"'\\\n,:=é😀/", max_size=10)
INNER = st.none() | st.booleans() | st.integers(-999, 999) | TEXT
VALUES = {
    "s": TEXT,
    "n": st.none() | TEXT.filter(lambda text: text.strip(WHITE).lower() not in ("null", "none")),
    "i": st.integers(-(10**6), 10**6),
    "x": st.floats(-1e6, 1e6),
    "b": st.booleans(),
    "l": st.lists(INNER, max_size=3),
    "o": st.dictionaries(TEXT, INNER, max_size=2),
}
CALLS = st.lists(
    st.tuples(
        st.sampled_from([tool.name for tool in TOOLS]),
        st.dictionaries(st.sampled_from(list(VALUES)), st.none(), max_size=3).flatmap(
            lambda keys: st.fixed_dictionaries({key: VALUES[key] for key in keys})
        ),
    ),
    max_size=3,
)
PROSE = st.lists(st.sampled_from(["Hi", "a < b", "é", "\n", " ", "{x}", "`", "]", "</", "😀."]), max_size=4).map(
    "".join
)

Call = tuple[str, dict[str, Any]]


def written(format: CallFormat, calls: Sequence[Call]) -> str:
    """The calls in the given format; numbers in tags count up."""
    texts = [one(format, name, arguments, i) for i, (name, arguments) in enumerate(calls)]
    if format.between is None:
        return format.again.join(format.begin + text + format.end for text in texts)
    return format.begin + format.between.join(texts) + format.end if texts else ""


def one(format: CallFormat, name: str, arguments: dict[str, Any], number: int) -> str:
    call = format.call
    match call:
        case JsonCall():
            written = {call.name_key: name, call.arguments_key: json.dumps(arguments) if number % 3 == 2 else arguments}
            if number % 2:  # other keys, another order
                written = {"id": "a}", **dict(reversed(written.items())), "more": [{"name": "h"}, 1]}
            return call.opening + json.dumps(written, ensure_ascii=number % 2 == 0) + call.closing
        case NamedCall():
            before = call.before_arguments.replace("0", str(number))
            return call.opening + name + before + json.dumps(arguments) + call.closing
        case XmlCall():
            parameters = [
                call.before_key + key + call.after_key + (value if isinstance(value, str) else json.dumps(value))
                for key, value in arguments.items()
            ]
            inside = "".join(parameter + call.after_value for parameter in parameters)
            return call.opening + name + call.after_name + inside + call.closing
        case PythonCall():
            return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def pieces_of(answer: str, seed: int) -> list[str]:
    """The answer in pieces of a few characters, or in two or three large ones."""
    numbers = random.Random(seed)
    count = numbers.choice([1, 2, len(answer) // 3])
    cuts = sorted(numbers.choices(range(len(answer) + 1), k=count)) if answer else []
    return [answer[i:j] for i, j in zip([0, *cuts], [*cuts, len(answer)], strict=True)]


def look(answer: str, format: CallFormat, thinks: bool, seed: int) -> Read:
    """Read the answer; checks that random pieces read the same."""
    chat = ChatFormat(THINK, format)
    whole, _ = read_in([answer], chat, TOOLS, thinks=thinks)
    assert read_in(list(answer), chat, TOOLS, thinks=thinks)[0] == whole
    for i in range(3):
        pieces = pieces_of(answer, seed + i)
        assert read_in(pieces, chat, TOOLS, thinks=thinks)[0] == whole, pieces
    return whole


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=25)
@given(
    thoughts=st.none() | PROSE, thinks=st.booleans(), text=PROSE, calls=CALLS, behind=PROSE, seed=st.integers(0, 10**6)
)
def test_what_is_written_is_read(
    name: str, thoughts: str | None, thinks: bool, text: str, calls: list[Call], behind: str, seed: int
) -> None:
    format = FORMATS[name]
    if format is LLAMA:
        text = ""
    if thinks and thoughts is None:
        thoughts = ""
    section = written(format, calls)
    if format is MISTRAL and behind.startswith("]"):
        behind = ""  # its list ends so
    answer = (
        ("" if thoughts is None else f"{'' if thinks else '<think>'}{thoughts}</think>\n") + text + section + behind
    )
    found = look(answer, format, thinks, seed)
    assert [(name, json.loads(text)) for name, text in found.calls] == calls
    assert found.thoughts == (thoughts or "").strip(WHITE)
    if calls:
        before = text.rstrip(WHITE) if thoughts is None else text.strip(WHITE)
        after = behind.lstrip(WHITE)
        assert found.text == before + ("\n" if before.strip(WHITE) and after else "") * bool(after) + after
    else:
        assert found.text == (text + behind if thoughts is None else (text + behind).lstrip(WHITE))
    assert [(name, json.loads(text)) for name, text in found.calls] == twin(answer, format)


def twin(answer: str, format: CallFormat) -> list[Call]:
    """The calls of a well-formed answer, read slowly and plainly: regular expressions, then json and ast."""
    answer = answer.split("</think>")[-1]
    found: list[Call] = []
    match format.call:
        case JsonCall():
            place = answer.find(format.mark) if format.mark else 0
            while 0 <= place < len(answer):
                start = re.compile(r"\{(?=\s*\"(id|name|arguments|parameters)\")").search(answer, place)
                if start is None:
                    break
                value, place = json.JSONDecoder().raw_decode(answer, start.start())
                arguments = value[format.call.arguments_key]
                found.append((value["name"], json.loads(arguments) if isinstance(arguments, str) else arguments))
        case NamedCall():
            head = re.escape(format.call.opening) + r"([\w.-]+?)"
            head += re.sub(r"\d+", r"\\d+", re.escape(format.call.before_arguments))
            for match in re.finditer(head, answer):
                found.append((match[1], json.JSONDecoder().raw_decode(answer, match.end())[0]))
        case XmlCall():
            for match in re.finditer(r"<function=(.*?)>\n(.*?)</function>\n</tool_call>", answer, re.DOTALL):
                inner = re.findall(r"<parameter=(.*?)>\n(.*?)\n</parameter>\n", match[2], re.DOTALL)
                found.append((match[1], {key: plain(key, value) for key, value in inner}))
        case PythonCall():
            for match in re.finditer(r"<\|tool_call_start\|>(.*)<\|tool_call_end\|>", answer, re.DOTALL):
                calls = ast.parse(match[1].replace("Calendar.add-1", "dotted"), mode="eval").body
                assert isinstance(calls, ast.List)
                for call in calls.elts:
                    assert isinstance(call, ast.Call)
                    name = ast.unparse(call.func).replace("dotted", "Calendar.add-1")
                    found.append((name, {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}))
    return found


def plain(key: str, value: str) -> Any:
    if key == "s" or (key == "n" and value != "null"):
        return value
    return json.loads(value)


FRAGMENTS = [
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<function=", "<function=f>", "</function>", "</parameter>",
    "<parameter=s>", "<TOOLCALL>[", "]</TOOLCALL>", "<|tool_call_start|>[f(", "<|tool_call_end|>", "[TOOL_CALLS]",
    "f", "g(", '{"name": "f"', '"arguments": ', '"{\\"a\\": \\"', '{"', '"', "'", "\\", "\\u", "\\ud83d", "\\x4",
    "{", "}", "[", "]", "(", ")", ",", ":", "=", "\n", " ", "null", "-1", "007", "<", "</", "<tool", "\x00", "é", "😀",
    "'''", '""',
]  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=30)
@given(
    calls=CALLS,
    thinks=st.booleans(),
    changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 12), st.sampled_from(FRAGMENTS)), max_size=6),
    end=st.floats(0, 1.5),
    seed=st.integers(0, 10**6),
)
def test_damaged_answers_are_read_the_same_in_any_pieces(
    name: str, calls: list[Call], thinks: bool, changes: list[tuple[float, int, str]], end: float, seed: int
) -> None:
    format = FORMATS[name]
    answer = f"<think>a</think> b {written(format, calls)} c"
    for place, cut, fragment in changes:
        at = int(place * len(answer))
        answer = answer[:at] + fragment + answer[at + cut :]
    answer = answer[: int(end * len(answer))] if end < 1 else answer
    found = look(answer, format, thinks, seed)
    if not thinks and "<" not in answer and "[" not in answer and format is not LLAMA:
        assert found == Read("", answer)


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=30)
@given(fragments=st.lists(st.sampled_from(FRAGMENTS), max_size=14), thinks=st.booleans(), seed=st.integers(0, 10**6))
def test_marks_in_any_order_are_read_the_same_in_any_pieces(
    name: str, fragments: list[str], thinks: bool, seed: int
) -> None:
    look(FORMATS[name].mark + "".join(fragments), FORMATS[name], thinks, seed)
