"""Conversations whose answers have arbitrary tokens: an answer sent back as text gets its sampled tokens."""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.tokenizer_files import bpe, sentencepiece

from hybrid.infer.answers.asking.ledger import Ledger
from hybrid.infer.answers.drawing.drawing import GenerationResult
from hybrid.infer.text.encode import rendered_ids
from hybrid.infer.text.tokenizer import Tokenizer, load_tokenizer
from hybrid.quant.ggml.token_types import TokenType

DATA = Path(__file__).parents[1] / "data"


@dataclass(frozen=True)
class Kind:
    """A tokenizer, and the template texts: before a question, before an answer, after either."""

    path: str
    pre: str  # "": sentencepiece
    bos: str
    question: str
    answer: str
    end: str


KINDS = {
    "qwen": Kind(
        "tokenizers/bpe_qwen.json", "qwen2", "", "<|im_start|>user\n", "<|im_start|>assistant\n", "<|im_end|>\n"
    ),
    "llama3": Kind(
        "tokenizers/bpe_llama3.json",
        "llama-bpe",
        "<|begin_of_text|>",
        "<|start_header_id|>user<|end_header_id|>\n\n",
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        "<|eot_id|>",
    ),
    "jamba": Kind(
        "checkpoints/jamba-dense/tokenizer.model",
        "",
        "<|startoftext|>",
        "<|bom|><|user|> ",
        "<|bom|><|assistant|>",
        "<|eom|>",
    ),
    "gemma": Kind("tokenizers/sp_bpe_gemma.model", "", "<bos>", "user\n", "model\n", "<end_of_turn>\n"),
}
KINDS["jamba, which leaves BOS to the encoder"] = replace(KINDS["jamba"], bos="")


@cache
def tokenizer(name: str) -> Tokenizer:
    kind = KINDS[name]
    path = DATA / kind.path
    return load_tokenizer(bpe(path, kind.pre) if kind.pre else sentencepiece(path))


@cache
def normal(name: str) -> list[int]:
    tok = tokenizer(name)
    return [token for token in tok.vocabulary.of_type(TokenType.NORMAL, TokenType.BYTE) if not tok.is_control(token)]


def text_of(tok: Tokenizer, ids: list[int]) -> str:
    stream = tok.stream(skip_special=True)
    return "".join(map(stream.push, ids)) + stream.flush()


def rendered(kind: Kind, turns: list[tuple[str, str]], question: str) -> str:
    said = [f"{kind.question}{q}{kind.end}{kind.answer}{a}{kind.end}" for q, a in turns]
    return kind.bos + "".join(said) + kind.question + question + kind.end + kind.answer


def unspaced(text: str) -> str:
    return "".join(text.split())


SPACE = st.sampled_from(["", "", " ", "\n", "\n\n "])
QUESTION = st.text("Whyab .\n\u00e9\u2026", min_size=1, max_size=12)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=60)
@given(data=st.data())
def test_answers_of_a_conversation_stay_what_was_drawn(name: str, data: Any) -> None:
    kind, tok = KINDS[name], tokenizer(name)
    ledger = Ledger(tok)
    turns: list[tuple[str, str]] = []
    before: list[int] = []
    for _ in range(data.draw(st.integers(1, 4))):
        question = data.draw(QUESTION)
        text = rendered(kind, turns, question)
        encoded = ledger.find(text)
        ids = encoded.ids
        assert encoded.known == before, "all that was drawn so far"
        assert unspaced(tok.decode(ids)) == unspaced(tok.decode(rendered_ids(tok, text))), "it says the same"
        # after the answer the tokens are as in the whole text
        canonical = rendered_ids(tok, text)
        assert canonical[len(canonical) - len(encoded.rest) :] == encoded.rest
        drawn = data.draw(st.lists(st.sampled_from(normal(name)), min_size=1, max_size=12))
        said = text_of(tok, drawn)
        ledger.note_answer(text, ids, GenerationResult("eos", said, drawn))
        before = [*ids, *drawn]
        # as clients and templates send it back
        shown = said if data.draw(st.booleans()) else data.draw(SPACE) + said.strip() + data.draw(SPACE)
        turns.append((question, shown))
    other = Ledger(tok)
    other.load(ledger.entries())
    assert other.find(rendered(kind, turns, "?")).known == before


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=60)
@given(data=st.data())
def test_a_completion_that_goes_on(name: str, data: Any) -> None:
    """Either the sampled tokens and the rest as in the whole text, or the text as if unknown."""
    tok = tokenizer(name)
    ledger = Ledger(tok)
    asked = data.draw(QUESTION)
    ids = tok.encode(asked)
    drawn = data.draw(st.lists(st.sampled_from(normal(name)), min_size=1, max_size=12))
    said = text_of(tok, drawn)
    ledger.note_answer(asked, ids, GenerationResult("length", said, drawn), plain=True)
    assert ledger.encode(asked + said, plain=True) == [*ids, *drawn]
    text = asked + said + data.draw(QUESTION)
    got = ledger.find(text, plain=True)
    whole = tok.encode(text)
    assert got.known in ([], [*ids, *drawn])
    assert got.rest == whole[len(whole) - len(got.rest) :] and (got.known or got.rest == whole)
    apart = tok.encode(asked + said)
    assert bool(got.known) == (whole[: len(apart)] == apart)
