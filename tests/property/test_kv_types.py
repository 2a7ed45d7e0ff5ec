"""Keys and values in every type: results depend only on the tokens, also of saved states and at a depth."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hybrid.infer import LoadedModel
from hybrid.infer.bench.shapes import ModelShape
from hybrid.infer.kernels.attention.kv import KV_TYPES
from hybrid.quant.ggml.errors import Remedy, StateError, UsageError
from hybrid.quant.ggml.types import FileType

SHAPES = {
    "jamba": ModelShape(
        "small-jamba", "jamba", 3, 64, 300, 2048, 1e-6, n_ff=96, n_head=4, n_head_kv=1, head_dim=16, attn_offset=1,
        attn_period=2, d_state=8, d_conv=4, dt_rank=4,
    ),
    "llama": ModelShape(
        "small-llama", "llama", 2, 64, 300, 2048, 1e-5, n_ff=96, n_head=3, n_head_kv=3, head_dim=40, rope_base=1e4,
    ),
}  # fmt: skip
N = 700  # more than a chunk of positions


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes() and bool(np.isfinite(a).all())


@pytest.mark.parametrize("kv_type", list(KV_TYPES))
@pytest.mark.parametrize("family", list(SHAPES))
def test_results_depend_on_the_tokens_alone(
    family: str, kv_type: str, random_model: Callable[..., Path], tmp_path: Path
) -> None:
    path = random_model(SHAPES[family], FileType.F32)
    ids = np.random.default_rng(3).integers(260, 300, N).tolist()
    with LoadedModel.load(path, n_ctx=N + 4, n_seq_max=2, n_threads=2, kv_type=kv_type) as model:  # type: ignore[arg-type]
        assert model.kv_type == kv_type
        kind = KV_TYPES[kv_type]
        assert model.memory.bytes_kv_per_token == sum(s.bytes_per_token(kind) for s in model.memory.attention.specs)
        seq = model.sequence()
        whole = seq.logits_of(ids)
        seq.clear()
        seq.prefill(ids[:500])
        size = seq.save(tmp_path / "state")
        assert size > 500 * model.memory.bytes_kv_per_token * 8 // 10  # heads of 40 are padded in memory
        assert same(np.stack([seq.decode(i) for i in ids[500:530]]), whole[500:530]), "token by token"
        restored = model.restore(tmp_path / "state")
        assert same(restored.logits_of(ids[500:]), whole[500:]), "saved and restored"
        seq.close()
        copied = restored.copy()
        assert same(copied.decode(260), restored.decode(260)), "a copy"
    for n_threads in (1, 3):
        with LoadedModel.load(path, n_ctx=N + 4, n_ubatch=64, n_threads=n_threads, kv_type=kv_type) as model:  # type: ignore[arg-type]
            seq = model.restore(tmp_path / "state")
            assert same(seq.logits_of(ids[500:650]), whole[500:650]), f"{n_threads} threads"
            assert same(seq.decode(ids[650]), whole[650]), f"{n_threads} threads"


def test_what_a_type_costs(random_model: Callable[..., Path]) -> None:
    """The types differ, f16 by little and q8_0 by more; with `exact` the default is f32."""
    path = random_model(SHAPES["llama"], FileType.F32)
    ids = np.random.default_rng(4).integers(260, 300, 100).tolist()
    logits = {}
    for kv_type in (*KV_TYPES, None):
        for precision in ("fast", "exact"):
            with LoadedModel.load(path, n_ctx=128, precision=precision, kv_type=kv_type) as model:  # type: ignore[arg-type]
                logits[kv_type, precision] = model.sequence().logits_of(ids)
    assert same(logits[None, "fast"], logits["f16", "fast"])
    assert same(logits[None, "exact"], logits["f32", "exact"])
    errors = [float(np.abs(logits[kind, "fast"] - logits["f32", "fast"]).max()) for kind in ("f16", "q8_0")]
    print(f"largest difference of a logit: f16 {errors[0]:.1e}, q8_0 {errors[1]:.1e}")
    assert 0 < errors[0] < 0.01 < 2 * errors[1] < 0.5


def test_a_state_of_another_type_is_refused(random_model: Callable[..., Path], tmp_path: Path) -> None:
    path = random_model(SHAPES["jamba"], FileType.F32)
    with LoadedModel.load(path, n_ctx=16, kv_type="q8_0") as model:
        seq = model.sequence()
        seq.prefill([1, 2, 3])
        seq.save(tmp_path / "my.state")
    with LoadedModel.load(path, n_ctx=16) as model:
        with pytest.raises(StateError) as caught:
            model.restore(tmp_path / "my.state")
        assert str(caught.value) == "my.state keeps keys and values in q8_0, this model in f16."
        assert (caught.value.remedy, caught.value.value) == (Remedy.KV_TYPE_OR_WITHOUT_STATE, "q8_0")
        model.sequence().close()
    with pytest.raises(UsageError, match="kv_type = 'f12': keys and values are kept in one of f32, f16, q8_0"):
        LoadedModel.load(path, kv_type="f12")  # type: ignore[arg-type]


@pytest.mark.parametrize("kv_type", list(KV_TYPES))
def test_a_filled_memory(kv_type: str, random_model: Callable[..., Path]) -> None:
    """Random, finite, repeatable, and of the requested length."""
    with LoadedModel.load(random_model(SHAPES["jamba"], FileType.F32), n_ctx=800, kv_type=kv_type) as model:  # type: ignore[arg-type]
        seq = model.sequence()
        results = []
        for n in (700, 700, 699):
            seq.fill([5] * n)
            assert seq.n_past == len(seq.tokens) == n
            results.append(seq.logits_of([7, 8]))
        assert same(results[0], results[1])
        assert np.isfinite(results[2]).all() and not same(results[0], results[2])
        seq.clear()
        clean = seq.logits_of([7, 8])
        assert np.isfinite(clean).all() and not same(clean, results[0])
        with pytest.raises(UsageError, match="900 tokens do not fit the context of 800"):
            seq.fill([5] * 900)
