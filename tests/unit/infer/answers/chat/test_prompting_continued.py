"""Continued messages as the templates of real models write them."""

from typing import Any

import pytest
from chat_templates import form, template

from hybrid.infer.answers.chat.prompting import ChatPrompt, chat_prompt

ASKED = {"role": "user", "content": "Hey there!"}


def continued(name: str, content: str, **fields: Any) -> ChatPrompt:
    messages = [ASKED, {"role": "assistant", "content": content, **fields}]
    return chat_prompt(template(name), form(name), messages, continues=True)


@pytest.mark.parametrize(
    ("name", "thoughts", "wanted"),
    [
        ("LFM2.5-8B-A1B", "Hm.", "<think>Hm.</think>Hello, "),
        ("Qwen3.5-4B", "Hm.", "Hm.\n</think>\n\nHello, "),
        ("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "Hm.", "Hm.\n</think>\nHello, "),
    ],
)
def test_thoughts_are_written_as_the_template_writes_them(name: str, thoughts: str, wanted: str) -> None:
    prompt = continued(name, "Hello, ", reasoning_content=thoughts)
    assert prompt.text.endswith(wanted) and prompt.written == wanted and not prompt.thinks
    prompt = continued(name, "", reasoning_content=thoughts)
    assert prompt.text.endswith(prompt.written) and prompt.written == wanted.partition(".")[0] + "." and prompt.thinks


@pytest.mark.parametrize("name", ["google-gemma-2-2b-it", "meta-llama-Llama-3.2-3B-Instruct"])
def test_white_space_before_the_rest_stays_where_the_template_strips_it(name: str) -> None:
    prompt = continued(name, "Hello, ")
    assert prompt.text.endswith("\nHello, ") and prompt.written == "Hello, "


def test_a_template_that_must_have_tools_gets_none() -> None:
    """The template iterates over `tools` without asking whether there are any."""
    name = "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use"
    prompt = chat_prompt(template(name), form(name), [ASKED])
    assert prompt.text.endswith("Hey there!<|im_end|>\n<|im_start|>assistant\n") and prompt.variables["tools"] == []
    assert continued(name, "Hello, ").text.endswith("<|im_start|>assistant\nHello, ")
