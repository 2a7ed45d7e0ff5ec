"""Models in parts: written at the right offsets, read as one, refused if a part is missing or foreign."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hybrid.quant.ggml.errors import FormatError, HybridError, UsageError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.split import SplitWriter, is_later_part, open_gguf, part_path
from hybrid.quant.ggml.types import ArrayOf, GGMLType, ValueType
from hybrid.quant.ggml.writer import GGUFWriter

ROWS = {"a.weight": 3, "b.weight": 5, "c.weight": 1, "d.weight": 7}
WIDTH = 12


def values(name: str) -> np.ndarray:
    return np.arange(ROWS[name] * WIDTH, dtype=np.float32).reshape(-1, WIDTH) + ord(name[0])


def write(path: Path, names: list[str] | None = None, **limits: int) -> SplitWriter:
    writer = SplitWriter(path, "llama", **limits)
    writer.add("general.name", "four matrices")
    writer.add("llama.list", [1, 2, 3])
    for name in names or ROWS:
        writer.declare(name, values(name).shape, GGMLType.F32)
    with writer:
        for name in names or ROWS:
            writer.write(name, iter(values(name)))
    return writer


def test_a_part_has_no_more_than_it_may(tmp_path: Path) -> None:
    """Sizes include padding to the alignment: 160, 256, 64 and 352 bytes."""
    size = {name: -(-4 * WIDTH * n // 32) * 32 for name, n in ROWS.items()}
    assert list(size.values()) == [160, 256, 64, 352]
    for limit, expected in ((415, [1, 2, 1]), (416, [2, 2]), (480, [3, 1]), (10, [1, 1, 1, 1]), (831, [3, 1])):
        folder = tmp_path / str(limit)
        folder.mkdir()
        writer = write(folder / "m.gguf", max_bytes=limit)
        assert [p.name for p in writer.paths] == [
            f"m-{i + 1:05}-of-{len(expected):05}.gguf" for i in range(len(expected))
        ]
        assert sorted(folder.iterdir()) == writer.paths
        counts = []
        for i, path in enumerate(writer.paths):
            with GGUFFile.open(path) as part:
                counts.append(len(part.tensors))
                keys = (part.get("split.no"), part.get("split.tensors.count"), part.get("split.count"))
                assert keys == (i, 4, len(expected))
                assert part.value_types["split.no"] is part.value_types["split.count"] is ValueType.UINT16
                assert part.value_types["split.tensors.count"] is ValueType.INT32
                assert ("general.name" in part.metadata) == (i == 0)
        assert counts == expected, limit
        assert writer.nbytes == sum(path.stat().st_size for path in writer.paths)


@pytest.mark.parametrize("limits", [{}, {"max_bytes": 832}, {"max_tensors": 4}])
def test_one_part_is_an_ordinary_file(tmp_path: Path, limits: dict[str, int]) -> None:
    writer = write(tmp_path / "m.gguf", **limits)
    assert writer.paths == [tmp_path / "m.gguf"]
    with GGUFWriter(tmp_path / "plain.gguf", "llama") as plain:
        plain.add("general.name", "four matrices")
        plain.add("llama.list", [1, 2, 3])
        for name in ROWS:
            plain.declare(name, values(name).shape, GGMLType.F32)
        for name in ROWS:
            plain.write(name, values(name))
    assert (tmp_path / "m.gguf").read_bytes() == (tmp_path / "plain.gguf").read_bytes()


def test_parts_are_read_as_one_file(tmp_path: Path) -> None:
    parts = write(tmp_path / "m.gguf", max_tensors=3)
    whole = write(tmp_path / "whole.gguf")
    with open_gguf(parts.paths[0]) as got, open_gguf(whole.paths[0]) as want:
        assert [type(f).__name__ for f in (got, want)] == ["SplitFile", "GGUFFile"]
        assert list(got.tensors) == list(want.tensors)
        assert (got.nbytes, want.nbytes) == (parts.nbytes, whole.nbytes)
        assert got.get("general.name") == "four matrices" and got.pair("llama.list") == want.pair("llama.list")
        assert got.value_types["llama.list"] == ArrayOf(ValueType.INT32)
        assert [len(part.tensors) for part in got.parts] == [3, 1]
        for name in ROWS:
            np.testing.assert_array_equal(got.f32(name), values(name))
            assert got.info(name).shape == want.info(name).shape
            got.release(name)
            np.testing.assert_array_equal(got.raw(name), want.raw(name))
        with pytest.raises(FormatError, match=r"m-00001-of-00002\.gguf has no tensor e\.weight"):
            got.raw("e.weight")


def test_a_first_part_without_tensors(tmp_path: Path) -> None:
    writer = SplitWriter(tmp_path / "m", None)
    writer.cut(empty=True)
    writer.declare("a.weight", (2, 4), GGMLType.F32)
    writer.cut()
    with writer:
        writer.write("a.weight", np.ones((2, 4), np.float32))
    assert [(path.name, n) for path, n, _ in writer.made_of()] == [
        ("m-00001-of-00002.gguf", 0),
        ("m-00002-of-00002.gguf", 1),
    ]
    with open_gguf(writer.paths[0]) as file:
        np.testing.assert_array_equal(file.f32("a.weight"), 1)


def test_names() -> None:
    assert part_path(Path("x/m.gguf"), 1, 12) == Path("x/m-00002-of-00012.gguf")
    assert part_path(Path("m"), 0, 2) == part_path(Path("m-00007-of-00009.gguf"), 0, 2) == Path("m-00001-of-00002.gguf")
    assert part_path(Path("m-1.5b"), 0, 2).name == "m-1.5b-00001-of-00002.gguf"
    assert is_later_part(Path("a/m-00002-of-00002.gguf"))
    assert not is_later_part(Path("m-00001-of-00002.gguf")) and not is_later_part(Path("m-2.gguf"))


def test_what_does_not_belong_together(tmp_path: Path) -> None:
    first, second = write(tmp_path / "m.gguf", max_tensors=2).paths
    with pytest.raises(
        UsageError, match=r"m-00002-of-00002\.gguf is part 2 of 2 of a model\. Give the first, .*m-00001"
    ):
        open_gguf(second)
    renamed = tmp_path / "renamed.gguf"
    renamed.write_bytes(first.read_bytes())
    with pytest.raises(
        UsageError, match=r"renamed\.gguf is one of 2 parts of a model\. Give the first, named NAME-00001"
    ):
        open_gguf(renamed)
    kept = second.read_bytes()
    second.unlink()
    with pytest.raises(
        UsageError, match=r"m-00002-of-00002\.gguf is missing: m-00001-of-00002\.gguf is the first of 2"
    ):
        open_gguf(first)
    second.write_bytes(first.read_bytes())
    with pytest.raises(
        FormatError, match=r"m-00002.* is not part 2 of 2: its metadata say part 1 of 2\. Copy it again"
    ):
        open_gguf(first)
    second.write_bytes(write(tmp_path / "other.gguf").paths[0].read_bytes())
    with pytest.raises(FormatError, match=r"is not part 2 of 2: its metadata say no part of anything"):
        open_gguf(first)
    second.write_bytes(kept[: len(kept) // 2])
    with pytest.raises(FormatError, match=r"m-00002-of-00002\.gguf is cut off"):
        open_gguf(first)


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["a.weight", "b.weight", "a.weight", "d.weight"], r"tensor a\.weight is also in another part\."),
        (["a.weight", "b.weight", "d.weight"], r"its 2 parts hold 3 tensors, split\.tensors\.count says 4\."),
    ],
)
def test_parts_of_two_models(tmp_path: Path, names: list[str], says: str) -> None:
    first = write(tmp_path / "m.gguf", max_tensors=2).paths[0]
    for i, group in enumerate((names[:2], names[2:])):
        with GGUFWriter(tmp_path / f"m-0000{i + 1}-of-00002.gguf", None) as part:
            part.add("split.no", i, ValueType.UINT16)
            part.add("split.count", 2, ValueType.UINT16)
            part.add("split.tensors.count", 4, ValueType.INT32)
            for name in group:
                part.declare(name, values(name).shape, GGMLType.F32)
            for name in group:
                part.write(name, values(name))
    with pytest.raises(FormatError, match=says):
        open_gguf(first)


@pytest.mark.parametrize("count", ["three", True, 70000])
def test_a_count_that_is_none(tmp_path: Path, count: object) -> None:
    with GGUFWriter(tmp_path / "m-00001-of-00003.gguf", "llama") as writer:
        writer.add("split.count", count)
        writer.declare("a", (1,), GGMLType.F32)
        writer.write("a", bytes(4))
    with pytest.raises(FormatError, match=r"split\.count is .*, no number of parts"):
        open_gguf(tmp_path / "m-00001-of-00003.gguf")


@pytest.mark.parametrize("stop_at", ["a.weight", "d.weight"])
@pytest.mark.parametrize("failure", [KeyboardInterrupt, FormatError])
def test_a_failure_leaves_no_part(tmp_path: Path, stop_at: str, failure: type[BaseException]) -> None:
    def broken(name: str) -> Iterator[np.ndarray]:
        if name == stop_at:
            raise failure("now")
        yield values(name)

    writer = SplitWriter(tmp_path / "m.gguf", "llama", max_tensors=1)
    for name in ROWS:
        writer.declare(name, values(name).shape, GGMLType.F32)
    with pytest.raises(failure), writer:
        for name in ROWS:
            writer.write(name, broken(name))
    assert list(tmp_path.iterdir()) == []


def test_a_failure_at_the_last_moment_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third of four renames fails."""
    done: list[str] = []
    rename = Path.replace

    def replace(self: Path, target: Path) -> Path:
        done.append(Path(target).name)
        if len(done) == 3:
            raise PermissionError(13, os.strerror(13))
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(HybridError, match=r"m-00003-of-00004\.gguf cannot be written: Permission denied"):
        write(tmp_path / "m.gguf", max_tensors=1)
    assert len(done) == 3 and list(tmp_path.iterdir()) == []


def test_an_interrupt_after_the_last_rename_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(folder: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hybrid.quant.ggml.replacing._sync_folder", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "m.gguf", max_tensors=1)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_the_way_is_told_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "m-00004-of-00004.gguf").mkdir()
    with pytest.raises(UsageError, match=r"m-00004-of-00004\.gguf is not a regular file"):
        write(tmp_path / "m.gguf", max_tensors=1)
    assert [path.name for path in tmp_path.iterdir()] == ["m-00004-of-00004.gguf"]
