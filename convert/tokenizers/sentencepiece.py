"""Reads tokenizer.model: a sentencepiece ModelProto, field by field.

Fields of sentencepiece_model.proto (google/sentencepiece) that matter here:
    ModelProto      1 pieces (repeated), 2 trainer_spec, 3 normalizer_spec
    piece           1 text, 2 score (float), 3 type (numbers of TokenType)
    trainer_spec    3 model_type (1 unigram, 2 BPE), 24 treat_whitespace_as_suffix, 40-43 ids of unk, bos, eos, pad
    normalizer_spec 2 precompiled_charsmap, 3 add_dummy_prefix, 4 remove_extra_whitespaces, 5 escape_whitespaces
"""

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hybrid.quant.ggml.errors import TokenizerError, UnsupportedError, shown
from hybrid.quant.ggml.token_types import SPACE, TokenType
from hybrid.quant.ggml.types import ArrayOf, ValueType

from .vocabulary import KeyValue, Vocabulary

_MAX_BYTES = 256 << 20
_UNIGRAM, _BPE = 1, 2
_IDS = {"unk": (40, 0), "bos": (41, 1), "eos": (42, 2), "pad": (43, -1)}  # field and default


def read_sentencepiece(path: Path) -> Vocabulary:
    """The vocabulary of a tokenizer.model, without additions from other files of Hugging Face."""
    source = shown(path.name)
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise TokenizerError(
                f"{source} has {path.stat().st_size} bytes, too many for a sentencepiece model. Download it again."
            )
        data = path.read_bytes()
    except OSError as error:
        raise TokenizerError(f"{source} cannot be read: {error.strerror}.") from None
    if data.startswith(b"version https://git-lfs"):
        raise TokenizerError(f"{source} is a git-lfs pointer, not the file. Run `git lfs pull` in its folder.")
    try:
        return _read(data, source)
    except (ValueError, IndexError, struct.error, AttributeError, TypeError):
        raise TokenizerError(f"{source} is cut off or not a sentencepiece model. Download it again.") from None


def _read(data: bytes, source: str) -> Vocabulary:
    tokens: list[str] = []
    scores: list[float] = []
    types: list[int] = []
    trainer: dict[int, Any] = {}
    normalizer: dict[int, Any] = {}
    for number, value in _fields(data):
        if number == 1:
            piece = dict(_fields(value))
            tokens.append(bytes(piece[1]).decode("utf-8") if 1 in piece else "")
            scores.append(struct.unpack("<f", piece[2])[0] if 2 in piece else 0.0)
            types.append(TokenType(piece.get(3, TokenType.NORMAL)))
        elif number == 2:
            trainer = dict(_fields(value))
        elif number == 3:
            normalizer = dict(_fields(value))
    if not tokens or TokenType.UNKNOWN not in types or not all(map(math.isfinite, scores)):
        raise ValueError
    kind = trainer.get(3, _UNIGRAM)
    if kind not in (_UNIGRAM, _BPE):
        raise UnsupportedError(f"{source}: sentencepiece models of words or characters are not supported.")
    if not normalizer.get(5, 1):
        raise UnsupportedError(f"{source}: a sentencepiece model that does not escape spaces is not supported.")
    return Vocabulary(
        model="t5" if kind == _UNIGRAM else "llama",
        pre="default",
        source=source,
        tokens=[
            text.replace(SPACE, " ") if type_ == TokenType.USER_DEFINED else text
            for text, type_ in zip(tokens, types, strict=True)
        ],
        types=types,
        scores=scores,
        ids=_ids(trainer, types),
        more=list(_normalization(kind == _UNIGRAM, trainer, normalizer)),
    )


def _ids(trainer: dict[int, Any], types: list[int]) -> dict[str, int]:
    ids = {}
    for name, (number, default) in _IDS.items():
        value = trainer.get(number, default)
        value -= (value >> 63) << 64  # negative numbers are stored in 64 bits
        if 0 <= value < len(types) and (name == "unk") == (types[value] == TokenType.UNKNOWN):
            ids[name] = value
    ids["unk"] = ids.get("unk", types.index(TokenType.UNKNOWN))
    return ids


def _normalization(is_unigram: bool, trainer: dict[int, Any], normalizer: dict[int, Any]) -> Iterator[KeyValue]:
    """Keys for the normalization of text. For BPE models only departures from the loader's defaults are written."""
    add_prefix = bool(normalizer.get(3, 1))
    remove_extra = bool(normalizer.get(4, 1))
    charsmap = bytes(normalizer.get(2, b""))
    if is_unigram or not add_prefix:
        yield "tokenizer.ggml.add_space_prefix", add_prefix, ValueType.BOOL
    if is_unigram or remove_extra:
        yield "tokenizer.ggml.remove_extra_whitespaces", remove_extra, ValueType.BOOL
    if trainer.get(24, 0):
        yield "tokenizer.ggml.treat_whitespace_as_suffix", True, ValueType.BOOL
    if charsmap:
        yield "tokenizer.ggml.precompiled_charsmap", charsmap, ArrayOf(ValueType.UINT8)


def _fields(data: Any) -> Iterator[tuple[int, Any]]:
    """Number and value of each field of a protobuf message: an int, or a memoryview of the bytes. ValueError:
    truncated."""
    view = memoryview(data)
    pos = 0
    while pos < len(view):
        tag, pos = _varint(view, pos)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, pos = _varint(view, pos)
            yield number, value
            continue
        if wire == 2:
            size, pos = _varint(view, pos)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError
        if number == 0 or pos + size > len(view):
            raise ValueError
        yield number, view[pos : pos + size]
        pos += size


def _varint(view: memoryview, pos: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64:
        byte = view[pos]
        pos += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, pos
        shift += 7
    raise ValueError
