"""Rows mixed with messages against float64."""

import numpy as np
import pytest
from reference.inkling import with_message
from reference.run_kernel import guarded, record, run, same_bits, worst

from hybrid.infer.kernels.rows.message_gate import message_gate


@pytest.mark.parametrize(("n_tok", "n"), [(1, 5), (7, 37), (3, 1031)])
def test_matches_float64(n_tok: int, n: int) -> None:
    rng = np.random.default_rng(n)
    rows = {}
    for i, name in enumerate(("x", "message", "forget", "gain")):
        _, rows[name] = guarded((n_tok, n), i)
        rows[name][...] = 2 * rng.standard_normal((n_tok, n))
    results = []
    for n_threads in (1, 2, 3):
        whole, out = guarded((n_tok, n), 6)
        run(message_gate, record(message_gate, count=np.array([n_tok]), out=whole, n=n, **rows), n_threads)
        assert (whole[:, n:] == 7.25).all()
        results.append(out.copy())
    want = with_message(*(row.astype(np.float64) for row in rows.values()))
    error = worst(results[0], want)
    print(f"error {error:.1e}")
    assert error < 4e-7
    assert same_bits(results[0], results[1]) and same_bits(results[0], results[2])
