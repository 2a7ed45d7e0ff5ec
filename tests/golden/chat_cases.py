"""The cases of tests/data/chat: answers with thoughts and tool calls, from other programs' tests."""

import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hybrid.infer.answers.chat.format import ChatFormat
from hybrid.infer.answers.chat.probing import probed
from hybrid.infer.answers.chat.prompting import ChatPrompt, chat_prompt
from hybrid.infer.answers.chat.tools import Tool, tools_of
from hybrid.infer.text.chat_template import ChatTemplate

DATA = Path(__file__).resolve().parent.parent / "data" / "chat"
FILES = {"llama.cpp": "llama_cpp_cases.json", "ollama": "ollama_cases.json", "vllm": "vllm_cases.json"}
Json = dict[str, Any]

# Other families; all their cases are read as llama.cpp reads them.
MORE = ("ByteDance-Seed-OSS", "GLM-4.6", "GigaChat3.1-10B-A1.8B", "MiniMax-M2", "Spark2.5", "StepFun3.5-Flash")


@dataclass(frozen=True, eq=False)
class Case:
    """One answer and its expected parts.

    name      the program, and LINE TEMPLATE of test-chat.cpp or the test's name
    wanted    "thoughts", "text", "calls" (name and arguments) and "ids" of calls, if the case has them
    asked     the end of llama.cpp's prompt: its template's text before an answer, and the answer's given beginning
    unparsed  thoughts stay in the text: llama.cpp's reasoning_format none
    schema    the schema that the text has to fit
    """

    name: str
    template: str
    input: str
    wanted: Json
    messages: list[Json]
    tools: list[Json]
    think: bool | None
    asked: str
    unparsed: bool
    continues: bool
    reconstructs: bool
    is_partial: bool
    choice: str
    parallel: bool
    schema: Json | None


def cases(whose: str) -> Iterator[Case]:
    """The cases of our families, and of the other families in MORE."""
    data = json.loads((DATA / FILES[whose]).read_text(encoding="utf-8"))
    for given in data["cases"]:
        if whose == "llama.cpp" and not (data["families"][given["template"]]["ours"] or given["template"] in MORE):
            continue
        named = given.get("name") or f"{given['line']} {given['template']}"
        tools = [data["tools"][tool] if isinstance(tool, str) else tool for tool in given.get("tools", ())]
        messages = given.get("messages", [{"role": "user", "content": "Hey there!"}])
        yield Case(
            f"{whose}: {named}",
            given["template"],
            given["input"],
            as_message(given["expect"]),
            [as_openai(message) for message in messages],
            [{"type": "function", "function": tool} for tool in tools],
            given.get("enable_thinking", True if whose == "llama.cpp" else None),
            given.get("prompt_ends", ""),
            "thoughts" not in given,
            "continues" in given,
            given.get("reconstructs", False),
            given.get("is_partial", False),
            given.get("tool_choice", "auto"),
            given.get("parallel_tool_calls", whose != "llama.cpp"),
            given.get("json_schema"),
        )


def as_openai(message: Json) -> Json:
    made = {"role": message["role"], "content": message.get("content", "")}
    if "reasoning" in message:
        made["reasoning_content"] = message["reasoning"]
    if "tool_call_id" in message:
        made["tool_call_id"] = message["tool_call_id"]
    if "calls" in message:
        made["tool_calls"] = [
            {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}
            for name, arguments, identity in message["calls"]
        ]
    return made


def as_message(expected: Json) -> Json:
    calls = expected.get("calls", [])
    return {
        "thoughts": expected.get("reasoning", "").strip(),
        "text": expected.get("content", "").strip(),
        "calls": [(call[0], value_of(call[1])) for call in calls],
        "ids": [call[2] if len(call) == 3 else None for call in calls],
    }


def value_of(arguments: str) -> Any:
    """Arguments as llama.cpp's tests compare them: None if incomplete or empty."""
    try:
        return json.loads(arguments)
    except ValueError:
        return None


@functools.cache
def template_of(name: str) -> tuple[ChatTemplate, ChatFormat]:
    source = (DATA / "templates" / f"{name}.jinja").read_text(encoding="utf-8")
    template = ChatTemplate(source, name=name, tokens={"bos_token": "", "eos_token": ""})
    return template, probed(template)


def prompt_of(case: Case, more: Sequence[Json] = ()) -> ChatPrompt:
    """The prompt for the answer; with `more` messages, of the whole conversation."""
    template, form = template_of(case.template)
    messages = [*case.messages, *more]
    think = None if form.thoughts is None else case.think
    continues = case.continues and not more
    return chat_prompt(template, form, messages, tools=offered(case), think=think, continues=continues)


@functools.cache
def offered(case: Case) -> list[Tool]:
    return tools_of(case.tools)


@functools.cache
def thinks(case: Case) -> bool:
    """Whether the answer begins inside thoughts."""
    return prompt_of(case).thinks


CASES = [case for whose in FILES for case in cases(whose)]
