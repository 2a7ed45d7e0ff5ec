"""Calls that we write equal the calls that the template writes."""

import json
from typing import Any

import pytest
from chat_templates import TEMPLATES, form, template

from hybrid.infer.answers.chat.call_text import written_calls
from hybrid.infer.answers.chat.format import CallFormat, JsonCall, NamedCall, PythonCall, XmlCall
from hybrid.infer.answers.chat.messages import for_template
from hybrid.infer.answers.chat.reader import AnswerReader
from hybrid.infer.answers.chat.tools import tools_of

ARGUMENTS: list[dict[str, Any]] = [{"city": 'Oslo "N"\nor\\near <b>', "days": 7}, {"where": "[x](y)", "list": [1, "a"]}]
IDS = ["call00001", "call00002"]
NAMES = ["weather_of", "maps.find-it"]
REST = {"description": "", "parameters": {"type": "object", "properties": {}}}
CALLS = list(zip(IDS, NAMES, ARGUMENTS, strict=True))


def rendered(name: str, count: int) -> str:
    """What the template writes for these calls."""
    calls = [
        {"id": i, "type": "function", "function": {"name": n, "arguments": json.dumps(a)}} for i, n, a in CALLS[:count]
    ]
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": None, "tool_calls": calls}]
    results = [{"role": "tool", "content": "r", "tool_call_id": i} for i in IDS[:count]]
    more = {form(name).tools_variable: [{"type": "function", "function": {"name": n, **REST}} for n in NAMES]}
    return template(name).render(for_template([*messages, *results], form(name)), add_generation_prompt=False, **more)


def squeezed(text: str) -> str:
    return "".join(text.split())


# text beside the tags is the template's own: ids, numbers of calls, other spellings of non-strings
OWN = (
    "Mistral-Small-3.2-24B-Instruct-2506",
    "moonshotai-Kimi-K2",
    "deepseek-ai-DeepSeek-V3.2",
    "deepseek-ai-DeepSeek-V4",
    "deepseek-ai-DeepSeek-V4-Flash-0731",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
    "ByteDance-Seed-OSS",
    "unsloth-Apriel-1.5",
)
NAMES_OF_TEMPLATES = sorted(path.stem for path in TEMPLATES.glob("*.jinja"))


@pytest.mark.parametrize("name", NAMES_OF_TEMPLATES)
def test_as_templates_write_them(name: str) -> None:
    if not form(name).takes_calls or name in OWN:
        return
    calls = form(name).calls
    assert squeezed(written_calls(calls, CALLS[:1])) in squeezed(rendered(name, 1))
    if calls.between is not None or calls.again:
        assert squeezed(written_calls(calls, CALLS)) in squeezed(rendered(name, 2))


# a brace after the arguments closes an enclosing JSON object: AnswerReader reads it for JsonCall only
@pytest.mark.parametrize("name", sorted({*NAMES_OF_TEMPLATES} - {"Apertus-8B-Instruct"}))
def test_they_are_read_as_they_were(name: str) -> None:
    properties = {"days": {"type": "integer"}, "list": {"type": "array"}}
    parameters = {"type": "object", "properties": properties}
    tools = tools_of([{"type": "function", "function": {"name": n, "parameters": parameters}} for n in NAMES])
    reader = AnswerReader(form(name), tools)
    reader.push(written_calls(form(name).calls, CALLS))
    reader.finish()
    assert [(call.name, json.loads(call.arguments)) for call in reader.calls] == [(n, a) for _, n, a in CALLS]
    assert (reader.text, reader.thoughts) == ("", "")


def test_with_all_white_space() -> None:
    assert written_calls(form("ibm-granite-granite-4.0").calls, CALLS) in rendered("ibm-granite-granite-4.0", 2)
    assert written_calls(form("Qwen3-Coder").calls, CALLS[:1]) in rendered("Qwen3-Coder", 1)
    jamba = "ai21labs-Jamba-Mini-1.7"
    assert written_calls(form(jamba).calls, CALLS) in rendered(jamba, 2)


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        (
            CallFormat("<c>", "<c>[", "]</c>", PythonCall(), ", "),
            '<c>[f(a="it\'s \\"x\\"\\n", b=None, c=[True, {"d": 1.5}]), g()]</c>',
        ),
        (
            CallFormat("<c>", "", "", NamedCall("<c>", "=", "</c>"), again="\n"),
            '<c>f={"a": "it\'s \\"x\\"\\n", "b": null, "c": [true, {"d": 1.5}]}</c>\n<c>g={}</c>',
        ),
        (
            CallFormat("<c>", "", "", XmlCall("<c ", ">", "<p ", ">", "</p>", "</c>")),
            '<c f><p a>it\'s "x"\n</p><p b>null</p><p c>[true, {"d": 1.5}]</p></c><c g></c>',
        ),
        (
            CallFormat("", "", "", JsonCall(arguments_key="in", id_key="no"), between="; "),
            '{"name": "f", "in": {"a": "it\'s \\"x\\"\\n", "b": null, "c": [true, {"d": 1.5}]}, "no": "1"}; '
            '{"name": "g", "in": {}, "no": "2"}',
        ),
    ],
)
def test_values_of_all_kinds(calls: CallFormat, expected: str) -> None:
    arguments = {"a": 'it\'s "x"\n', "b": None, "c": [True, {"d": 1.5}]}
    assert written_calls(calls, [("1", "f", arguments), ("2", "g", {})]) == expected
