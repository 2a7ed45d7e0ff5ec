"""AliceAI: decays of two shapes, stacked experts, a guessing head that is left out."""

from pathlib import Path

import numpy as np
import pytest
import random_checkpoints
from families import merged
from safetensors.numpy import load_file, save_file

from hybrid.convert.plan import prepare

CONFIG = merged("configs")["alice-ai"]


@pytest.mark.parametrize("shape", [(3,), (1, 1, 3, 1)])
def test_decays_of_both_shapes(shape: tuple[int, ...], tmp_path: Path) -> None:
    folder = random_checkpoints.write(CONFIG, tmp_path)
    source = load_file(folder / "model.safetensors")
    name = "model.layers.0.linear_attn.a_log_bias"
    tensors = {key: x.reshape(shape) if key.endswith("a_log_bias") else x for key, x in source.items()}
    m = "model.layers.1.mlp.experts."
    stacked = {part: np.stack([tensors.pop(f"{m}{e}.{part}_proj.weight") for e in range(5)]) for part in ("gate", "up")}
    tensors[m + "gate_up_proj"] = np.concatenate([stacked["gate"], stacked["up"]], axis=1)
    tensors[m + "down_proj"] = np.stack([tensors.pop(f"{m}{e}.down_proj.weight") for e in range(5)])
    save_file({**tensors, "mtp.fc.weight": np.ones((2, 2), np.float32)}, folder / "model.safetensors")
    prepared = prepare(folder, with_vocabulary=False)
    jobs = {job.planned.name: job for job in prepared.jobs}
    (decays,) = jobs["blk.0.ssm_a"].stored
    np.testing.assert_array_equal(decays.floats(0, 3).reshape(-1), source[name].reshape(-1))
    assert "blk.1.ffn_gate_exps.weight" in jobs and "blk.0.attn_res_score.weight" not in jobs
    assert any("left out" in note and "mtp.fc.weight" in note for note in prepared.plan.notes)
