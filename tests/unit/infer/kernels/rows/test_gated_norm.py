"""The gated norm against its float64 twin."""

import numpy as np
import pytest
from reference import recurrent as twin
from reference.run_kernel import guarded, record, run, same_bits, worst

from hybrid.infer.kernels.rows.gated_norm import gated_norm

EPS = 1e-3


@pytest.mark.parametrize("gate", ["none", "before", "after", "after, sigmoid"])
@pytest.mark.parametrize(("n_tok", "n_group", "n"), [(1, 1, 5), (7, 3, 37), (4, 2, 160)])
@pytest.mark.parametrize("shared", [True, False])
def test_matches_float64(n_tok: int, n_group: int, n: int, gate: str, shared: bool) -> None:
    rng = np.random.default_rng(n)
    shape = (n_tok, n_group * n)
    (whole_y, y), (whole_z, z) = guarded(shape), guarded(shape, 3)
    whole_y[...] = whole_z[...] = np.nan
    y[...], z[...] = rng.standard_normal(shape), rng.standard_normal(shape) * 4
    weight = rng.standard_normal((n,) if shared else (n_group, n)).astype(np.float32)
    results = []
    for n_threads in (1, 2, 3):
        whole, out = guarded(shape, 6)
        fields = record(
            gated_norm,
            count=np.array([n_tok]),
            y=whole_y,
            z=None if gate == "none" else whole_z,
            weight=weight,
            stride=0 if shared else weight.strides[0],
            out=whole,
            n_group=n_group,
            n=n,
            eps=float(EPS),
            norm_first="after" in gate,
            by_sigmoid="sigmoid" in gate,
        )
        run(gated_norm, fields, n_threads)
        assert (whole[:, n_group * n :] == 7.25).all()
        results.append(out.copy())
    groups = (n_tok, n_group, n)
    want = twin.gated_norm(
        y.reshape(groups),
        None if gate == "none" else z.reshape(groups),
        weight,
        EPS,
        norm_first="after" in gate,
        act="sigmoid" if "sigmoid" in gate else "silu",
    )
    error = worst(results[0], want.reshape(shape))
    print(f"gated norm {groups} {gate}: error {error:.1e}")
    assert error < 1e-6
    assert all(same_bits(results[0], other) for other in results[1:])


def test_in_place() -> None:
    rng = np.random.default_rng(0)
    y, z, weight = (rng.standard_normal((5, 40)).astype(np.float32) for _ in range(3))
    for gate, norm_first in ((None, 0), (z, 0), (z, 1)):
        apart, together = np.empty_like(y), y.copy()
        for source, target in ((y, apart), (together, together)):
            fields = record(
                gated_norm,
                count=np.array([5]),
                y=source,
                z=gate,
                weight=weight,
                stride=0,
                out=target,
                n_group=1,
                n=40,
                eps=float(EPS),
                norm_first=norm_first,
            )
            run(gated_norm, fields)
        assert same_bits(apart, together)
