"""The pieces of a sentencepiece model against pieces written one by one."""

import struct

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from reference.tokenizer_files import FakeGGUF

from hybrid.infer.text.tokenizer.sentencepiece_model import model_proto
from hybrid.infer.text.tokenizer.vocabulary import Vocabulary, read_vocabulary
from hybrid.quant.ggml.token_types import TokenType


def number(value: int) -> bytes:
    low, rest = value & 127, value >> 7
    return bytes([low | 128]) + number(rest) if rest else bytes([low])


def field(tag: int, data: bytes) -> bytes:
    return number(tag << 3 | 2) + number(len(data)) + data


def one_by_one(vocabulary: Vocabulary, unknown: int, byte_of: dict[int, int]) -> bytes:
    """The rules as documented, for every token in turn."""
    assert vocabulary.scores is not None
    written, there = b"", set()
    for token, text in enumerate(vocabulary.tokens):
        kind = vocabulary.type_of(token)
        if token == unknown:
            kind = TokenType.UNKNOWN
        elif token in byte_of:
            kind, text = TokenType.BYTE, f"<0x{byte_of[token]:02X}>"
        elif kind == TokenType.USER_DEFINED and token not in vocabulary.eog:
            text = text.replace(" ", "\u2581")
        elif kind not in (TokenType.NORMAL, TokenType.CONTROL, TokenType.UNUSED):
            kind = TokenType.CONTROL
        if not text or text in there:
            text = f"<{token}|{text}>"
            kind = TokenType.UNKNOWN if token == unknown else TokenType.CONTROL
        there.add(text)
        score = struct.pack("<Bf", 2 << 3 | 5, vocabulary.scores[token])
        written += field(1, field(1, text.encode("utf-8", "replace")) + score + number(3 << 3) + number(kind))
    return written


def read(tokens: list[str], kinds: list[int]) -> Vocabulary:
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(kinds, np.int32),
        "tokenizer.ggml.scores": np.arange(len(tokens), dtype=np.float32) / -3,
    }
    return read_vocabulary(FakeGGUF(metadata))


TEXTS = st.one_of(
    st.text(max_size=3),
    st.sampled_from(
        ["", "a", "a b", " ", "</s>", "<1|a>", "<2|>", "<0x01>", "\ud800", "é" * 60, "x" * 130, "x" * 16400]
    ),
)
BYTE = int(TokenType.BYTE)


@given(st.lists(st.tuples(TEXTS, st.integers(0, 7)), min_size=1, max_size=9), st.data())
@example([("a", 1), ("b", 1)], None)
@example([("a", 1), ("<3|a>", 1), ("</s>", 4), ("a", 4), ("<3|a>", 1), ("x y", 4), ("", BYTE), ("", 2)], None)
def test_pieces(given: list[tuple[str, int]], data: st.DataObject | None) -> None:
    tokens, kinds = [text for text, _ in given], [kind for _, kind in given]
    vocabulary = read(tokens, kinds)
    unknown = data.draw(st.integers(0, len(tokens) - 1)) if data else 0
    byte_of = {token: i for i, token in enumerate(vocabulary.of_type(TokenType.BYTE))}
    written = model_proto(vocabulary, unknown, byte_of, True)
    assert written.startswith(pieces := one_by_one(vocabulary, unknown, byte_of))
    assert written[len(pieces)] == 2 << 3 | 2, "what follows is the trainer's part"


def test_many_pieces() -> None:
    tokens = [f"{i:x}" * (1 + i % 70) for i in range(3000)]
    vocabulary = read(tokens, [1] * len(tokens))
    assert model_proto(vocabulary, 7, {}, False).startswith(one_by_one(vocabulary, 7, {}))
