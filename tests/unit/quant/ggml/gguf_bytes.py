"""GGUF files built byte by byte, independently of our writer, so that each field can be made wrong."""

import struct
from dataclasses import dataclass, field
from typing import Any

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)


def string(text: str | bytes) -> bytes:
    raw = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(raw)) + raw


def pair(key: str | bytes, kind: int, value: bytes) -> bytes:
    return string(key) + struct.pack("<I", kind) + value


def array(element: int, values: list[bytes], count: int | None = None) -> bytes:
    return struct.pack("<IQ", element, len(values) if count is None else count) + b"".join(values)


def info(name: str | bytes, dims: list[int], kind: int, offset: int, n_dims: int | None = None) -> bytes:
    n = len(dims) if n_dims is None else n_dims
    return string(name) + struct.pack(f"<I{len(dims)}QIQ", n, *dims, kind, offset)


def default_key_values() -> list[bytes]:
    return [
        pair("general.architecture", STR, string("jamba")),
        pair("jamba.block_count", U32, struct.pack("<I", 3)),
        pair("tokenizer.ggml.tokens", ARR, array(STR, [string("a"), string("bc"), string("é")])),
        pair("tokenizer.ggml.scores", ARR, array(F32, [struct.pack("<f", x) for x in (0.5, -1.0, 2.0)])),
    ]


def default_infos() -> list[bytes]:
    """Dims fastest first: f32 [3, 5] at 0 (60 bytes), q8_0 [2, 32] at 64 (68 bytes), f16 [7] at 160 (14 bytes)."""
    return [info("a.weight", [5, 3], 0, 0), info("b.weight", [32, 2], 8, 64), info("c.weight", [7], 1, 160)]


@dataclass
class GGUF:
    """A small sound file, unless a field says otherwise."""

    magic: bytes = b"GGUF"
    version: int = 3
    key_values: list[bytes] = field(default_factory=default_key_values)
    infos: list[bytes] = field(default_factory=default_infos)
    n_key_values: int | None = None
    n_tensors: int | None = None
    alignment: int = 32
    data: bytes = bytes(range(174))

    def __bytes__(self) -> bytes:
        n_tensors = len(self.infos) if self.n_tensors is None else self.n_tensors
        n_key_values = len(self.key_values) if self.n_key_values is None else self.n_key_values
        head = self.magic + struct.pack("<IQQ", self.version, n_tensors, n_key_values)
        head += b"".join(self.key_values) + b"".join(self.infos)
        return head + bytes(-len(head) % self.alignment) + self.data


def changed(**fields: Any) -> bytes:
    return bytes(GGUF(**fields))
