"""The key-value part of a GGUF file: its bounds are checked when the file is opened, values are decoded on request.

A vocabulary is 65 000 to 300 000 strings. Most uses of a file (copying, quantizing, reading one key) never decode them:
walking their lengths is enough to check them.
"""

import mmap
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from .errors import FormatError, shown
from .types import VALUE_CODE, ArrayOf, ValueType

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
SIZES: dict[ValueType, int] = {kind: struct.calcsize("<" + code) for kind, code in VALUE_CODE.items()}


def full_key(arch: str, name: str) -> str:
    """A key with the architecture's prefix, unless the key is common to all architectures, or llama.cpp has no prefix
    there."""
    return name if name.startswith(("general.", "tokenizer.", "hybrid.", "xielu.")) else f"{arch}.{name}"


@dataclass(frozen=True)
class StoredValue:
    """Position of a key-value pair in the file: bytes [start, end), the value (or its first element) at `value`."""

    kind: ValueType | ArrayOf
    start: int
    value: int
    end: int
    count: int


class Cursor:
    """Reads forward through the header; every step is checked against the end of the file."""

    def __init__(self, data: mmap.mmap, where: str) -> None:
        self.data = data
        self.size = len(data)
        self.where = where
        self.pos = 0

    def cut_off(self, what: str, need: int) -> FormatError:
        """The error for a file that ends before `need` more bytes of `what`."""
        return FormatError(
            f"{self.where} is cut off: {what} ends at byte {self.pos + need}, the file has {self.size}. Copy it again."
        )

    def damaged(self, what: str) -> FormatError:
        """The error for invalid contents."""
        return FormatError(f"{self.where} is damaged: {what}. Copy it again.")

    def need(self, nbytes: int, what: str) -> None:
        """FormatError unless `nbytes` bytes follow."""
        if nbytes > self.size - self.pos:
            raise self.cut_off(what, nbytes)

    def u32(self, what: str) -> int:
        """Reads a u32; `what` names it in errors."""
        self.need(4, what)
        value: int = _U32.unpack_from(self.data, self.pos)[0]
        self.pos += 4
        return value

    def u64(self, what: str) -> int:
        """Reads a u64; `what` names it in errors."""
        self.need(8, what)
        value: int = _U64.unpack_from(self.data, self.pos)[0]
        self.pos += 8
        return value

    def count(self, smallest: int, what: str) -> int:
        """Reads a u64 count of things of at least `smallest` bytes each; FormatError if the file cannot hold them."""
        n = self.u64(f"the number of {what}")
        if n * smallest > self.size - self.pos:
            raise self.damaged(f"it says {n} {what}, which do not fit into its {self.size} bytes")
        return n

    def name(self, what: str) -> str:
        """Reads and decodes a length-prefixed UTF-8 string that is a name."""
        n = self.u64(f"the length of {what}")
        self.need(n, what)
        raw = self.data[self.pos : self.pos + n]
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise self.damaged(f"{what} is not UTF-8: {raw[:40]!r}") from None
        self.pos += n
        return text

    def skip_strings(self, count: int, what: str) -> None:
        """Skips `count` length-prefixed strings. The inner loop of opening a file: about 0.2 us per string."""
        unpack, data, pos, last = _U64.unpack_from, self.data, self.pos, self.size - 8
        for i in range(count):
            if pos > last:
                self.pos = min(pos, self.size)
                raise self.cut_off(f"string {i} of {what}", max(pos - self.size, 0) + 8)
            pos += 8 + unpack(data, pos)[0]
        self.pos = min(pos, self.size)
        self.need(pos - self.pos, what)

    def entry(self, index: int) -> tuple[str, StoredValue]:
        """Reads one key-value pair: the key is decoded, the value is skipped."""
        start = self.pos
        key = self.name(f"key {index}")
        what = f"key {shown(key)}"
        kind = self._value_type(what)
        if kind is ValueType.ARRAY:
            element = self._value_type(what)
            if element is ValueType.ARRAY:
                raise self.damaged(f"{what} is an array of arrays, which GGUF readers do not take")
            smallest = 8 if element is ValueType.STRING else SIZES[element]
            count = self.count(smallest, f"elements of {what}")
            value = self.pos
            if element is ValueType.STRING:
                self.skip_strings(count, what)
            else:
                self.pos += count * SIZES[element]
            return key, StoredValue(ArrayOf(element), start, value, self.pos, count)
        value = self.pos
        if kind is ValueType.STRING:
            n = self.u64(what)
            self.need(n, what)
            self.pos += n
        else:
            self.need(SIZES[kind], what)
            self.pos += SIZES[kind]
        return key, StoredValue(kind, start, value, self.pos, 1)

    def _value_type(self, what: str) -> ValueType:
        number = self.u32(what)
        try:
            return ValueType(number)
        except ValueError:
            raise self.damaged(f"{what} has value type {number}, the types are 0 to 12") from None


