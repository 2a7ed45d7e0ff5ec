"""The first facts of a file."""

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
