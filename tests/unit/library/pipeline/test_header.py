"""The first facts of a file."""

import struct
from pathlib import Path

import pytest

from hybrid.convert import convert
from hybrid.pipeline import header


def test_of_a_file_and_of_each_beginning_of_it(bundled: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    convert(bundled, path)
    whole = path.read_bytes()
    assert header.read(path) == ("jamba", "BF16")
    for n in (0, 3, 23, 24, 30, 60, 200, 1000):
        path.write_bytes(whole[:n])
        architecture, kind = header.read(path)
        assert architecture in ("", "jamba") and kind in ("", "BF16") and (n > 60 or not kind)


@pytest.mark.parametrize("damaged", [b"", b"GGUF", b"x" * 100, b"GGUF" + b"\xff" * 100, b"GGUF\3\0\0\0" + b"\xff" * 64])
def test_of_what_is_none(damaged: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(damaged)
    assert header.read(path) == ("", "")
    assert header.read(tmp_path) == ("", "") and header.read(tmp_path / "missing") == ("", "")


def _text(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def _late(texts: list[bytes], more: bytes = b"") -> bytes:
    """A header whose type comes after an array of texts and one of numbers."""
    return (
        b"GGUF" + struct.pack("<IQQ", 3, 0, 4)
        + _text(b"general.architecture") + struct.pack("<I", 8) + _text(b"llama")
        + _text(b"tokens") + struct.pack("<IIQ", 9, 8, len(texts)) + b"".join(map(_text, texts)) + more
        + _text(b"scores") + struct.pack("<IIQ", 9, 6, len(texts)) + bytes(4 * len(texts))
        + _text(b"general.file_type") + struct.pack("<II", 4, 7)
    )  # fmt: skip


@pytest.mark.parametrize(
    "texts", [[], [b"a"], [b"ab" * i for i in range(3000)], [b"x" * (1 << 15)] * 100, [b""] * 200_000]
)
def test_a_type_after_the_tokenizer_is_found(texts: list[bytes], tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(_late(texts))
    assert header.read(path) == ("llama", "Q8_0")
    path.write_bytes(_late(texts, struct.pack("<Q", 1 << 63)))  # damaged after the texts
    assert header.read(path) == ("llama", "")
