"""Conversations of OpenAI's, with tools and thoughts, in the templates of real models."""

from types import SimpleNamespace
from typing import Any

import pytest
from chat_templates import call, form, template

from hybrid.infer.answers.chat.prompting import ChatPrompt, chat_prompt, message_of

WEATHER = SimpleNamespace(
    as_given={
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Of a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
)
ASKED = [{"role": "user", "content": "Rome and Oslo?"}]
CALLED = [
    *ASKED,
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": "Both.",
        "tool_calls": [
            call("weather", {"city": "Rome", "days": 2}, "call_abcdefghijk"),
            call("weather", {"city": 'Oslo "N"'}, "call_2"),
        ],
    },
    {"role": "tool", "tool_call_id": "call_abcdefghijk", "content": '{"t": 30}'},
    {"role": "tool", "tool_call_id": "call_2", "content": "cold"},
]


def prompt(name: str, messages: list[dict[str, Any]], **more: Any) -> ChatPrompt:
    return chat_prompt(template(name), form(name), messages, **more)


def answer(name: str, messages: list[dict[str, Any]], **more: Any) -> str:
    """What stands behind the user's first message."""
    return prompt(name, messages, **more).text.partition("Rome and Oslo?")[2]


HERMES = """<tool_call>
{"name": "weather", "arguments": {"city": "Rome", "days": 2}}
</tool_call>
<tool_call>
{"name": "weather", "arguments": {"city": "Oslo \\"N\\""}}
</tool_call>"""
RESPONSES = '<tool_response>\n{"t": 30}\n</tool_response>\n<tool_response>\ncold\n</tool_response>'
QWEN_XML = """<tool_call>
<function=weather>
<parameter=city>
Rome
</parameter>
<parameter=days>
2
</parameter>
</function>
</tool_call>
<tool_call>
<function=weather>
<parameter=city>
Oslo "N"
</parameter>
</function>
</tool_call>"""

ROUNDS = {
    "ibm-granite-granite-4.0": "<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>" + HERMES
    + "<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>\n" + RESPONSES
    + "<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
    "Qwen3.5-4B": "<|im_end|>\n<|im_start|>assistant\n<think>\nBoth.\n</think>\n\n" + QWEN_XML
    + "<|im_end|>\n<|im_start|>user\n" + RESPONSES + "<|im_end|>\n<|im_start|>assistant\n<think>\n",
    "NVIDIA-Nemotron-Nano-v2": '\n<SPECIAL_11>Assistant\n<TOOLCALL>[{"name": "weather", "arguments": {"city": "Rome", '
    '"days": 2}}, {"name": "weather", "arguments": {"city": "Oslo \\"N\\""}}]</TOOLCALL>\n<SPECIAL_12>\n'
    '<SPECIAL_11>User\n<TOOL_RESPONSE>[{"t": 30}, cold]</TOOL_RESPONSE><SPECIAL_11>Assistant\n<think>\n',
    "LFM2.5-8B-A1B": "<|im_end|>\n<|im_start|>assistant\n<think>Both.</think>"
    '<|tool_call_start|>[weather(city="Rome", days=2), weather(city="Oslo \\"N\\"")]<|tool_call_end|><|im_end|>\n'
    '<|im_start|>tool\n{"t": 30}<|im_end|>\n<|im_start|>tool\ncold<|im_end|>\n<|im_start|>assistant\n',
    "ai21labs-Jamba-Mini-1.7": "<|eom|><|bom|><|assistant|> <tool_calls>[\n"
    '    {"name": "weather", "arguments": {"city": "Rome", "days": 2}},\n'
    '    {"name": "weather", "arguments": {"city": "Oslo \\"N\\""}}\n]</tool_calls><|eom|>'
    '<|bom|><|tool|> (weather){"t": 30}<|eom|><|bom|><|tool|> (weather)cold<|eom|><|bom|><|assistant|>',
    "mistralai-Mistral-Nemo-Instruct-2407": '[/INST][TOOL_CALLS][{"name": "weather", "arguments": {"city": "Rome", '
    '"days": 2}, "id": "098b9709a"}, {"name": "weather", "arguments": {"city": "Oslo \\"N\\""}, "id": "1b68f83fa"}]'
    '</s>[TOOL_RESULTS]{"content": {"t": 30}, "call_id": "098b9709a"}[/TOOL_RESULTS]'
    '[TOOL_RESULTS]{"content": cold, "call_id": "1b68f83fa"}[/TOOL_RESULTS]',
    "google-gemma-2-2b-it": "<end_of_turn>\n<start_of_turn>model\n" + HERMES
    + "<end_of_turn>\n<start_of_turn>user\n" + RESPONSES + "<end_of_turn>\n<start_of_turn>model\n",
    "microsoft-Phi-3.5-mini-instruct": "<|end|>\n<|assistant|>\n" + HERMES
    + "<|end|>\n<|user|>\n" + RESPONSES + "<|end|>\n<|assistant|>\n",
    "meta-llama-Llama-3.2-3B-Instruct": "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    '{"name": "weather", "parameters": {"city": "Rome", "days": 2}}<|eot_id|>'
    '<|start_header_id|>ipython<|end_header_id|>\n\n"{\\"t\\": 30}"<|eot_id|>'
    '<|start_header_id|>assistant<|end_header_id|>\n\n'
    '{"name": "weather", "parameters": {"city": "Oslo \\"N\\""}}<|eot_id|>'
    '<|start_header_id|>ipython<|end_header_id|>\n\n"cold"<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n',
}  # fmt: skip


@pytest.mark.parametrize("name", ROUNDS)
def test_two_calls_and_their_results(name: str) -> None:
    assert answer(name, CALLED, tools=[WEATHER]) == ROUNDS[name]
    assert "Of a city." in prompt(name, CALLED, tools=[WEATHER]).text


def test_an_answer_is_a_message_that_comes_back() -> None:
    told = SimpleNamespace(
        thoughts="Both.",
        text="",
        calls=[
            SimpleNamespace(id="call_abcdefghijk", name="weather", arguments='{"city": "Rome", "days": 2}'),
            SimpleNamespace(id="call_2", name="weather", arguments='{"city": "Oslo \\"N\\""}'),
        ],
    )
    assert message_of(told) == CALLED[1]
    plain = SimpleNamespace(thoughts="", text="", calls=[])
    assert message_of(plain) == {"role": "assistant", "content": ""}
