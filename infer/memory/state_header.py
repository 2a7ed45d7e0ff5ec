"""The header of a state file, written as JSON and read with every value checked."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from hybrid.quant.ggml.errors import Remedy, StateError
from hybrid.quant.ggml.installed import installed_version

VERSION = 3  # the latest: keys and values in a basis of their own, or in types that older versions do not have
MOVED_VERSION = 2  # with moved tokens
PLAIN_VERSION = 1  # all versions of hybrid read it
ALIGNMENT = 64  # bytes, for every array and the end of the header
# A header holds names and an application's small extras. The limits only keep a damaged length from being believed.
MAX_HEADER = 256 << 20
_MAX_ARRAYS = 1 << 20
_MAX_DIMS = 8

DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(code)
    for name, code in {
        "u8": "|u1", "i8": "|i1", "u16": "<u2", "i16": "<i2", "u32": "<u4", "i32": "<i4", "u64": "<u8", "i64": "<i8",
        "f16": "<f2", "f32": "<f4", "f64": "<f8",
    }.items()
}  # fmt: skip
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class ArrayEntry:
    """The location of one array. `offset` is in bytes from the start of the data, a multiple of 64."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    crc32: int


@dataclass(frozen=True)
class StateHeader:
    """The facts about a state file. `write_state` fills in `arrays` and `library`."""

    fingerprint: str
    model: str
    """Name and file type of the model for people, as in 'granite-4.0-h-tiny Q4_K'."""
    n_tokens: int
    extra: Mapping[str, Any] = field(default_factory=dict)
    """JSON values that the caller wants back: sampler and RNG state, chat history."""
    cache: Sequence[Mapping[str, Any]] = ()
    """The prompt cache in the file: see cache_file.py. Files without a cache have no such list."""
    computed: int | None = None
    """`HybridMemory.computed`; None: all tokens."""
    keys_values: Mapping[str, Any] | None = None
    """`AttentionMemory.described`. None: f32, f16 or q8_0 in the model's own basis."""
    library: str = ""
    arrays: tuple[ArrayEntry, ...] = ()

    @property
    def version(self) -> int:
        """The oldest format version that can express this header."""
        if self.keys_values is not None:
            return VERSION
        return PLAIN_VERSION if self.computed is None else MOVED_VERSION

    def check_model(self, fingerprint: str, model: str, path: Path) -> None:
        """Raise StateError unless the state belongs to the model with this fingerprint."""
        if self.fingerprint != fingerprint:
            raise StateError(
                f"{path.name} was saved by '{self.model}', not by this model ('{model}').",
                remedy=Remedy.WITHOUT_STATE,
            )


def encode_header(header: StateHeader, arrays: Sequence[ArrayEntry]) -> bytes:
    """The JSON object of a header, for `parse_header`."""
    return json.dumps(
        {
            "library": f"hybrid-lm {installed_version('hybrid-lm')}",
            "model": {"fingerprint": header.fingerprint, "description": header.model},
            "n_tokens": header.n_tokens,
            "extra": dict(header.extra),
            **({"cache": list(header.cache)} if header.cache else {}),
            **({"computed": header.computed} if header.computed is not None else {}),
            **({"keys_values": dict(header.keys_values)} if header.keys_values is not None else {}),
            "arrays": [vars(entry) for entry in arrays],
        },
        ensure_ascii=False,
        allow_nan=False,
        separators=(",", ":"),
    ).encode()


class HeaderError(Exception):
    """A fault of a header, without the file's name."""


def parse_header(text: bytes) -> tuple[StateHeader, int]:
    """The checked header, and the size in bytes of its arrays. Raises HeaderError."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        raise HeaderError("its header is not JSON") from None
    header = _parse(values)
    return header, _check_layout(header.arrays)


def _parse(values: object) -> StateHeader:
    top = _Fields(values, "header")
    model = _Fields(top.get("model", dict), "model")
    entries = []
    listed = top.get("arrays", list)
    if len(listed) > _MAX_ARRAYS:
        raise HeaderError(f"its header lists {len(listed)} arrays, at most {_MAX_ARRAYS} are allowed")
    for i, item in enumerate(listed):
        array = _Fields(item, f"arrays[{i}]")
        shape = array.get("shape", list)
        if len(shape) > _MAX_DIMS or not all(type(n) is int and n >= 0 for n in shape):
            raise HeaderError(f"arrays[{i}]: shape {shape!r:.80} is not a list of up to {_MAX_DIMS} sizes")
        entries.append(
            ArrayEntry(
                array.text("name"), array.text("dtype"), tuple(shape), array.count("offset"), array.count("nbytes"),
                array.count("crc32"),
            )
        )  # fmt: skip
    n_tokens = top.count("n_tokens")
    computed = top.count("computed") if "computed" in top else None
    if computed is not None and computed > n_tokens:
        raise HeaderError(f"computed of its header is {computed}, more than its {n_tokens} tokens")
    return StateHeader(
        fingerprint=model.text("fingerprint"),
        model=model.text("description"),
        n_tokens=n_tokens,
        extra=top.get("extra", dict),
        cache=top.get("cache", list) if "cache" in top else (),
        computed=computed,
        keys_values=top.get("keys_values", dict) if "keys_values" in top else None,
        library=top.text("library"),
        arrays=tuple(entries),
    )


class _Fields:
    """Reads members of a JSON object by name and type."""

    def __init__(self, values: object, where: str):
        if not isinstance(values, dict):
            raise HeaderError(f"its {where} is not a JSON object")
        self._values = values
        self._where = where

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str, kind: type) -> Any:
        value = self._values.get(name)
        if type(value) is not kind:
            stated = "missing" if name not in self._values else f"{value!r:.40}"
            raise HeaderError(f"{name} of its {self._where} is {stated}, expected {kind.__name__}")
        return value

    def text(self, name: str) -> str:
        """A short printable string, since it may become part of a one-line error."""
        value: str = self.get(name, str)
        if len(value) > 500 or not value.isprintable():
            raise HeaderError(f"{name} of its {self._where} is not a short printable text: {value[:40]!r}")
        return value

    def count(self, name: str) -> int:
        value: int = self.get(name, int)
        if value < 0:
            raise HeaderError(f"{name} of its {self._where} is {value}, less than 0")
        return value


def _check_layout(entries: tuple[ArrayEntry, ...]) -> int:
    """The data's size. Raises HeaderError unless the arrays follow each other without a gap or overlap."""
    end = 0
    seen: set[str] = set()
    for entry in entries:
        if entry.name in seen:
            raise HeaderError(f"array '{entry.name}' is listed twice")
        seen.add(entry.name)
        if entry.dtype not in DTYPES:
            raise HeaderError(f"array '{entry.name}' has dtype '{entry.dtype}', known: {', '.join(DTYPES)}")
        expected = prod(entry.shape) * DTYPES[entry.dtype].itemsize
        if entry.nbytes != expected:
            raise HeaderError(f"array '{entry.name}' claims {entry.nbytes} bytes, its shape makes {expected}")
        if entry.offset != end:
            raise HeaderError(f"array '{entry.name}' starts at byte {entry.offset}, expected {end}")
        end += padded(entry.nbytes)
    return end


def padded(nbytes: int) -> int:
    """`nbytes` rounded up to a multiple of ALIGNMENT."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
