"""Pictures in messages: what templates see of them, and the text that they write."""

from dataclasses import dataclass
from typing import Any

import pytest
from chat_templates import SMOLVLM, TOKENS, call, template
from reference.tokenizer_files import bpe

from hybrid.infer.answers.chat.picture_parts import joined, pictures_in, plain_content, rendered, with_results_told
from hybrid.infer.answers.chat.probing import probed
from hybrid.infer.answers.chat.prompting import ChatPrompt, chat_prompt
from hybrid.infer.text.chat_template import ChatTemplate
from hybrid.infer.text.literal_text import BREAK, LiteralText
from hybrid.infer.text.tokenizer import load_tokenizer
from hybrid.quant.ggml.errors import PictureError, UsageError

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True, eq=False)
class Fake:
    """A picture of which only the place in texts matters."""

    text: str
    placeholder: str = "<image>"

    @property
    def written(self) -> str:
        return f"({self.placeholder})"


def image(text: str, placeholder: str = "<image>") -> dict[str, Any]:
    return {"type": "image", "image": Fake(text, placeholder)}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


def prompt(source: ChatTemplate, *messages: dict[str, Any], **options: Any) -> ChatPrompt:
    return chat_prompt(source, probed(source), list(messages), **options)


@pytest.mark.parametrize(
    ("name", "placeholder"),
    [
        ("Qwen3.5-4B", "<|image_pad|>"),
        ("google-gemma-4-31B-it", "<|image|>"),
        ("LFM2.5-8B-A1B", "<image>"),
        ("Mistral-Small-3.2-24B-Instruct-2506", "[IMG]"),
    ],
)
def test_published_templates(name: str, placeholder: str) -> None:
    messages = [
        user(image("<first>", placeholder), text("What is it?")),
        {"role": "assistant", "content": "A cat."},
        user(text("And "), image("<second>", placeholder), text("this?")),
    ]
    made = prompt(template(name), *messages)
    assert placeholder not in made.text
    first, question, second = (made.text.index(part) for part in ("<first>", "What is it?", "<second>"))
    assert first < question < made.text.index("A cat.") < second < made.text.index("this?")
    assert [picture.text for picture in made.pictures] == ["<first>", "<second>"]
    early = rendered(template(name), probed(template(name)), made.messages[:1], made.variables, ask=False)
    assert "<first>" in early and "<second>" not in early


def test_a_template_without_parts_gets_placeholders_as_text() -> None:
    made = prompt(ChatTemplate(CHATML, tokens=TOKENS), user(image("PICTURE"), text("What?")))
    assert made.text == "<|im_start|>user\n(PICTURE)What?<|im_end|>\n<|im_start|>assistant\n"


def test_a_template_that_leaves_pictures_out_gets_them_as_text() -> None:
    source = (
        "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
        "{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}"
    )
    assert prompt(ChatTemplate(source), user(text("Look: "), image("PICTURE"))).text == "Look: (PICTURE)"


def test_a_template_that_needs_parts_gets_texts_as_parts() -> None:
    source = ChatTemplate(SMOLVLM)
    made = prompt(source, {"role": "system", "content": "Be brief."}, user(image("PICTURE"), text("What?")))
    assert made.text == "System: Be brief.<end>\nUser:PICTUREWhat?<end>\nAssistant:"
    assert prompt(source, {"role": "user", "content": "Hi"}).text == "User: Hi<end>\nAssistant:"


def test_a_placeholder_that_a_user_types_is_text(data_dir: Any) -> None:
    tokenizer = load_tokenizer(bpe(data_dir / "tokenizers/bpe_qwen.json", "qwen2"))
    token = "<|im_start|>"  # as if it were the placeholder
    source = ChatTemplate(
        "{% for m in messages %}{% for p in m.content %}{% if p.type == 'image' %}<|im_start|>"
        "{% else %}{{ p.text }}{% endif %}{% endfor %}{% endfor %}"
    )
    made = prompt(source, user(text(f"a {token} b "), image("PICTURE", token)), literal=LiteralText(tokenizer))
    assert made.text == f"a <{BREAK}|im_start|> b PICTURE"
    with pytest.raises(PictureError, match="2 places for pictures, expected 1"):
        prompt(source, user(text(f"a {token} b "), image("PICTURE", token)))


def test_results_of_tools() -> None:
    asked = {"role": "assistant", "content": None, "tool_calls": [call("look", {})]}
    result = {
        "role": "tool",
        "tool_call_id": "call00001",
        "content": [text("A screen:"), image("SCREEN", "<|image_pad|>")],
    }
    made = prompt(template("Qwen3.5-4B"), {"role": "user", "content": "Look."}, asked, result)
    assert made.text.index("A screen:") < made.text.index("SCREEN")
    told = with_results_told([{"role": "user", "content": "Look."}, result, {"role": "assistant", "content": "Yes."}])
    assert [message["role"] for message in told] == ["user", "tool", "user", "assistant"]
    assert told[1]["content"] == "A screen:" and pictures_in(told[2:3]) == pictures_in([result])
    plain = prompt(
        ChatTemplate(CHATML), {"role": "user", "content": "Look."}, asked, result | {"content": [image("SCREEN")]}
    )
    assert "<tool_response>\n(SCREEN)\n</tool_response>" in plain.text


@pytest.mark.parametrize("role", ["system", "assistant"])
def test_others_have_no_pictures(role: str) -> None:
    with pytest.raises(UsageError, match="messages/1/content has a picture: only messages of the user"):
        prompt(ChatTemplate(CHATML), {"role": "user", "content": "Hi"}, {"role": role, "content": [image("PICTURE")]})


def test_other_parts_are_refused() -> None:
    with pytest.raises(UsageError, match="neither a text nor a list of texts"):
        prompt(ChatTemplate(CHATML), user(image("PICTURE"), {"type": "video"}))
    with pytest.raises(UsageError, match="neither a text nor a list of texts"):
        prompt(ChatTemplate(CHATML), user({"type": "image"}))


def test_joined() -> None:
    assert joined("a", "", "b", between="-") == "a-b"
    picture = image("P")
    assert joined("a", [text("b"), picture], "c", "d", between="-") == [text("a-b"), picture, text("-c-d")]
    assert joined([picture], [picture]) == [picture, picture]
    assert joined() == ""
    assert plain_content([text("a"), picture]) == "aP" and plain_content(None) == ""
