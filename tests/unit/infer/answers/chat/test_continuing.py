"""Where a begun answer, thoughts included, is continued."""

import pytest
from chat_templates import form, template

from hybrid.infer.answers.chat.continuing import END
from hybrid.infer.answers.chat.probing import probed
from hybrid.infer.answers.chat.prompting import ChatPrompt, chat_prompt
from hybrid.infer.answers.chat.tools import tools_of
from hybrid.infer.text.chat_template import ChatTemplate
from hybrid.quant.ggml.errors import TemplateError, UsageError

ASKED = [{"role": "user", "content": "what does <think> mean?"}]


def continued(name: str, content: str, thoughts: str = "", **more: bool) -> ChatPrompt:
    last = {"role": "assistant", "content": content, "reasoning": thoughts}
    return chat_prompt(template(name), form(name), [*ASKED, last], continues=True, **more)


def behind(prompt: ChatPrompt) -> tuple[str, bool, str]:
    return prompt.text.partition("mean?")[2], prompt.thinks, prompt.written


# by the message's content: text; thoughts; both; raw text with unfinished thoughts
CASES = {
    "ibm-granite-granite-4.0": (
        "<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
        ("So en", False, "So en"),
        ("", False, ""),
        ("So en", False, "So en"),
        ("<think>\nHm", False, "<think>\nHm"),
    ),
    "Qwen3.5-4B": (
        "<|im_end|>\n<|im_start|>assistant\n<think>\n",
        ("\n</think>\n\nSo en", False, "\n</think>\n\nSo en"),
        ("Hm", True, "Hm"),
        ("Hm\n</think>\n\nSo en", False, "Hm\n</think>\n\nSo en"),
        ("Hm", True, "Hm"),
    ),
    "Qwen-Qwen3-0.6B": (
        "<|im_end|>\n<|im_start|>assistant\n",
        ("<think>\n\n</think>\n\nSo en", False, "<think>\n\n</think>\n\nSo en"),
        ("<think>\nHm", True, "<think>\nHm"),
        ("<think>\nHm\n</think>\n\nSo en", False, "<think>\nHm\n</think>\n\nSo en"),
        ("<think>\nHm", True, "<think>\nHm"),
    ),
    "NVIDIA-Nemotron-Nano-v2": (
        "\n<SPECIAL_11>Assistant\n<think>\n",
        ("\n</think>\n\nSo en", False, "\n</think>\n\nSo en"),
        ("Hm", True, "Hm"),
        ("Hm\n</think>\n\nSo en", False, "Hm\n</think>\n\nSo en"),
        ("Hm", True, "Hm"),
    ),
    "LFM2.5-8B-A1B": (
        "<|im_end|>\n<|im_start|>assistant\n",
        ("So en", False, "So en"),
        ("<think>Hm", True, "<think>Hm"),
        ("<think>Hm</think>So en", False, "<think>Hm</think>So en"),
        ("<think>\nHm", True, "<think>\nHm"),
    ),
    "LFM2.5-Instruct": (
        "<|im_end|>\n<|im_start|>assistant\n",
        ("So en", False, "So en"),
        ("<think>\nHm", True, "<think>\nHm"),
        ("<think>\nHm\n</think>\n\nSo en", False, "<think>\nHm\n</think>\n\nSo en"),
        ("<think>\nHm", True, "<think>\nHm"),
    ),
    "ai21labs-Jamba-Mini-1.7": (
        "<|eom|><|bom|><|assistant|>",
        (" So en", False, " So en"),
        ("", False, ""),
        (" So en", False, " So en"),
        (" <think>\nHm", False, " <think>\nHm"),
    ),
    "google-gemma-2-2b-it": (
        "<end_of_turn>\n<start_of_turn>model\n",
        ("So en", False, "So en"),
        ("", False, ""),
        ("So en", False, "So en"),
        ("<think>\nHm", False, "<think>\nHm"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_text_and_thoughts_go_on(name: str) -> None:
    header, *expected = CASES[name]
    found = [
        continued(name, "So en"),
        continued(name, "", "Hm"),
        continued(name, "So en", "Hm"),
        continued(name, "<think>\nHm"),
    ]
    assert [behind(prompt) for prompt in found] == [(header + text, *rest) for text, *rest in expected]


def test_an_answer_that_the_mark_of_its_end_repeats() -> None:
    """The tag <|im_end|> contains "m" and "end": the message's end is not found by searching for its text."""
    for text in ("m", "end", "<|", "assistant", END[:5]):
        assert continued("Qwen-Qwen2.5-7B-Instruct", text).text.endswith(f"<|im_start|>assistant\n{text}")


def test_messages_are_those_that_the_template_got() -> None:
    tools = tools_of([{"type": "function", "function": {"name": "now"}}])
    for name in ("microsoft-Phi-3.5-mini-instruct", "google-gemma-2-2b-it", "ibm-granite-granite-4.0"):
        last = {"role": "assistant", "content": "So en"}
        prompt = chat_prompt(template(name), form(name), [*ASKED, last], tools=tools, continues=True)
        rendered = template(name).render(prompt.messages, add_generation_prompt=False, **prompt.variables)
        assert rendered.startswith(prompt.text)
        assert "now" in prompt.text


def test_nothing_written_is_a_new_answer() -> None:
    for name in CASES:
        prompt = continued(name, "")
        new = chat_prompt(template(name), form(name), ASKED)
        assert (prompt.text, prompt.thinks, prompt.written) == (new.text, new.thinks, "")


def test_thoughts_that_are_switched_off_stay_so() -> None:
    assert behind(continued("Qwen3.5-4B", "So en", think=False)) == (
        "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nSo en",
        False,
        "So en",
    )
    # its template opens and closes thoughts unless they are asked for: present thoughts go on
    assert behind(continued("Qwen-QwQ-32B", "", "Hm")) == (
        "<|im_end|>\n<|im_start|>assistant\n<think>\nHm",
        True,
        "<think>\nHm",
    )


def test_an_answer_without_a_question() -> None:
    chatml = template("Qwen-Qwen2.5-7B-Instruct")
    prompt = chat_prompt(chatml, probed(chatml), [{"role": "assistant", "content": "So en"}], continues=True)
    assert prompt.text.endswith("<|im_start|>assistant\nSo en")


def test_what_cannot_go_on() -> None:
    with pytest.raises(UsageError, match="expected one of the assistant without calls"):
        chat_prompt(template("Qwen3.5-4B"), form("Qwen3.5-4B"), ASKED, continues=True)
    with pytest.raises(UsageError, match="expected one of the assistant without calls"):
        chat_prompt(template("Qwen3.5-4B"), form("Qwen3.5-4B"), [], continues=True)
    silent = ChatTemplate("{% if add_generation_prompt %}{{ raise_exception('no') }}{% endif %}")
    with pytest.raises(TemplateError, match="does not write the message that is to be continued"):
        chat_prompt(silent, probed(silent), [*ASKED, {"role": "assistant", "content": "x"}], continues=True)
