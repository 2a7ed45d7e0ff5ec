"""Means of queries and of the keys that they share, against their definition."""

import numpy as np
import pytest
from reference.convolved_attention import means
from reference.run_kernel import guarded, record, run, worst

from hybrid.infer.kernels.rows.head_means import add_head_means

N_TOK = 5


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize(("n_head", "n_kv", "d"), [(6, 2, 20), (3, 3, 16), (5, 1, 37), (1, 1, 1)])
def test_means(n_head: int, n_kv: int, d: int, n_threads: int) -> None:
    rng = np.random.default_rng(d)
    q, out_q = (rng.standard_normal((N_TOK, n_head * d), np.float32) for _ in range(2))
    k, out_k = (rng.standard_normal((N_TOK, n_kv * d), np.float32) for _ in range(2))
    heads = [x.reshape(N_TOK, -1, d).astype(np.float64) for x in (q, k, out_q, out_k)]
    of_queries, of_keys = means(*heads[:2])
    (whole_q, rows_q), (whole_k, rows_k) = (guarded(x.shape) for x in (out_q, out_k))
    rows_q[...], rows_k[...] = out_q, out_k
    fields = record(
        add_head_means,
        count=np.array([N_TOK]),
        q=q,
        k=k,
        out_q=rows_q,
        out_k=rows_k,
        n_head=n_head,
        n_kv=n_kv,
        d_head=d,
    )
    run(add_head_means, fields, n_threads)
    assert (whole_q[:, n_head * d :] == 7.25).all()
    assert (whole_k[:, n_kv * d :] == 7.25).all()
    assert worst(rows_q.reshape(N_TOK, -1, d), heads[2] + of_queries) < 5e-7
    assert worst(rows_k.reshape(N_TOK, -1, d), heads[3] + of_keys) < 5e-7
