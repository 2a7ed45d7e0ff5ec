"""Names of a tower's tensors, and files of older converters."""

from pathlib import Path

import numpy as np
from made_towers import Twin, patches_of, tower_file

from hybrid.infer.towers.loading import load_tower
from hybrid.infer.towers.weights import TowerWeights
from hybrid.quant.ggml.split import open_gguf
from hybrid.quant.ggml.types import GGMLType
from hybrid.quant.ggml.writer import GGUFWriter


def test_names(data_dir: Path) -> None:
    gguf = open_gguf(tower_file("smolvlm", data_dir))
    w = TowerWeights(gguf, 28)
    assert "blk.1.attn_output.weight" in w and "v.blk.1.attn_out.weight" in w
    assert "blk.1.attn_qkv.weight" not in w and "mm.model.fc.weight" in w
    assert w.matrix("blk.1.ffn_up.weight", 28, 20).name == "v.blk.1.ffn_up.weight"


def test_feed_forward_parts_with_exchanged_names(data_dir: Path, tmp_path: Path) -> None:
    source = open_gguf(tower_file("smolvlm", data_dir))
    names = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}
    renamed = {}
    for name in source.tensors:
        part = name.split(".")[3] if name.startswith("v.blk.") else ""
        renamed[name.replace(part, names[part]) if part in names else name] = source.f32(name)
    with GGUFWriter(tmp_path / "old.gguf", "clip") as writer:
        for key in source.metadata:
            if key.startswith("clip."):
                writer.add_raw(key, source)
        for name, values in renamed.items():
            writer.declare(name, values.shape, GGMLType.F32)
        for name, values in renamed.items():
            writer.write(name, values)
    pixels = np.random.default_rng(0).standard_normal((24, 24, 3)).astype(np.float32)
    old, new = load_tower(tmp_path / "old.gguf", n_threads=1), load_tower(tower_file("smolvlm", data_dir), n_threads=1)
    rows = [tower.encode(patches_of(tower, pixels), [(6, 6)])[0].rows for tower in (old, new)]
    np.testing.assert_array_equal(*rows)
    assert Twin(tower_file("smolvlm", data_dir)).features(pixels)[0].shape == rows[0].shape
