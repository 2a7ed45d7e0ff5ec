"""Converting and quantizing as functions."""

from pathlib import Path

import pytest
import random_towers

import hybrid
from hybrid.quant.ggml.reader import GGUFFile


def test_files(bundled: Path, gguf: Path, tmp_path: Path) -> None:
    report = hybrid.to_gguf(bundled, tmp_path / "a.gguf")
    assert report.output.read_bytes() == gguf.read_bytes()
    hybrid.quantize(gguf, tmp_path / "b.gguf", "Q8_0")
    hybrid.quantize(bundled, tmp_path / "c.gguf", "Q8_0")
    with hybrid.load(tmp_path / "b.gguf", context=64) as one, hybrid.load(tmp_path / "c.gguf", context=64) as other:
        assert one.complete("A", tokens=8, temperature=0).tokens == other.complete("A", tokens=8, temperature=0).tokens


def test_without_some_layers(gguf: Path, tmp_path: Path) -> None:
    report = hybrid.quantize(gguf, tmp_path / "b.gguf", "Q8_0", prune_layers=[1, 2])
    assert sum(row.name.endswith(".ffn_norm.weight") for row in report.rows) == 6
    with pytest.raises(hybrid.HybridError, match="there is no layer 9 to leave out"):
        hybrid.quantize(gguf, tmp_path / "c.gguf", "Q8_0", prune_layers=[9])


def test_what_cannot_be(gguf: Path, tmp_path: Path) -> None:
    with pytest.raises(hybrid.HybridError, match="Q9"):
        hybrid.quantize(gguf, tmp_path / "b.gguf", "Q9")
    with pytest.raises(hybrid.HybridError):
        hybrid.to_gguf(tmp_path, tmp_path / "b.gguf")
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_with_a_tower(tmp_path: Path, data_dir: Path) -> None:
    folder = random_towers.write("smolvlm", tmp_path / "eyes", data_dir / "checkpoints" / "mamba-bf16")
    hybrid.quantize(folder, tmp_path / "a.gguf", "Q4_0", vision=False)
    assert not (tmp_path / "mmproj-a.gguf").exists()
    hybrid.quantize(folder, tmp_path / "b.gguf", "Q4_0")
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()
    with GGUFFile.open(tmp_path / "mmproj-b.gguf") as file:
        assert file.get("general.architecture") == "clip" and file.get("general.file_type") == 1
