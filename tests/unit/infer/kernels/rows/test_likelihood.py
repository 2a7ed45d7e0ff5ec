"""Log-likelihoods against float64."""

import numpy as np
import pytest
from reference.run_kernel import guarded, record, run

from hybrid.infer.kernels.rows.likelihood import negative_log_likelihood


@pytest.mark.parametrize("n", [3, 320, 9001])
def test_negative_log_likelihood(n: int) -> None:
    _, logits = guarded((6, n))
    logits[...] = np.random.default_rng(1).standard_normal((6, n)) * 9
    targets = np.random.default_rng(2).integers(0, n, 6)
    out = np.full(6, np.nan)
    run(
        negative_log_likelihood,
        record(negative_log_likelihood, count=np.array([6]), logits=logits, n_vocab=n, targets=targets, out=out),
        2,
    )
    wide = logits.astype(np.float64)
    expected = np.log(np.exp(wide - wide.max(1, keepdims=True)).sum(1)) + wide.max(1) - wide[np.arange(6), targets]
    assert np.abs(out - expected).max() < 2e-6


def test_a_broken_logit_is_not_a_likelihood() -> None:
    logits = np.zeros((1, 40), np.float32)
    logits[0, 5] = np.nan
    out = np.zeros(1)
    run(
        negative_log_likelihood,
        record(negative_log_likelihood, count=np.array([1]), logits=logits, n_vocab=40, targets=np.array([5]), out=out),
    )
    assert np.isnan(out[0])
