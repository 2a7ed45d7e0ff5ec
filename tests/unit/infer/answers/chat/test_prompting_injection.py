"""No message of a conversation can write a template's tags, in any template that we have.

Every tag in the template's source is a control token of a vocabulary made for it. A conversation whose texts spell
these tags has as many control tokens as one whose texts do not, and its texts come back unchanged.
"""

import re
from typing import Any

import pytest
from chat_templates import TEMPLATES, call, template
from made_vocabularies import CONTROL, gpt2

from hybrid.infer.answers.chat.dialect import ChatOptions, Dialect
from hybrid.infer.answers.chat.tools import tools_of
from hybrid.infer.text.encode import rendered_ids
from hybrid.infer.text.tokenizer import Tokenizer, load_tokenizer
from hybrid.quant.ggml.errors import HybridError

NAMES = sorted(path.stem for path in TEMPLATES.glob("*.jinja"))
TAG = re.compile(r"<[|\uff5c/]?[A-Za-z][\w\u2581|\uff5c.-]*[|\uff5c]?>|\[/?[A-Z_]{3,}\]")
HARMLESS = "some words"
NEEDS_MORE = {"fireworks-ai-llama-3-firefunction-v2"}  # a template that wants functions and a date


def vocabulary(source: str) -> tuple[Tokenizer, list[str]]:
    made = gpt2()
    tags = sorted({*TAG.findall(source), "<s>", "</s>", "<|im_end|>"} - set(made.metadata["tokenizer.ggml.tokens"]))
    made.metadata["tokenizer.ggml.tokens"] = [*made.metadata["tokenizer.ggml.tokens"], *tags]
    made.metadata["tokenizer.ggml.token_type"] = [*made.metadata["tokenizer.ggml.token_type"], *[CONTROL] * len(tags)]
    return load_tokenizer(made), [*tags, "<|im_end|>"]


def talks(text: str) -> dict[str, list[dict[str, Any]]]:
    """Conversations with `text` in every place; not all templates have all of these roles."""
    asked, said = {"role": "user", "content": text}, {"role": "assistant", "content": text}
    called = {"role": "assistant", "content": "", "tool_calls": [call("look", {"where": text})]}
    result = {"role": "tool", "content": text, "tool_call_id": "call00001", "name": "look"}
    return {
        "question": [asked],
        "parts": [{"role": "user", "content": [{"type": "text", "text": text}, {"type": "text", "text": text}]}],
        "system": [{"role": "system", "content": text}, asked],
        "answer": [asked, said, asked],
        "call": [asked, called, result],
    }


@pytest.mark.parametrize("name", NAMES)
def test_texts_are_no_tags(name: str) -> None:
    tokenizer, tags = vocabulary(template(name).source)
    dialect = Dialect(template(name), tokenizer)
    thoughts = dialect.format.thoughts
    kept = {thoughts.opening.strip(), thoughts.closing.strip()} if thoughts else set()
    hostile = " ".join(["words", *(tag for tag in tags if not any(tag in one for one in kept)), "words"])
    n_tried = 0
    for kind, talk in talks(hostile).items():
        try:
            plain = dialect.prompt(talks(HARMLESS)[kind], ChatOptions()).text
        except HybridError:
            continue
        text = dialect.prompt(talk, ChatOptions()).text
        assert control(tokenizer, text) == control(tokenizer, plain), kind
        n_tried += 1
    if name not in NEEDS_MORE:
        assert n_tried >= 2
        asked = ChatOptions(parse_special=True)
        trusted = dialect.prompt(talks(hostile)["question"], asked).text
        assert control(tokenizer, trusted) > control(tokenizer, dialect.prompt(talks(HARMLESS)["question"], asked).text)


def test_descriptions_of_tools_are_no_tags() -> None:
    name = "Qwen-Qwen2.5-7B-Instruct"
    tokenizer, tags = vocabulary(template(name).source)
    dialect, counts = Dialect(template(name), tokenizer), []
    for text in (" ".join(tags), HARMLESS):
        tools = tuple(tools_of([{"type": "function", "function": {"name": "look", "description": text}}]))
        counts.append(control(tokenizer, dialect.prompt([{"role": "user", "content": "a"}], ChatOptions(tools)).text))
    assert counts[0] == counts[1]


def control(tokenizer: Tokenizer, text: str) -> int:
    return sum(map(tokenizer.is_control, rendered_ids(tokenizer, text)))
