"""Layer norm against float64."""

import numpy as np
import pytest
from reference.run_kernel import guarded, record, run, same_bits, worst
from reference.rwkv import layer_norm as twin

from hybrid.infer.kernels.rows.layer_norm import layer_norm

EPS = 1e-3


@pytest.mark.parametrize(("n_tok", "n"), [(1, 1), (7, 5), (3, 37), (4, 160)])
def test_matches_float64(n_tok: int, n: int) -> None:
    rng = np.random.default_rng(n)
    weight, bias = (rng.standard_normal(n).astype(np.float32) for _ in range(2))
    x = (rng.standard_normal((n_tok, n)) * 2 + 3).astype(np.float32)
    results = []
    for n_threads in (1, 2, 3):
        (whole_x, view), (whole, out) = guarded(x.shape), guarded(x.shape, 6)
        whole_x[...] = np.nan
        view[...] = x
        fields = record(
            layer_norm, count=np.array([n_tok]), x=whole_x, weight=weight, bias=bias, out=whole, n=n, eps=float(EPS)
        )
        run(layer_norm, fields, n_threads)
        assert (whole[:, n:] == 7.25).all()
        assert same_bits(view.copy(), x)
        results.append(out.copy())
    error = worst(results[0], twin(x.astype(np.float64), weight, bias, EPS))
    print(f"layer norm {n_tok} x {n}: error {error:.1e}")
    assert error < 1e-6
    assert all(same_bits(results[0], other) for other in results[1:])


def test_residual_rows_and_in_place() -> None:
    rng = np.random.default_rng(0)
    x, r, weight, bias = (rng.standard_normal((5, 40)).astype(np.float32) for _ in range(4))
    index = np.array([4, 1, 2])
    taken, out = x.copy(), np.empty((3, 40), np.float32)
    both = {"weight": weight[0], "bias": bias[0], "n": 40, "eps": float(EPS)}
    fields = record(layer_norm, count=np.array([3]), x=taken, residual=r, out=out, index=index, scale=0.5, **both)
    run(layer_norm, fields)
    moved = x + 0.5 * r
    assert worst(out, twin(moved[index].astype(np.float64), weight[0], bias[0], EPS)) < 1e-6
    assert same_bits(taken[[0, 3]], x[[0, 3]]), "rows that were not asked for"
    assert worst(taken[index], moved[index].astype(np.float64)) < 1e-6
    apart = np.empty_like(x)
    for target, source in ((apart, x.copy()), (x, x)):
        run(layer_norm, record(layer_norm, count=np.array([5]), x=source, out=target, **both))
    assert same_bits(apart, x)
