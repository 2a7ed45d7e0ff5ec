"""Splitting, merging and editing GGUF files changes only what was asked for."""

import os
from pathlib import Path

import numpy as np
import pytest

from hybrid.quant import rewrite
from hybrid.quant.ggml.errors import HybridError, UsageError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import ArrayOf, GGMLType, ValueType
from hybrid.quant.ggml.writer import GGUFWriter

SHAPES = {"token_embd.weight": (11, 32), "blk.0.a.weight": (3, 64), "blk.0.b": (5,), "output.weight": (11, 32)}
VALUES = {
    "general.name": ("a name", ValueType.STRING),
    "x.u8": (7, ValueType.UINT8),
    "x.i64": (-1, ValueType.INT64),
    "x.f32": (0.5, ValueType.FLOAT32),
    "x.yes": (True, ValueType.BOOL),
    "x.list": ([1, 2, 3], ArrayOf(ValueType.INT16)),
    "x.words": (["a", "b"], ArrayOf(ValueType.STRING)),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    random = np.random.default_rng(3)
    path = tmp_path / "m.gguf"
    with GGUFWriter(path, "llama") as writer:
        for key, (value, kind) in VALUES.items():
            writer.add(key, value, kind)
        for name, shape in SHAPES.items():
            writer.declare(name, shape, GGMLType.Q8_0 if len(shape) > 1 else GGMLType.F32)
        for info in writer.declared:
            writer.write(info.name, random.integers(0, 100, info.nbytes, dtype=np.uint8))
    return path


def test_split_then_merge_is_the_identity(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite, "COPIED_NBYTES", 100)
    seen: list[tuple[int, int]] = []
    report = rewrite.split(file, tmp_path / "p", max_bytes=500, progress=lambda name, done, n: seen.append((done, n)))
    assert [(p.path.name, p.n_tensors) for p in report.parts] == [
        ("p-00001-of-00003.gguf", 1),
        ("p-00002-of-00003.gguf", 2),
        ("p-00003-of-00003.gguf", 1),
    ]
    assert [p.nbytes for p in report.parts] == [p.path.stat().st_size for p in report.parts]
    total = sum(info.nbytes for info in GGUFFile.open(file).tensors.values())
    assert len(seen) > 5 and seen[-1] == (total, total)
    rewrite.merge(report.parts[0].path, tmp_path / "back.gguf")
    assert (tmp_path / "back.gguf").read_bytes() == file.read_bytes()
    # parts can be cut otherwise without merging first
    again = rewrite.split(report.parts[0].path, tmp_path / "again", max_tensors=3, first_without_tensors=True)
    assert [p.n_tensors for p in again.parts] == [0, 3, 1]
    rewrite.merge(again.parts[0].path, tmp_path / "back2.gguf")
    assert (tmp_path / "back2.gguf").read_bytes() == file.read_bytes()


def test_split_and_merge_refuse(file: Path, tmp_path: Path) -> None:
    before = set(tmp_path.iterdir())
    with pytest.raises(
        UsageError, match=r"m\.gguf has 4 tensors in 1\.5 KiB and fits into one part\. Use it unchanged"
    ):
        rewrite.split(file, tmp_path / "p", max_bytes=1 << 20)
    with pytest.raises(UsageError, match=r"m\.gguf is in one file already\. Give the first part"):
        rewrite.merge(file, tmp_path / "back.gguf")
    assert [p.n_tensors for p in rewrite.split(file, tmp_path / "p", max_tensors=3, dry_run=True).parts] == [3, 1]
    assert set(tmp_path.iterdir()) == before
    first = rewrite.split(file, tmp_path / "p", max_tensors=3).parts[0].path
    with pytest.raises(UsageError, match=r"p-00001-of-00002\.gguf is the source itself"):
        rewrite.merge(first, first)
    with pytest.raises(UsageError, match=r"p-00001-of-00002\.gguf is the source itself"):
        rewrite.split(first, tmp_path / "p", max_tensors=3)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("x.u8", "255", 255),
        ("x.u8", "0x10", 16),
        ("x.i64", "-9000000000", -9000000000),
        ("x.f32", "1e-5", 1e-5),
        ("x.yes", "false", False),
        ("general.name", "another, longer", "another, longer"),
        ("x.list", "[-5]", [-5]),
        ("x.words", '["ä", ""]', ["ä", ""]),
    ],
)
def test_a_value_is_set_and_nothing_else(file: Path, key: str, text: str, value: object) -> None:
    before = file.read_bytes()
    dry = rewrite.set_value(file, key, text, dry_run=True)
    assert file.read_bytes() == before
    inode = file.stat().st_ino
    change = rewrite.set_value(file, key, text)
    assert change == dry and change.new == value and change.old == VALUES[key][0]
    assert change.in_place == (file.stat().st_ino == inode) == (key not in ("general.name", "x.list", "x.words"))
    with GGUFFile.open(file) as got:
        stored = got.metadata[key]
        stored = stored.tolist() if hasattr(stored, "tolist") else stored
        assert stored == (float(np.float32(1e-5)) if key == "x.f32" else value)
        assert got.value_types[key] == VALUES[key][1]
        assert list(got.metadata) == ["general.architecture", *VALUES]
        others = {k: got.pair(k) for k in got.metadata if k != key}
        tensors = {name: got.raw(name).tobytes() for name in got.tensors}
    file.write_bytes(before)
    with GGUFFile.open(file) as old:
        assert others == {k: old.pair(k) for k in old.metadata if k != key}
        assert tensors == {name: old.raw(name).tobytes() for name in old.tensors}


