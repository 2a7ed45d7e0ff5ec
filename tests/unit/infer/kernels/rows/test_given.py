"""Rows given from outside."""

import numpy as np
import pytest
from reference.run_kernel import guarded, record, run, same_bits

from hybrid.infer.kernels.rows.given import add_given_rows, given_rows


@pytest.mark.parametrize("n", [1, 17, 250])
@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_only_the_rows_of_pictures_change(n: int, scale: float) -> None:
    given = np.array([0, 1, 7, 0, 1], np.int64)
    rng = np.random.default_rng(0)
    whole, x = guarded((5, n), 1)
    target, out = guarded((5, n), 2)
    x[...], out[...] = rng.standard_normal((2, 5, n))
    before, chosen = out.copy(), (given != 0)[:, None]
    count = np.array([5], np.int64)
    fields = record(given_rows, count=count, given=given, x=whole, out=target, n=n, scale=scale)
    run(given_rows, fields, 2)
    assert same_bits(out.copy(), np.where(chosen, x * np.float32(scale), before))
    replaced = out.copy()
    run(add_given_rows, record(add_given_rows, count=count, given=given, x=whole, out=target, n=n), 3)
    assert same_bits(out.copy(), np.where(chosen, replaced + x, replaced))
    assert (target[:, n:] == 7.25).all(), "wrote beyond the rows"
