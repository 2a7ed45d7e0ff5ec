"""Reads an answer whole and in pieces, and checks that both readings agree."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hybrid.infer.answers.chat.format import (
    FALLBACK,
    CallFormat,
    ChatFormat,
    JsonCall,
    NamedCall,
    PythonCall,
    ThoughtFormat,
    XmlCall,
)
from hybrid.infer.answers.chat.reader import AnswerPart, AnswerReader
from hybrid.infer.answers.chat.tools import Tool, tools_of

THINK = ThoughtFormat("<think>", "</think>")

# Formats of these models' templates, named by the look of their calls.
JAMBA = CallFormat("<tool_calls>", "<tool_calls>[\n    ", "\n]</tool_calls>", JsonCall(), between=",\n    ")
GRANITE = CallFormat("<tool_call>", "", "", JsonCall("<tool_call>\n", "\n</tool_call>"), again="\n")
FALCON = CallFormat("<tool_call>", "<tool_call>\n[\n", "\n]\n</tool_call>", JsonCall(), between=",\n")
NEMOTRON2 = CallFormat("<TOOLCALL>", "<TOOLCALL>[", "]</TOOLCALL>", JsonCall(), between=", ")
MISTRAL = CallFormat("[TOOL_CALLS]", "[TOOL_CALLS][", "]", JsonCall(id_key="id"), between=", ")
LLAMA = CallFormat("", "", "", JsonCall(arguments_key="parameters"))
FUNCTIONARY = CallFormat("<function=", "", "", NamedCall("<function=", ">", "</function>"))
KIMI = CallFormat(
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    NamedCall("<|tool_call_begin|>functions.", ":0<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    between="",
)
QWEN = CallFormat(
    "<tool_call>",
    "",
    "",
    XmlCall(
        "<tool_call>\n<function=",
        ">\n",
        "<parameter=",
        ">\n",
        "\n</parameter>\n",
        "</function>\n</tool_call>",
    ),
    again="\n",
)
LFM = CallFormat("<|tool_call_start|>", "<|tool_call_start|>[", "]<|tool_call_end|>", PythonCall(), between=", ")


def tool(name: str, properties: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    parameters = {} if properties is None else {"parameters": {"type": "object", "properties": properties, **more}}
    return {"type": "function", "function": {"name": name, **parameters}}


@dataclass
class Read:
    """What was read; calls are (name, arguments)."""

    thoughts: str = ""
    text: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)


def read_in(
    pieces: Iterable[str], format: ChatFormat, tools: Sequence[Tool], *, thinks: bool = False, continues: bool = False
) -> tuple[Read, list[AnswerPart]]:
    """The final reading and its parts; checks that the parts add up to the reading."""
    ids = (f"id{i}" for i in itertools.count())
    reader = AnswerReader(format, tools, thinks=thinks, continues=continues, new_id=lambda: next(ids))
    parts = [part for piece in pieces for part in reader.push(piece)] + reader.finish()
    assert reader.finish() == []
    calls: list[tuple[str, list[str]]] = []
    for part in parts:
        if part.kind == "call":
            calls.append((part.text, [part.id]))
        elif part.kind == "arguments":
            calls[-1][1].append(part.text)
        assert part.text
        assert part.index == (len(calls) - 1 if part.kind in ("call", "arguments") else 0)
    assert [(call.name, [call.id, call.arguments]) for call in reader.calls] == [
        (name, [id, "".join(pieces)]) for name, (id, *pieces) in calls
    ]
    assert reader.thoughts == "".join(part.text for part in parts if part.kind == "thought")
    assert reader.text == "".join(part.text for part in parts if part.kind == "text")
    return Read(reader.thoughts, reader.text, [(call.name, call.arguments) for call in reader.calls]), parts


def read(
    answer: str,
    calls: CallFormat = FALLBACK,
    tools: Sequence[dict[str, Any]] = (),
    *,
    thoughts: ThoughtFormat | None = THINK,
    thinks: bool = False,
    continues: bool = False,
) -> Read:
    """Read the answer; checks that every cut in two, and a cut into characters, reads the same."""
    format, known = ChatFormat(thoughts, calls), tools_of(list(tools))
    whole, _ = read_in([answer], format, known, thinks=thinks, continues=continues)
    cuts = [[answer[:i], answer[i:]] for i in range(1, len(answer))] if len(answer) < 1000 else []
    for pieces in (list(answer), *cuts):
        assert read_in(pieces, format, known, thinks=thinks, continues=continues)[0] == whole, pieces
    return whole