class StringArray(Sequence[str]):
    """An array of strings in the file. The first access to a string decodes all of them."""

    def __init__(self, data: mmap.mmap, entry: StoredValue, what: str) -> None:
        self._data = data
        self._entry = entry
        self._what = what
        self._strings: list[str] | None = None

    def __len__(self) -> int:
        return self._entry.count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self.tolist()[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tolist())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Sequence) and not isinstance(other, str):
            return len(self) == len(other) and self.tolist() == list(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def tolist(self) -> list[str]:
        """All strings, as a list that must not be changed. FormatError: one is not UTF-8."""
        if self._strings is None:
            self._strings = self._decode()
        return self._strings

    def _decode(self) -> list[str]:
        raw = self._data[self._entry.value : self._entry.end]
        if (together := decoded_together(raw, self._entry.count)) is not None:
            return together
        unpack, pos = _U64.unpack_from, 0
        strings = []
        try:
            for _ in range(self._entry.count):
                (n,) = unpack(raw, pos)
                pos += 8 + n
                strings.append(raw[pos - n : pos].decode("utf-8"))
        except UnicodeDecodeError:
            raise FormatError(f"{self._what}: string {len(strings)} is not UTF-8. Convert the model again.") from None
        return strings


def decoded_together(raw: bytes, count: int) -> list[str] | None:
    """`count` strings, each after its length as u64, decoded together: a vocabulary in a third of the time.

    None for arrays that need a look at every string: with empty ones, lengths from 65536 on, NUL, invalid UTF-8.
    """
    data = np.frombuffer(raw, np.uint8)
    if not count or len(data) < 9:
        return None
    zero = data == 0
    pairs = zero[:-1] & zero[1:]
    six = pairs[:-4] & pairs[2:-2] & pairs[4:]  # six zeros from here on: a length ends with them
    ends = np.flatnonzero(six[:-1] & ~zero[6:]) + 6  # after the zeros
    lengths = data[ends - 8] + (data[ends - 7].astype(np.int64) << 8)
    following = np.append(ends[1:] - 8, len(data))
    if len(ends) != count or ends[0] != 8 or not np.array_equal(ends + lengths, following):
        return None
    kept = np.ones(len(data), bool)
    for i in range(2, 9):  # of each length its last zero stays, and separates the strings
        kept[ends - i] = False
    try:
        strings = data[kept].tobytes().decode("utf-8").split("\0")
    except UnicodeDecodeError:
        return None
    return strings[1:] if len(strings) == count + 1 else None


class Metadata(Mapping[str, Any]):
    """Key -> value, in file order. Values are str, int, float, bool, numpy arrays (numbers, bools) or `StringArray`.

    A repeated key has its last value, as in llama.cpp; `duplicates` lists such keys.
    """

    def __init__(self, data: mmap.mmap, where: str) -> None:
        self._data = data
        self._where = where
        self._decoded: dict[str, Any] = {}
        self.entries: dict[str, StoredValue] = {}
        self.duplicates: list[str] = []

    def append(self, key: str, entry: StoredValue) -> None:
        if key in self.entries:
            self.duplicates.append(key)
        self.entries[key] = entry

    def __getitem__(self, key: str) -> Any:
        if key not in self._decoded:
            self._decoded[key] = self._decode(key, self.entries[key])
        return self._decoded[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, key: object) -> bool:
        return key in self.entries

    def _decode(self, key: str, entry: StoredValue) -> Any:
        what = f"{self._where}: {shown(key)}"
        if isinstance(entry.kind, ArrayOf):
            if entry.kind.element is ValueType.STRING:
                return StringArray(self._data, entry, what)
            if entry.kind.element is ValueType.BOOL:
                self._check_bools(what, entry)
            code = VALUE_CODE[entry.kind.element]
            # A copy: aligned, and it does not keep the file mapped.
            return np.frombuffer(self._data[entry.value : entry.end], dtype="<" + code if code != "?" else bool)
        if entry.kind is ValueType.STRING:
            try:
                return self._data[entry.value + 8 : entry.end].decode("utf-8")
            except UnicodeDecodeError:
                raise FormatError(f"{what} is not UTF-8. Convert the model again.") from None
        if entry.kind is ValueType.BOOL:
            self._check_bools(what, entry)
        return struct.unpack_from("<" + VALUE_CODE[entry.kind], self._data, entry.value)[0]

    def _check_bools(self, what: str, entry: StoredValue) -> None:
        if max(self._data[entry.value : entry.end], default=0) > 1:
            raise FormatError(f"{what} holds a bool that is neither 0 nor 1. Copy the file again.")
