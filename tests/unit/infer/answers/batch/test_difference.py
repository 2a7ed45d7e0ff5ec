"""The words around the first difference of two texts, in one short line for any tokens."""

import pytest

from hybrid.infer.answers.batch.difference import WORD, quotes
from hybrid.quant.ggml.errors import TokenizerError


class Words:
    """A token is an index into a list of pieces."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces

    def piece(self, token: int) -> bytes:
        if token >= len(self.pieces):
            raise TokenizerError("no such token")
        return self.pieces[token]

    def is_control(self, token: int) -> bool:
        return self.piece(token).startswith(b"<|")

    def ids(self, *pieces: bytes) -> list[int]:
        return [self.pieces.index(piece) for piece in pieces]


P = Words(
    b"Today is", b" 2026", b"-11-", b"22", b"21", b".\n", b" cat", b" dog", b"\n", b" ", b"\xc3", b"\xa4", b"\xb6",
    b"\x1b[31m", b"ab", b"a", b"b", b"x" * 100, b"y" * 100, b"c", b"<|end|>", b"<|user|>",
)  # fmt: skip


@pytest.mark.parametrize(
    ("before", "given", "known", "own", "other"),
    [
        ((b"Today is", b" 2026", b"-11-"), (b"22", b".\n"), (b"21", b".\n"), "2026-11-22.", "2026-11-21."),
        ((b"Today is",), (b" cat", b" 2026"), (b" dog", b" 2026"), "cat", "dog"),
        ((b" cat",), (b"\n", b" dog"), (b" ", b" dog"), r"cat\n", "cat "),
        ((b" cat", b"\xc3"), (b"\xa4", b" dog"), (b"\xb6",), "cat\u00e4", "cat\u00f6"),
        ((), (b"\x1b[31m",), (b"a",), r"\x1b[31m", "a"),
        ((b" cat", b" "), (b"ab", b"c"), (b"a", b"b", b"c"), "abc", "abc"),
        ((b" ",), (b"a",), (b"ab", b"ab"), "a", "a"),
        ((b"ab", b"<|user|>"), (b" cat", b"a"), (b"c",), " cata", "c"),
        ((b"a", b"<|user|>"), (b"ab", b"<|end|>", b"c"), (b"ab", b"c"), "ab<|end|>", "abc"),
        ((b"a",), (b"<|end|>", b"c"), (b"b", b"c"), "a<|end|>", "abc"),
        ((b"a",), (b"<|end|>", b"c"), (b"<|user|>", b"c"), "a<|end|>", "a<|user|>"),
        ((), (b"x" * 100,), (b"y" * 100,), "x" * WORD, "y" * WORD),
        ((b"x" * 100,), (b"a",), (b"b",), "x" * WORD + "a", "x" * WORD + "b"),
    ],
)
def test_the_words_that_differ(
    before: tuple[bytes, ...], given: tuple[bytes, ...], known: tuple[bytes, ...], own: str, other: str
) -> None:
    got = quotes(P, P.ids(*before), P.ids(*given), P.ids(*known))  # type: ignore[arg-type]
    assert (got.given, got.known) == (own, other)
    assert (got.given + got.known).isprintable()


def test_tokens_without_a_text_are_numbers() -> None:
    got = quotes(P, [], [99], [3])  # type: ignore[arg-type]
    assert (got.given, got.known) == ("token 99", "token 3")
