"""benchmarks/disk.py, with a checkpoint of a few hundred KB."""

import json
from pathlib import Path

import disk
import numpy as np
import pytest

from hybrid.infer.bench.shapes import ModelShape
from hybrid.quant.ggml.errors import UsageError

SHAPE = ModelShape(
    "tiny-jamba", "jamba", 3, 96, 2016, 4096, 1e-6, n_ff=160, n_head=3, n_head_kv=1, head_dim=32, dt_rank=6,
    attn_offset=1, attn_period=3, d_state=5,
)  # fmt: skip


def test_disk_writes_a_checkpoint_that_converts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hybrid.convert import plan

    monkeypatch.setattr(disk, "_SHARD", 200_000)
    folder = tmp_path / "checkpoint"
    disk.write_checkpoint(SHAPE, folder)
    shards = sorted(folder.glob("*.safetensors"))
    assert len(shards) > 1
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    assert sum(path.stat().st_size for path in shards) > 2 * SHAPE.n_params
    header = json.loads(shards[0].read_bytes()[8 : 8 + int.from_bytes(shards[0].read_bytes()[:8], "little")])
    assert header["model.embed_tokens.weight"]["shape"] == [2016, 96]
    assert index["model.embed_tokens.weight"] == shards[0].name
    planned = plan(folder)
    assert {t.name: tuple(t.shape) for t in planned.tensors} == {t.name: t.shape for t in SHAPE.tensors()}


def test_disk_values_are_sane_bf16(tmp_path: Path) -> None:
    disk.write_checkpoint(SHAPE, tmp_path / "c")
    raw = b"".join(path.read_bytes() for path in sorted((tmp_path / "c").glob("*.safetensors")))
    nbytes = int.from_bytes(raw[:8], "little")
    header, data = json.loads(raw[8 : 8 + nbytes]), raw[8 + nbytes :]

    def values(name: str) -> np.ndarray:
        begin, end = header[name]["data_offsets"]
        bits = np.frombuffer(data[begin:end], np.uint16).astype(np.uint32) << 16
        return bits.view(np.float32).reshape(header[name]["shape"])

    assert (values("model.layers.0.input_layernorm.weight") == 1).all()
    assert values("model.layers.0.mamba.in_proj.weight").std() * 96**0.5 == pytest.approx(1, abs=0.05)
    assert values("model.layers.0.mamba.conv1d.weight").shape == (192, 1, 4)
    assert np.isfinite(values("model.layers.0.mamba.dt_proj.bias")).all()


def test_disk_refuses_what_is_no_dense_jamba() -> None:
    with pytest.raises(UsageError, match="--shape mamba-130m: a dense Jamba"):
        disk.run(disk.find_shape("mamba-130m"), None, "auto", 1)
