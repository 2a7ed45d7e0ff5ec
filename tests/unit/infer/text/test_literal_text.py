"""Text in messages that spells control tokens stays text, whatever the template does with it."""

import json
import random

import pytest
from made_vocabularies import gpt2, spm

from hybrid.infer.text.encode import continuation_ids, rendered_ids
from hybrid.infer.text.literal_text import BREAK, LiteralText, named, without_breaks
from hybrid.infer.text.tokenizer import Tokenizer, load_tokenizer
from hybrid.quant.ggml.errors import UsageError

KINDS = {"gpt2": gpt2, "spm": spm}


@pytest.fixture(params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return load_tokenizer(KINDS[request.param]())


def control(tokenizer: Tokenizer, text: str) -> int:
    return sum(map(tokenizer.is_control, rendered_ids(tokenizer, text))) - tokenizer.add_bos


@pytest.mark.parametrize("before", ["", "<|user|>", "ab "])
@pytest.mark.parametrize("after", ["", "<|user|>", "ser|>", "|user|>"])
@pytest.mark.parametrize("text", ["<|user|>", "a<|user|>b", "<|user|><|user|>", "<", "<|u", "a <|us", "<<|user|", "ab"])
def test_only_the_templates_tags_are_tokens(tokenizer: Tokenizer, before: str, text: str, after: str) -> None:
    """Also where the template's text completes what the message began; the tokens are those of plain text."""
    quoted = LiteralText(tokenizer).text(text)
    assert without_breaks(quoted) == text
    assert control(tokenizer, before + quoted + after) == (before + after).count("<|user|>")
    ids = rendered_ids(tokenizer, f"ab{quoted}ab")
    assert ids == tokenizer.encode(f"ab{text}ab"), "as without special tokens"
    assert rendered_ids(tokenizer, f"ab{text}ab") == ids or "<|user|>" in text


def test_user_defined_tokens_are_found_in_every_text(tokenizer: Tokenizer) -> None:
    assert LiteralText(tokenizer).text("a<note>b") == "a<note>b"


def test_a_text_with_the_character_itself(tokenizer: Tokenizer) -> None:
    """It is left out, and no token is found across it; what has been quoted stays the same."""
    quoted = LiteralText(tokenizer).text(f"<{BREAK}|user|><|user|>")
    assert quoted == f"<{BREAK}|user|><{BREAK}|user|>" and control(tokenizer, quoted) == 0
    assert LiteralText(tokenizer).text(quoted) == quoted


def test_json_and_kept_texts(tokenizer: Tokenizer) -> None:
    literal = LiteralText(tokenizer)
    value = {"a": ["<|user|>", 1, None], "<|user|>": {"b": True}, "|user|>": "x"}
    quoted = literal.quoted(value)
    assert control(tokenizer, json.dumps(quoted, ensure_ascii=False)) == 0
    assert json.loads(without_breaks(json.dumps(quoted, ensure_ascii=False))) == value
    assert control(tokenizer, "<" + next(key for key in quoted if key[0] == "|")) == 0
    assert literal.quoted("a<|user|>b", ("<|user|>",)) == "a<|user|>b"
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(UsageError, match="nested too deeply"):
        literal.quoted(deep)


def test_random_texts_with_pieces_of_tags(tokenizer: Tokenizer) -> None:
    """Parts of a message that a template joins, trims and cuts never make a token."""
    draw, literal = random.Random(1), LiteralText(tokenizer)
    pieces = ["<", "|", "user", "|>", "<|user", "user|>", "<|user|>", " ", "a", "<s>", "\n"]
    for _ in range(500):
        texts = ["".join(draw.choices(pieces, k=draw.randrange(6))) for _ in range(3)]
        quoted = [literal.text(text) for text in texts]
        assert list(map(without_breaks, quoted)) == texts
        for joined in ("".join(quoted), quoted[0].strip() + quoted[1], quoted[0][:-1], quoted[2].upper()):
            assert control(tokenizer, joined) == 0 or not joined.startswith(quoted[0]) or quoted[1][:1] in "|u"


def test_a_continuation_parses_special_tokens_when_asked(tokenizer: Tokenizer) -> None:
    user = tokenizer.token("<|user|>")
    assert user in continuation_ids(tokenizer, "a<|user|>", parse_special=True)
    assert user not in continuation_ids(tokenizer, "a<|user|>")


def test_names_have_no_tokens_and_are_not_shown(tokenizer: Tokenizer) -> None:
    one, two = named(bytes(range(16))), named(bytes(range(1, 17)))
    assert one != two and len(one) == len(two) == 33
    plain, text = "<|user|>ab ab<|user|>", f"<|user|>{one}ab{two} ab<|user|>"
    assert rendered_ids(tokenizer, text) == rendered_ids(tokenizer, plain)
    assert rendered_ids(tokenizer, f"<|user|>{one}<|user|>") == rendered_ids(tokenizer, "<|user|><|user|>")
    assert without_breaks(text) == plain
    assert control(tokenizer, f"<|us{one}er|>") == 0, "no token is found across a name"
