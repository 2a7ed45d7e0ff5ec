"""Tokens of gaps, by keys and by texts."""

from typing import Any

import pytest
from made_vocabularies import gpt2

from hybrid.infer.text.tokenizer import load_tokenizer
from hybrid.infer.text.tokenizer.fill import KEYS, TEXTS, FillTokens, read_fill_tokens
from hybrid.quant.ggml.errors import TokenizerError
from hybrid.quant.ggml.token_types import TokenType

N = len(gpt2().metadata["tokenizer.ggml.tokens"])


def fill_of(*more: str, kind: int = TokenType.CONTROL, **keys: Any) -> tuple[FillTokens, frozenset[int]]:
    """Of a vocabulary with these tokens at its end; and the tokens that end an answer."""
    file = gpt2()
    tokens, types = (list(file.metadata[f"tokenizer.ggml.{name}"]) for name in ("tokens", "token_type"))
    tok = load_tokenizer(gpt2(tokens=[*tokens, *more], token_type=[*types, *[int(kind)] * len(more)], **keys))
    return tok.vocabulary.fill, tok.eog


@pytest.mark.parametrize("name", KEYS)
def test_texts(name: str) -> None:
    for text in TEXTS[name]:
        assert getattr(fill_of("x", text)[0], name) == N + 1
    assert fill_of("x", *TEXTS[name][::-1])[0] == FillTokens(**{name: N + len(TEXTS[name])}), "the first counts"


@pytest.mark.parametrize("name", KEYS)
def test_keys(name: str) -> None:
    """A key counts more than a text; one that says that there is no such token, less."""
    for key in KEYS[name]:
        assert getattr(fill_of("x", TEXTS[name][0], **{key: N})[0], name) == N
        for nothing in (-1, 0xFFFFFFFF):
            assert getattr(fill_of("x", TEXTS[name][0], **{key: nothing})[0], name) == N + 1
        with pytest.raises(TokenizerError, match=key):
            fill_of("x", **{key: N + 1})


def test_older_keys_count_more() -> None:
    """As in llama.cpp, which reads them last."""
    assert read_fill_tokens([], {"fim_pre_token_id": 3, "prefix_token_id": 4}.get).prefix == 4


def test_what_ends_an_answer() -> None:
    """Padding, repositories and files, if they are control tokens."""
    special = [TEXTS[name][0] for name in KEYS]
    fill, ends = fill_of(*special)
    assert fill.missing == [] and fill.ends == {N + 3, N + 4, N + 5} <= ends
    assert not ends & {N, N + 1, N + 2}
    _, ends = fill_of(*special, kind=TokenType.USER_DEFINED)
    assert not ends & set(range(N, N + 6))
    assert fill_of()[0].missing == ["prefix", "suffix", "middle"]
