"""Importance matrices: written files are read, sums are added, incompatible ones are refused."""

import struct
from pathlib import Path

import numpy as np
import pytest

from hybrid.quant import Imatrix, InputSums
from hybrid.quant.ggml.errors import FormatError, HybridError, Remedy, UsageError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import GGMLType
from hybrid.quant.ggml.writer import GGUFWriter


def imatrix(seed: int = 1) -> Imatrix:
    rng = np.random.default_rng(seed)
    entries = {
        "blk.0.ssm_in.weight": InputSums(rng.random((1, 5), np.float32), np.array([64], np.float32)),
        "blk.1.ffn_up_exps.weight": InputSums(rng.random((3, 7), np.float32), np.array([10, 0, 54], np.float32)),
    }
    return Imatrix(entries, ["a.txt"], 4, 128)


def assert_same(a: Imatrix, b: Imatrix) -> None:
    assert a.entries.keys() == b.entries.keys()
    for name, entry in a.entries.items():
        np.testing.assert_array_equal(entry.sums, b.entries[name].sums)
        np.testing.assert_array_equal(entry.counts, b.entries[name].counts)
    assert (a.datasets, a.chunk_count, a.chunk_size) == (b.datasets, b.chunk_count, b.chunk_size)


def test_write_then_read(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    imatrix().write(path)
    assert_same(Imatrix.read(path), imatrix())
    with GGUFFile.open(path) as f:
        assert f.metadata["general.type"] == "imatrix" and list(f.metadata["imatrix.datasets"]) == ["a.txt"]
        assert f.tensors["blk.1.ffn_up_exps.weight.in_sum2"].shape == (3, 7)
        assert f.tensors["blk.1.ffn_up_exps.weight.counts"].shape == (3, 1)


def test_importance_is_the_mean_square() -> None:
    entry = imatrix().entries["blk.1.ffn_up_exps.weight"]
    importance = entry.importance()
    np.testing.assert_allclose(importance[0], entry.sums[0] / 10)
    assert importance[1].tolist() == [1] * 7, "an expert without inputs counts evenly"
    assert importance.dtype == np.float32


def test_merge_wants_one_model() -> None:
    """Files with different matrices are refused, except for experts, which may have had no tokens."""
    entry = InputSums(np.ones((1, 4), np.float32), np.ones(1, np.float32))
    first = Imatrix({"blk.0.ssm_in.weight": entry, "blk.1.ffn_up_exps.weight": entry})
    with pytest.raises(
        FormatError, match=r"another model than the others: it has blk.1.ssm_in.weight and not blk.0.ssm"
    ):
        first.merge(Imatrix({"blk.1.ssm_in.weight": entry}))
    first.merge(Imatrix({"blk.0.ssm_in.weight": entry, "blk.2.ffn_up_exps.weight": entry}))
    first.merge(Imatrix({"blk.0.ssm_in.weight": entry}))
    assert len(first.entries) == 3 and first.entries["blk.0.ssm_in.weight"].counts.item() == 3


def test_merge_adds() -> None:
    a, b = imatrix(1), imatrix(2)
    b.datasets = ["b.txt", "a.txt"]
    b.entries["more"] = InputSums(np.ones((1, 2), np.float32), np.ones(1, np.float32))
    a.merge(b)
    name = "blk.0.ssm_in.weight"
    np.testing.assert_array_equal(a.entries[name].sums, imatrix(1).entries[name].sums + imatrix(2).entries[name].sums)
    assert a.entries[name].counts.tolist() == [128]
    assert (a.chunk_count, a.chunk_size, a.datasets) == (8, 128, ["a.txt", "b.txt"])
    a.entries["more"].sums[:] = 0
    assert b.entries["more"].sums.all(), "merging copies"
    b.entries[name] = InputSums(np.ones((1, 6), np.float32), np.ones(1, np.float32))
    with pytest.raises(FormatError, match=r"blk\.0\.ssm_in\.weight has 1 x 6 sums where the others have 1 x 5\. Merge"):
        a.merge(b)


def test_chosen() -> None:
    assert list(imatrix().chosen(include=["ssm_"]).entries) == ["blk.0.ssm_in.weight"]
    assert list(imatrix().chosen(exclude=["ssm_"]).entries) == ["blk.1.ffn_up_exps.weight"]
    assert len(imatrix().chosen().entries) == 2
    with pytest.raises(UsageError, match=r"no matrix of it is included and not excluded") as refused:
        imatrix().chosen(include=["attn"])
    assert refused.value.remedy is Remedy.IMATRIX_PATTERNS


def test_what_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    with GGUFWriter(path, "jamba") as w:
        w.add("general.name", "x")
    with pytest.raises(FormatError, match=r"x\.gguf is not an importance matrix: general\.type is not imatrix\.$"):
        Imatrix.read(path)
    Imatrix(datasets=["a"]).write(path)
    with pytest.raises(FormatError, match=r"x\.gguf holds no importance of any tensor"):
        Imatrix.read(path)
    for value in (np.nan, np.inf, -1):
        bad = imatrix()
        bad.entries["blk.0.ssm_in.weight"].sums[0, 2] = value
        bad.write(path)
        with pytest.raises(FormatError, match=r"not all sums of blk\.0\.ssm_in\.weight are finite and positive\."):
            Imatrix.read(path)
    with GGUFWriter(path, None) as w:
        w.add("general.type", "imatrix")
        w.declare("a.in_sum2", (5,), GGMLType.F32)
        w.declare("a.counts", (2,), GGMLType.F32)
        w.write("a.in_sum2", np.ones(5, np.float32))
        w.write("a.counts", np.ones(2, np.float32))
    with pytest.raises(FormatError, match=r"x\.gguf: a has 5 sums for 2 counts\. Copy it again\."):
        Imatrix.read(path)


def legacy_bytes(chunks: bool = True) -> bytes:
    """A .dat file of llama-imatrix: 2 chunks, two matrices, the second of three experts."""
    parts = [struct.pack("<i", 2)]
    for name, calls, values in (("blk.0.ssm_in.weight", 2, range(5)), ("blk.1.ffn_up_exps.weight", 1, range(21))):
        parts += [struct.pack("<i", len(name)), name.encode(), struct.pack("<ii", calls, len(values))]
        parts.append(np.array(values, "<f4").tobytes())
    return b"".join(parts) + (struct.pack("<ii", 2, 5) + b"a.txt" if chunks else b"")


def test_legacy_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "x.dat"
    path.write_bytes(legacy_bytes())
    read = Imatrix.read(path)
    assert (read.datasets, read.chunk_count, read.chunk_size) == (["a.txt"], 2, 512)
    np.testing.assert_array_equal(read.entries["blk.0.ssm_in.weight"].importance(), [[0, 0.5, 1, 1.5, 2]])
    shapes = {"blk.0.ssm_in.weight": (9, 5), "blk.1.ffn_up_exps.weight": (3, 11, 7), "other": (2, 2)}
    read.check(shapes)
    np.testing.assert_array_equal(
        read.entries["blk.1.ffn_up_exps.weight"].importance(), np.arange(21, dtype=np.float32).reshape(3, 7)
    )
    with pytest.raises(
        UsageError, match=r"blk\.1\.ffn_up_exps\.weight has 3 x 7 sums, this model needs 2 x 7\. Collect"
    ):
        read.check({**shapes, "blk.1.ffn_up_exps.weight": (2, 11, 7)})
    path.write_bytes(legacy_bytes(chunks=False))
    assert Imatrix.read(path).chunk_count == 0


def test_legacy_files_are_written(tmp_path: Path) -> None:
    """Importance is kept except for rounding; unused experts count evenly."""
    path = tmp_path / "x.dat"
    before = imatrix()
    before.write(path)
    read = Imatrix.read(path)
    read.check({"blk.0.ssm_in.weight": (9, 5), "blk.1.ffn_up_exps.weight": (3, 11, 7)})
    for name, entry in before.entries.items():
        np.testing.assert_allclose(read.entries[name].importance(), entry.importance(), rtol=3e-7)
    assert (read.chunk_count, read.datasets) == (4, ["a.txt"])
    assert [p.name for p in tmp_path.iterdir()] == ["x.dat"]
    with pytest.raises(HybridError, match=r"none/x\.dat cannot be written: No such file or directory\. Give another"):
        before.write(tmp_path / "none" / "x.dat")


def test_merging_with_a_legacy_file(tmp_path: Path) -> None:
    path = tmp_path / "x.dat"
    path.write_bytes(legacy_bytes())
    name = "blk.1.ffn_up_exps.weight"
    for first, second in ((imatrix(), Imatrix.read(path)), (Imatrix.read(path), imatrix())):
        first.merge(second)
        assert first.entries[name].sums.shape == (3, 7)
        expected = imatrix().entries[name].sums + 512 * np.arange(21, dtype=np.float32).reshape(3, 7)
        np.testing.assert_allclose(first.entries[name].sums, expected)
        np.testing.assert_array_equal(first.entries[name].counts, [522, 512, 566])


@pytest.mark.parametrize("cut", [1, 3, 6, 20, 40, 70, -1])
def test_damaged_legacy_files(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "x.dat"
    path.write_bytes(legacy_bytes()[:cut])
    with pytest.raises(FormatError, match=r"x\.dat is not an importance matrix \(neither GGUF nor the \.dat"):
        Imatrix.read(path)


def test_legacy_values_that_cannot_be(tmp_path: Path) -> None:
    path = tmp_path / "x.dat"
    raw = bytearray(legacy_bytes())
    raw[35:39] = np.array([np.nan], "<f4").tobytes()
    path.write_bytes(raw)
    with pytest.raises(FormatError, match=r"x\.dat: not all values of blk\.0\.ssm_in\.weight are finite and positive"):
        Imatrix.read(path)
