"""Where messages end in the tokens of a conversation."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from reference.tokenizer_files import bpe, sentencepiece

from hybrid.infer.answers.asking.ledger import Encoded, Ledger
from hybrid.infer.answers.asking.message_ends import message_ends
from hybrid.infer.text.encode import rendered_ids
from hybrid.infer.text.tokenizer import Tokenizer, load_tokenizer
from hybrid.quant.ggml.errors import TemplateError

MESSAGES = ["You are kind.", "Hello", "Good day!", "What is it?", "A model.", "And then?"]


@pytest.fixture(scope="module")
def tok(data_dir: Path) -> Tokenizer:
    return load_tokenizer(bpe(data_dir / "tokenizers/bpe_qwen.json", "qwen2"))


def render(messages: Sequence[str]) -> str:
    return "".join(f"<|im_start|>{message}<|im_end|>\n" for message in messages)


def test_they_are_found_in_the_tokens(tok: Tokenizer) -> None:
    text = render(MESSAGES) + "<|im_start|>"
    whole = rendered_ids(tok, text)
    right = [len(rendered_ids(tok, render(MESSAGES[:n]))) for n in range(len(MESSAGES))]
    assert message_ends(tok, render, MESSAGES, text, Encoded([], whole), 32) == right[1:]
    assert message_ends(tok, render, MESSAGES, text, Encoded([], whole), 2) == [right[1], *right[-2:]]
    ledger = Ledger(tok)
    ledger.note(text.split("Good")[0], "Good day!", [7] * 40)  # as if drawn in 40 tokens
    encoded = ledger.find(text)
    assert len(encoded.known) == 40
    more = 40 - len(rendered_ids(tok, text.split("!")[0] + "!"))
    assert message_ends(tok, render, MESSAGES, text, encoded, 32) == [more + n for n in right[3:]]


def test_a_template_need_not_take_every_beginning(tok: Tokenizer) -> None:
    def strict(messages: Sequence[str]) -> str:
        if len(messages) < 3:
            raise TemplateError("too few")
        return render(messages)

    text = render(MESSAGES)
    ends = message_ends(tok, strict, MESSAGES, text, Encoded([], rendered_ids(tok, text)), 32)
    assert ends == [len(rendered_ids(tok, render(MESSAGES[:n]))) for n in (3, 4, 5)]


def test_one_that_ends_within_a_token(tok: Tokenizer) -> None:
    """Its end is where the tokens begin to differ; later ends are found all the same."""

    def joined(messages: Sequence[str]) -> str:
        return "".join(messages)

    messages = ["The stat", "es are", "<|im_end|>many"]
    text = joined(messages)
    whole = rendered_ids(tok, text)
    first = rendered_ids(tok, "The stat")
    assert whole[: len(first)] != first
    same = next(i for i, (a, b) in enumerate(zip(first, whole, strict=False)) if a != b)
    ends = message_ends(tok, joined, messages, text, Encoded([], whole), 32)
    assert ends == [same, whole.index(tok.encode("<|im_end|>", parse_special=True)[0])]


def test_sentencepiece_writes_a_space_behind_control_tokens(data_dir: Path) -> None:
    """The space after a control token does not change the tokens of a part that begins there."""
    tok = load_tokenizer(sentencepiece(data_dir / "checkpoints/jamba-dense/tokenizer.model"))
    assert tok.eos is not None
    eos = tok.piece(tok.eos).decode()

    def ended(messages: Sequence[str]) -> str:
        return "".join(f"({message}){eos}" for message in messages)

    text = ended(MESSAGES) + "(It is"
    whole = rendered_ids(tok, text)
    right = [i + 1 for i, token in enumerate(whole) if token == tok.eos]
    assert message_ends(tok, ended, MESSAGES, text, Encoded([], whole), 32, whole=True) == right