@pytest.mark.parametrize(
    ("key", "text", "says"),
    [
        ("x.u9", "1", r"has no key x\.u9; near it are x\.u8"),
        ("x.u8", "256", r"x\.u8 is UINT8: 256 is not such a value\."),
        ("x.u8", "-1", "is UINT8: -1 is not such a value"),
        ("x.u8", "1.5", "is UINT8: 1.5 is not such a value"),
        ("x.f32", "half", "is FLOAT32: half is not such a value"),
        ("x.yes", "1", r"x\.yes is BOOL: 1 is not such a value\. Give true or false\."),
        ("x.list", "1, 2", r"x\.list is ARRAY of INT16: 1, 2 is not such a value\. Give it as JSON"),
        ("x.list", '["1"]', "is ARRAY of INT16"),
        ("x.list", "[true]", "is ARRAY of INT16"),
        ("x.list", "[]", "is ARRAY of INT16"),
        ("x.list", "[40000]", "is ARRAY of INT16"),
        ("x.words", "[1]", "is ARRAY of STRING"),
    ],
)
def test_values_that_are_refused(file: Path, key: str, text: str, says: str) -> None:
    before = file.read_bytes()
    with pytest.raises(UsageError, match=says):
        rewrite.set_value(file, key, text)
    assert file.read_bytes() == before


def test_a_part_can_be_edited_but_not_its_place(file: Path, tmp_path: Path) -> None:
    first, second = (p.path for p in rewrite.split(file, tmp_path / "p", max_tensors=3).parts)
    with pytest.raises(UsageError, match=r"split\.no says how the file is laid out and cannot be set alone"):
        rewrite.set_value(second, "split.no", "0")
    rewrite.set_value(first, "general.name", "in two parts")
    rewrite.merge(first, tmp_path / "back.gguf")
    with GGUFFile.open(tmp_path / "back.gguf") as back:
        assert back.get("general.name") == "in two parts" and len(back.tensors) == 4


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_file_that_cannot_be_written(file: Path) -> None:
    file.chmod(0o400)
    with pytest.raises(HybridError, match=r"cannot be written: Permission denied"):
        rewrite.set_value(file, "x.u8", "1")
