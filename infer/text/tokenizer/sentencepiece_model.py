"""Kinds `llama` (BPE by scores) and `t5` (unigram): the sentencepiece model rebuilt from the vocabulary.

A GGUF file has the pieces, scores, types and flags of a sentencepiece model, which is all that encoding needs. They are
written back into a ModelProto (sentencepiece_model.proto, google/sentencepiece) for the sentencepiece library, which
makes the ids.
"""

from collections.abc import Iterator
from functools import cache, cached_property
from itertools import chain
from typing import Any

import numpy as np

from hybrid.quant.ggml.errors import TokenizerError, shown
from hybrid.quant.ggml.token_types import SPACE, TokenType

from .base import UNKNOWN_TEXT, Place, Tokenizer
from .special import SpecialMatcher
from .vocabulary import BYTE_TOKEN, Vocabulary

# Field numbers of sentencepiece_model.proto.
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_PIECE_TEXT, _PIECE_SCORE, _PIECE_TYPE = 1, 2, 3
_MODEL_TYPE, _VOCAB_SIZE, _BYTE_FALLBACK = 3, 4, 35
_CHARSMAP, _ADD_DUMMY_PREFIX, _REMOVE_EXTRA_WHITESPACES, _ESCAPE_WHITESPACES = 2, 3, 4, 5
_UNIGRAM, _BPE = 1, 2  # TrainerSpec.ModelType
_TAIL = np.dtype([("score_tag", "u1"), ("score", "<f4"), ("type_tag", "u1"), ("type", "u1")])  # end of a piece's record


