"""What latent attention keeps per token."""

from pathlib import Path

import numpy as np
import pytest
import tiny_models

from hybrid.infer import LoadedModel
from hybrid.infer.kernels.attention.kv import CACHE_TYPES
from hybrid.infer.layers.latent_attention import LatentAttention
from hybrid.infer.loading.weights import Weights
from hybrid.infer.memory.state_file import read_state, write_state
from hybrid.infer.program.operands import Weight
from hybrid.quant.ggml import formats
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import GGMLType


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


@pytest.mark.parametrize(
    ("stored", "rank", "kind"),
    [("F32", 37, "F32"), ("F16", 37, "F16"), ("BF16", 37, "BF16"), ("Q8_0", 64, "F32"), ("Q4_0", 32, "F32")],
)
def test_matrices_of_keys_and_values_from_one(stored: str, rank: int, kind: str, tmp_path: Path) -> None:
    n_head, d_nope, d_value, name = 3, 20, 24, "blk.0.attn_kv_b.weight"
    values = np.random.default_rng(7).standard_normal((n_head * (d_nope + d_value), rank))
    tiny = tiny_models.kimi()
    tiny.tensors[name] = tiny_models.Tensor(values, GGMLType[stored])
    with GGUFFile.open(tiny.write(tmp_path / "kimi.gguf")) as gguf:
        both = gguf.f32(name).reshape(n_head, d_nope + d_value, rank)
        k, v = LatentAttention(0, 96, n_head, d_nope, 8, d_value, rank, 1e-6)._split(Weights(gguf), "blk.0.")
        np.testing.assert_array_equal(_values(k, d_nope), both[:, :d_nope].swapaxes(1, 2))
        np.testing.assert_array_equal(_values(v, rank), both[:, d_nope:])
    assert (k.rows, k.n_expert, k.kind, v.rows, v.kind) == (rank, n_head, GGMLType[kind], d_value, GGMLType[kind])


def _values(w: Weight, n: int) -> np.ndarray:
    """A stack's matrices of n columns. The columns up to its own number are zeros."""
    assert isinstance(w.keep, np.ndarray) and w.address == w.keep.ctypes.data and w.n % 16 == 0
    stored = formats.decode(w.kind, w.keep.view(np.uint8).reshape(-1, w.stride)).reshape(w.n_expert, w.rows, w.n)
    assert not stored[:, :, n:].any()
    return stored[:, :, :n]
