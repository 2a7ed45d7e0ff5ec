"""Intern-S2-Mobius as it is published: parts for pictures, and banks whose experts are stacked."""

import json
from pathlib import Path

import numpy as np
import random_checkpoints
from families import merged
from safetensors.numpy import load_file, save_file

from hybrid.convert.plan import PreparedConversion, prepare

CONFIG = merged("configs")["interns2-mobius"]


def tensors_of(prepared: PreparedConversion) -> dict[str, np.ndarray]:
    return {
        job.planned.name: np.concatenate([stored.floats(0, stored.size).reshape(-1) for stored in job.stored])
        for job in prepared.jobs
        if job.stored
    }


def test_published_names(tmp_path: Path) -> None:
    plain = random_checkpoints.write(CONFIG, tmp_path / "plain")
    source = load_file(plain / "model.safetensors")
    folder = tmp_path / "published"
    folder.mkdir()
    text = {key: value for key, value in random_checkpoints.complete(CONFIG).items() if key != "architectures"}
    config = {"architectures": CONFIG["architectures"], "text_config": text, "vision_config": {}}
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {
        name.replace("model.", "model.language_model.", 1): x for name, x in source.items() if "experts." not in name
    }
    for bank in range(2):
        hf, to = (f"{prefix}meta_mlp.{bank}.experts." for prefix in ("model.", "model.language_model."))
        gate, up, down = (
            np.stack([source[f"{hf}{e}.{part}_proj.weight"] for e in range(5)]) for part in ("gate", "up", "down")
        )
        tensors[to + "gate_up_proj"] = np.concatenate([gate, up], axis=1)
        tensors[to + "down_proj"] = down
    tensors |= {"model.visual.patch.weight": np.ones((3, 3), np.float32), "mtp.norm.weight": np.ones(3, np.float32)}
    save_file(tensors, folder / "model.safetensors")
    published = prepare(folder, with_vocabulary=False)
    found, expected = tensors_of(published), tensors_of(prepare(plain, with_vocabulary=False))
    assert found.keys() == expected.keys()
    assert "blk.1.ffn_up_exps.weight" in found and "blk.2.ffn_up_exps.weight" not in found
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)
    assert any("left out" in note and "mtp.norm.weight" in note for note in published.plan.notes)