class SentencePieceTokenizer(Tokenizer):
    """Score-driven BPE or unigram through the sentencepiece library."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        if vocabulary.scores is None:
            raise TokenizerError(f"{vocabulary.source}: tokenizer.ggml.scores is missing. Convert the model again.")
        super().__init__(vocabulary)
        self._bytes = byte_tokens(vocabulary)
        self._processor  # noqa: B018  raises for a vocabulary that sentencepiece refuses, before the first text

    @property
    def drops_leading_space(self) -> str:
        if self.vocabulary.remove_extra_whitespaces:
            return "all"
        return "one" if self.vocabulary.add_space_prefix else ""

    def _encode_text(self, text: str, after: Place) -> list[int]:
        strips = self.vocabulary.remove_extra_whitespaces  # then the prefix restores a leading space
        if after == "text":
            prefix = strips and text.startswith(" ")
        elif after == "token":
            # sentencepiece has no rule for this. As in Hugging Face's tokenizers, the space is added before a word, but
            # not before a space ("<|user|> Hello" has one space, not two).
            prefix = strips or not text.startswith(" ")
        else:
            prefix = True
        ids: list[int] = (self._processor if prefix else self._processor_without_prefix).encode(text)
        return ids

    def _can_be_cut(self, before: str, after: str, over: bytes) -> bool:
        """False if text is normalized, adjacent unknown characters become one token, or scores are summed from the
        beginning of the text, since sums round."""
        changes = self.vocabulary.charsmap or self.vocabulary.remove_extra_whitespaces
        local = self.kind == "llama" and not changes and bool(self._bytes)
        return local and super()._can_be_cut(before, after, over)

    def _piece(self, token: int) -> bytes:
        text = self.vocabulary.tokens[token]
        kind = self.vocabulary.type_of(token)
        if token in self._bytes:
            return bytes([self._bytes[token]])
        if kind == TokenType.UNKNOWN or token == self._unknown:
            return UNKNOWN_TEXT.encode()
        if kind == TokenType.CONTROL:
            return text.encode()
        return text.replace(SPACE, " ").encode()

    @cached_property
    def _user_defined(self) -> SpecialMatcher:
        # sentencepiece finds all others itself, before it normalizes
        return self._matcher(more=_found_by_us(self.vocabulary))

    @cached_property
    def _all_special(self) -> SpecialMatcher:
        return self._matcher(TokenType.CONTROL, TokenType.UNKNOWN, more=_found_by_us(self.vocabulary))

    @cached_property
    def _processor(self) -> Any:
        return self._load(self.vocabulary.add_space_prefix)

    @cached_property
    def _processor_without_prefix(self) -> Any:
        return self._load(False) if self.vocabulary.add_space_prefix else self._processor

    @cached_property
    def _unknown(self) -> int:
        """The token for text that cannot be spelled. If no token has type UNKNOWN (converters that read tokenizer.json
        make it CONTROL), it is `unknown_token_id`."""
        typed = self.vocabulary.of_type(TokenType.UNKNOWN)
        if self.vocabulary.unk in typed or not typed:
            token = self.vocabulary.unk
        else:
            token = typed[0]
        if token is None:
            raise TokenizerError(
                f"{self.vocabulary.source}: no token of type UNKNOWN and no tokenizer.ggml.unknown_token_id. "
                "Convert the model again."
            )
        return token

    def _load(self, add_dummy_prefix: bool) -> Any:
        from sentencepiece import SentencePieceProcessor  # 40 ms, not needed to inspect a file

        proto = model_proto(self.vocabulary, self._unknown, self._bytes, add_dummy_prefix)
        try:
            return SentencePieceProcessor(model_proto=proto)
        except (RuntimeError, ValueError, OSError) as error:
            reason = shown(" ".join(str(error).split()))
            raise TokenizerError(f"{self.vocabulary.source}: sentencepiece refuses the vocabulary: {reason}") from None


def model_proto(vocabulary: Vocabulary, unknown: int, byte_of: dict[int, int], add_dummy_prefix: bool) -> bytes:
    """The vocabulary as a serialized sentencepiece ModelProto."""
    trainer = (
        _number(_MODEL_TYPE, _UNIGRAM if vocabulary.model == "t5" else _BPE)
        + _number(_VOCAB_SIZE, len(vocabulary.tokens))
        + _number(_BYTE_FALLBACK, int(bool(byte_of)))
    )
    normalizer = (
        _bytes(_CHARSMAP, vocabulary.charsmap)
        + _number(_ADD_DUMMY_PREFIX, int(add_dummy_prefix))
        + _number(_REMOVE_EXTRA_WHITESPACES, int(vocabulary.remove_extra_whitespaces))
        + _number(_ESCAPE_WHITESPACES, 1)
    )
    return b"".join(
        [*_pieces(vocabulary, unknown, byte_of), _bytes(_TRAINER, trainer), _bytes(_NORMALIZER, normalizer)]
    )


def _pieces(vocabulary: Vocabulary, unknown: int, byte_of: dict[int, int]) -> Iterator[bytes]:
    """The protobuf records of the tokens, one per token, as the bytes before, of and after its text. Written for all
    tokens at once: a loop would take 0.2 s longer for 128 k tokens.
    """
    texts, kinds = _spelled(vocabulary, unknown, byte_of)
    raw = [text.encode("utf-8", "replace") for text in texts]
    heads = {n: _head(n) for n in set(map(len, raw))}
    tails = np.empty(len(raw), _TAIL)
    tails["score_tag"], tails["score"] = _PIECE_SCORE << 3 | 5, vocabulary.scores
    tails["type_tag"], tails["type"] = _PIECE_TYPE << 3, kinds
    ends = tails.view(f"V{_TAIL.itemsize}").tolist()
    return chain.from_iterable(zip(map(heads.__getitem__, map(len, raw)), raw, ends, strict=True))


def _head(n: int) -> bytes:
    """The bytes of a record before its text of n bytes."""
    length = _varint(n)
    size = _varint(1 + len(length) + n + _TAIL.itemsize)
    return bytes([_PIECES << 3 | 2]) + size + bytes([_PIECE_TEXT << 3 | 2]) + length


def _spelled(vocabulary: Vocabulary, unknown: int, byte_of: dict[int, int]) -> tuple[list[str], np.ndarray]:
    """The text and the type of every token for sentencepiece, which wants exactly one UNKNOWN and no empty or equal
    texts. Converters are less strict, so a token that breaks a rule becomes a control token with a name that no text
    contains.
    """
    texts, kinds = vocabulary.tokens[:], vocabulary.types.copy()
    others = vocabulary.control_ends | _found_by_us(vocabulary)
    ordinary = (TokenType.NORMAL, TokenType.CONTROL, TokenType.UNUSED)
    for token in np.flatnonzero(~np.isin(kinds, ordinary)).tolist():
        if token in byte_of:
            kinds[token], texts[token] = TokenType.BYTE, f"<0x{byte_of[token]:02X}>"
        elif vocabulary.type_of(token) == TokenType.USER_DEFINED and token not in others:
            texts[token] = texts[token].replace(" ", SPACE)  # sentencepiece searches for it in escaped text
        else:  # tokens that end answers are not found in text, as in all tokenizers; others are found by our matcher
            kinds[token] = TokenType.CONTROL
    texts[unknown], kinds[unknown] = vocabulary.tokens[unknown], TokenType.UNKNOWN
    if len({*texts, ""}) > len(texts):
        return texts, kinds
    seen = {""}
    for token, text in enumerate(texts):
        if text in seen:
            texts[token] = text = f"<{token}|{text}>"
            kinds[token] = TokenType.UNKNOWN if token == unknown else TokenType.CONTROL
        seen.add(text)
    return texts, kinds


def _found_by_us(vocabulary: Vocabulary) -> frozenset[int]:
    """The user-defined tokens that our matcher finds instead of sentencepiece, since they depend on adjacent text."""
    return vocabulary.near.every.intersection(vocabulary.of_type(TokenType.USER_DEFINED)) - vocabulary.control_ends


def byte_tokens(vocabulary: Vocabulary) -> dict[int, int]:
    """token id -> byte, for BYTE tokens. Raises TokenizerError unless all 256 bytes have one, or none has: with only
    some, text would be lost."""
    values: dict[int, int] = {}
    for token in vocabulary.of_type(TokenType.BYTE):
        match = BYTE_TOKEN.fullmatch(vocabulary.tokens[token])
        if match is None:
            raise TokenizerError(
                f"{vocabulary.source}: token {token} is of type BYTE but spelled {shown(vocabulary.tokens[token])}, "
                "expected <0x00> to <0xFF>. Convert the model again."
            )
        values[token] = int(match[1], 16)
    if values and sorted(values.values()) != list(range(256)):
        raise TokenizerError(
            f"{vocabulary.source}: {len(set(values.values()))} of 256 bytes have a BYTE token ({len(values)} tokens), "
            "expected each once, or no BYTE tokens. Convert the model again."
        )
    return values


@cache
def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data
