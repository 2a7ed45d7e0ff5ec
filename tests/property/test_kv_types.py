"""Keys and values in every type: results depend only on the tokens, also of saved states and at a depth."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from hybrid.infer import LoadedModel
from hybrid.infer.answers.state_files.llama_states import export_session, import_session
from hybrid.infer.bench.shapes import ModelShape
from hybrid.infer.kernels.attention.kv import KV_TYPES, cache_types
from hybrid.infer.memory.state_file import read_state, write_state
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


MIXED = ["q8_0/q4_0", "q4_0/f16"]


@pytest.mark.parametrize("kv_type", [*KV_TYPES, *MIXED])
@pytest.mark.parametrize("family", list(SHAPES))
def test_results_depend_on_the_tokens_alone(
    family: str, kv_type: str, random_model: Callable[..., Path], tmp_path: Path
) -> None:
    path = random_model(SHAPES[family], FileType.F32)
    ids = np.random.default_rng(3).integers(260, 300, N).tolist()
    with LoadedModel.load(path, n_ctx=N + 4, n_seq_max=2, n_threads=2, kv_type=kv_type) as model:  # type: ignore[arg-type]
        assert model.kv_type == kv_type
        kind = cache_types(kv_type)
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
    rms = {kind: float(np.sqrt(np.square(logits[kind, "fast"] - logits["f32", "fast"]).mean())) for kind in KV_TYPES}
    print(" ".join(f"{kind} {error:.1e}" for kind, error in rms.items()))
    order = ("f32", "f16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
    assert all(rms[a] < rms[b] for a, b in pairwise(order)) and rms["q8_0"] < rms["iq4_nl"] < 1.1 * rms["q4_0"]


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
    with pytest.raises(UsageError, match="kv_type = 'f12': keys and values are kept in one of f32, f16, bf16, q8_0"):
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


@pytest.mark.parametrize("family", list(SHAPES))
def test_a_state_of_an_older_version(family: str, random_model: Callable[..., Path], tmp_path: Path) -> None:
    """Keys and values in q8_0 that are not in the basis of the transform are brought into it, rounded once more."""
    shape = SHAPES[family] if family == "jamba" else replace(SHAPES[family], head_dim=96)
    path, n = random_model(shape, FileType.F32), 130
    ids = np.random.default_rng(5).integers(260, 300, n + 20).tolist()
    with LoadedModel.load(path, n_ctx=256, n_seq_max=3, kv_type="q8_0", checkpoint_budget=1 << 20) as model:
        memory, seq = model.memory.attention, model.sequence()
        assert any(any(s.blocks(memory.kind)) for s in memory.pairs)
        seq.prefill(ids[:n])
        wanted = seq.copy().logits_of(ids[n:])
        seq.save(tmp_path / "new.state")
        with read_state(tmp_path / "new.state") as state:
            assert state.header.version == 3 and state.header.keys_values == memory.described()
            arrays = {name: state[name].copy() for name in state}
            old = memory.in_basis(arrays)  # the transform is its own inverse
            header = replace(state.header, keys_values=None)
        assert header.version == 1
        write_state(tmp_path / "old.state", header, old.items())
        got = model.restore(tmp_path / "old.state").logits_of(ids[n:])
        other = replace(header, keys_values={**(memory.described() or {}), "hadamard": [[32, 32]]})
        write_state(tmp_path / "other.state", other, arrays.items())
        with pytest.raises(StateError, match=r"other.state keeps keys and values in another basis \(hadamard \[\[32"):
            model.restore(tmp_path / "other.state")
    error = float(np.abs(got - wanted).max())
    print(f"{family}: logits moved by {error:.1e} of {np.abs(wanted).max():.1e}")
    assert 0 < error < 0.05 * np.abs(wanted).max()


def test_heads_that_llama_cpp_has_no_type_for(random_model: Callable[..., Path], tmp_path: Path) -> None:
    with LoadedModel.load(random_model(SHAPES["llama"], FileType.F32), n_ctx=64, kv_type="q4_0") as model:
        seq = model.sequence()
        seq.prefill([5, 6])
        with pytest.raises(UsageError, match="has no keys and values in q4_0 for heads of 40 values"):
            export_session(seq, tmp_path / "s")


@pytest.mark.parametrize(("kv_type", "head"), [("q8_0", 64), ("q4_0", 128), ("q5_1/iq4_nl", 64), ("q4_1", 96)])
def test_sessions_of_llama_cpp(kv_type: str, head: int, random_model: Callable[..., Path], tmp_path: Path) -> None:
    """Codes come back to the bit where the bases are the same; otherwise they are rounded once more."""
    path, ids = random_model(replace(SHAPES["llama"], head_dim=head), FileType.F32), [*range(260, 290)]
    with LoadedModel.load(path, n_ctx=64, n_seq_max=3, kv_type=kv_type) as model:
        seq = model.sequence()
        seq.prefill(ids)
        want = {name: a[:29].tobytes() for name, a in model.memory.export(seq.slot)}
        logits = seq.copy().decode(261)
        for rotated in (True, False):
            export_session(seq, tmp_path / "s", whole=False, rotated=rotated)
            if head % 64 == 0:
                with pytest.raises(StateError, match="does not say whether") as caught:
                    import_session(model, tmp_path / "s")
                assert caught.value.remedy is Remedy.SAY_IF_ROTATED
            again = import_session(model, tmp_path / "s", rotated=rotated)
            got = {name: a.tobytes() for name, a in model.memory.export(again.slot)}
            assert (got == want) is (rotated and head % 64 == 0)
            again.decode(ids[-1])
            assert 0 <= np.abs(again.decode(261) - logits).max() < 0.2 * np.abs(logits).max()
            again.close()
        with pytest.raises(UsageError, match="without flash attention"):
            export_session(seq, tmp_path / "s", whole=False, transposed=True)
