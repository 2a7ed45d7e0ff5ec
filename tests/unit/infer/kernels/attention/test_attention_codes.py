"""Attention with integer products on codes of 4 and 5 bits, against a twin that rounds likewise in float64; the bits
depend only on the sequence."""

import numpy as np
import pytest
from pairwise import in_turn, mostly_long
from reference import attention as twin
from reference.run_kernel import same_bits, worst

from hybrid.infer.kernels.attention import kv
from hybrid.infer.kernels.attention.attention_codes import has_integer_form

from .test_attention import Layer, sinks

KINDS = [kind.name for kind in kv.KV_TYPES.values() if kind.packed]
SHAPES = [
    (6, 2, 16, 0), (4, 2, 96, 0), (8, 2, 128, 0), (7, 1, 48, 0), (3, 3, 33, 17), (4, 1, 256, 0), (20, 1, 64, 0),
    (2, 1, 5, 1), (5, 5, 80, 0), (100, 1, 24, 0), (2, 1, 512, 0),
]  # fmt: skip


def planes(layer: Layer, n: int) -> list[dict[str, np.ndarray]]:
    """The stored planes of keys and of values of slot 1, by name."""
    arrays = dict(layer.memory.export(layer.table[1, : kv.pages_of(n)].tolist(), n))
    return [
        {plane.name: arrays[f"blk.0.{part}{plane.name}"] for plane in kind.planes}
        for part, kind in (("k", layer.types.keys), ("v", layer.types.values))
    ]


@pytest.mark.parametrize(("shape", "kind"), list(mostly_long(in_turn(SHAPES, KINDS), SHAPES, KINDS)))
def test_integer_products_match_their_twin(shape: tuple[int, int, int, int], kind: str) -> None:
    n_head, n_kv, d_head, d_value = shape
    layer = Layer(n_head, n_kv, d_head, 211, kind=kind, d_value=d_value, integer=True)
    inputs = layer.inputs(163)
    cuts = ((0, 61), (61, 62), (62, 163))
    got = np.concatenate([layer.step([a[s:e] for a in inputs], (e - s, 1, s)) for s, e in cuts])
    keys, values = planes(layer, 163)
    want = twin.rounded_attention(
        inputs[0], twin.group_codes(keys, kind, d_head), twin.group_codes(values, kind, layer.d_value), layer.scale
    )
    error = np.abs(got - want)
    print(f"{kind} {n_head}/{n_kv} x {d_head}: error {error.max():.1e}, {np.quantile(error, 0.99):.1e} of most")
    assert np.quantile(error, 0.98) < 1e-5, "a number that lies half way may fall to the other side"
    assert error.max() < 0.03
    exact = twin.attention(inputs[0], *layer.held(1, 163), np.arange(163), layer.scale)
    assert np.linalg.norm(got - exact) < 0.02 * np.linalg.norm(exact), "rounding to 8 bits"


CASES: dict[str, dict[str, object]] = {
    "plain": {},
    "window": {"window": 100},
    "aligned": {"window": 64, "aligned": True},
    "cap": {"cap": 3.0},
    "sinks": {"sinks": sinks(6)},
}


@pytest.mark.parametrize(("case", "kind"), list(mostly_long(in_turn([*CASES], KINDS), [*CASES], KINDS)))
def test_same_bits_for_any_split_and_threads(case: str, kind: str) -> None:
    n = 1300
    layer = Layer(6, 2, 40, n, kind=kind, integer=True, turned=True, **CASES[case])  # type: ignore[arg-type]
    inputs = layer.inputs(n)
    y = layer.step(inputs, (n, 1, 0))
    for t, count in ((1299, 1), (1024, 1), (511, 1), (1030, 3), (510, 4), (63, 70)):
        for n_threads in (1, 3, 9):
            part = layer.attend(inputs[0][t : t + count], (count, 1, t), n_threads=n_threads)
            assert same_bits(part, y[t : t + count]), (t, count, n_threads)


@pytest.mark.parametrize("kind", KINDS)
def test_no_number_stays_visible_and_the_future_hidden(kind: str) -> None:
    clean, dirty = (Layer(2, 1, 16, 96, kind=kind, integer=True) for _ in range(2))
    inputs = clean.inputs(80)
    y = clean.step(inputs, (80, 0, 0))
    for a in inputs[1:]:
        a[50] = np.inf
        a[51:] = np.nan
    z = dirty.step(inputs, (80, 0, 0))
    assert same_bits(z[:50], y[:50])
    assert np.isnan(z[51:]).all()
    inputs = clean.inputs(80)
    inputs[0][7, 1, 3] = np.nan
    z = clean.step(inputs, (80, 0, 0))
    assert np.isnan(z[7, 1]).all() and same_bits(z[8:], y[8:]) and same_bits(z[7, :1], y[7, :1])


@pytest.mark.parametrize("kind", KINDS)
def test_a_weight_of_nothing_and_equal_keys(kind: str) -> None:
    """Scores of +-1000, values of 0 and equal ones."""
    layer = Layer(1, 1, 16, 70, kind=kind, integer=True)
    q, k, v = layer.inputs(70)
    q[...], k[...] = 100.0, 2.5
    stored = twin.kept(v, kind)
    want = np.cumsum(stored[:, 0].astype(np.float64), 0) / np.arange(1, 71)[:, None]
    assert worst(layer.step([q, k, v], (70, 0, 0))[:, 0], want) < 0.02
    v[...] = 0
    assert not layer.step([q, k, v], (70, 0, 0)).any()


def test_where_they_are_used() -> None:
    q4, f16 = kv.KV_TYPES["q4_0"], kv.KV_TYPES["f16"]
    assert has_integer_form(q4, kv.KV_TYPES["q5_1"], 128) and not has_integer_form(q4, f16, 128)
    assert not has_integer_form(f16, q4, 128) and not has_integer_form(q4, q4, 576)
