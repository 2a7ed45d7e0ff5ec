"""What latent attention keeps per token."""

from pathlib import Path

import numpy as np
import pytest
import tiny_models

from hybrid.infer import LoadedModel
from hybrid.infer.kernels.attention.kv import CACHE_TYPES
from hybrid.infer.layers.latent_attention import LatentAttention
from hybrid.infer.memory.state_file import read_state, write_state


@pytest.mark.parametrize("kind", ["f16", "f32"])
def test_states_with_values_beside_the_keys_are_read(kind: str, tmp_path: Path) -> None:
    """Earlier versions wrote the latent vectors twice."""
    path = tiny_models.kimi().write(tmp_path / "kimi.gguf")
    with LoadedModel.load(path, n_threads=1, n_ctx=64, kv_type=kind) as model:
        seq = model.sequence()
        seq.prefill([1, 2, 3, 4, 5])
        seq.save(tmp_path / "new.state")
        with read_state(tmp_path / "new.state") as state:
            names = [name for name in state if name.startswith("blk.1.")]
            assert names == ["blk.1.k"]
            arrays = [(name, state[name]) for name in state]
            arrays.append(("blk.1.v", state["blk.1.k"][..., 4:]))
            write_state(tmp_path / "old.state", state.header, arrays)
        want = seq.decode(6)
        for name in ("new.state", "old.state"):
            again = model.restore(tmp_path / name, seq)
            assert np.array_equal(again.decode(6), want), name


def test_a_token_takes_one_latent_vector_and_one_rotated_key() -> None:
    (spec,) = LatentAttention(3, 96, 6, 20, 8, 24, 40, 1e-6).memory()
    assert (spec.n_kv, spec.d_head, spec.d_value, spec.latent) == (1, 48, 40, True)
    assert [spec.bytes_per_token(CACHE_TYPES[kind]) for kind in ("f32", "f16", "q8_0")] == [192, 96, 48 + 2 * 2]
