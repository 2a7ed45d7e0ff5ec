"""Parked states: bytes, errors, and models that continue from them."""

from pathlib import Path

import numpy as np
import pytest
from converted_models import converted

from hybrid.infer import LoadedModel
from hybrid.infer.memory.parking import ParkedType, park, unpark


@pytest.mark.parametrize(("kind", "nbytes", "bound"), [("f16", 2, 2**-11), ("q8_0", 1.125, 0.5 / 127)])
def test_error_and_bytes(kind: ParkedType, nbytes: float, bound: float) -> None:
    rng = np.random.default_rng(0)
    states = [rng.standard_normal(shape).astype(np.float32) * 3 for shape in ((3, 7), (2, 5, 33), (640,))]
    states[0][0, 0], states[1][0] = 1e6, 0
    parked = park(states, kind)
    out = [np.empty_like(x) for x in states]
    unpark(parked, out)
    assert parked.nbytes <= nbytes * sum(x.size for x in states) + 2 * 40
    if kind == "f16":
        assert out[0][0, 0] == 65504
        states[0][0, 0] = 65504
    assert (out[1][0] == 0).all()
    for x, y in zip(states, out, strict=True):
        largest = np.abs(x) if kind == "f16" else np.abs(x).max()
        assert (np.abs(x - y) <= bound * 1.01 * largest + 1e-7).all()


@pytest.mark.parametrize(("kind", "most"), [("f32", 0.0), ("f16", 0.01), ("q8_0", 0.6)])
def test_logits_after_a_parked_state(
    kind: ParkedType, most: float, converted_jamba: Path, prose: Path, tmp_path: Path
) -> None:
    """`most` bounds the effect of rounding the state on logits of exact precision, which have the same bits on every
    processor. The fast path also rounds activations (to 8 bits, or to BF16 where there is `vdpbf16ps`), and the least
    change of a state flips some of these roundings: their effect says nothing about parking."""
    setup = {"n_ctx": 512, "checkpoint_budget": 8 << 20, "checkpoint_type": kind}
    with LoadedModel.load(converted_jamba, precision="exact", **setup) as model:
        ids = model.tokenizer.encode(prose.read_text())[:300]
        seq = model.sequence()
        seq.prefill(ids[:200])
        want = seq.logits_of(ids[200:])
        assert seq.resume([*ids[:200], 5]) == 200
        got = seq.logits_of(ids[200:])
        worst = float(np.abs(got - want).max())
        assert model.cache is not None
        print(f"{kind}: logits move by {worst:.4f} at most (of deviation {want.std():.2f}), {model.cache.nbytes} bytes")
        assert worst <= most and (kind == "f32" or worst > 0)
        # what a file holds is what the cache holds
        seq.save(tmp_path / "s", checkpoints=8 << 20)
        again = model.restore(tmp_path / "s", seq)
        assert again.resume([*ids[:200], 5]) == 200
        assert again.logits_of(ids[200:]).tobytes() == got.tobytes()
        again.close(remember=False)
        model.cache.clear()
        assert model.memory.recurrent.pool.used == 0


@pytest.fixture(scope="module")
def converted_jamba(bundled: Path) -> Path:
    return converted(bundled)
