"""The vector of a text has the same bits however its rows are cut."""

import numpy as np
import pytest

from hybrid.infer.evaluate.pooling import Pooled, Pooling, max_similarity, normalized


@pytest.mark.parametrize("pooling", list(Pooling))
@pytest.mark.parametrize("n", [1, 2, 7, 64, 301])
def test_however_rows_are_cut(pooling: Pooling, n: int) -> None:
    rng = np.random.default_rng(n)
    rows = (rng.standard_normal((n, 5)) * 10.0 ** rng.integers(-6, 6, (n, 1))).astype(np.float32)
    wanted = {
        Pooling.CLS: rows[0].astype(np.float64),
        Pooling.LAST: rows[-1].astype(np.float64),
        Pooling.MEAN: rows.sum(axis=0, dtype=np.float64) / n,
    }[pooling]
    for size in (1, 3, 64, n):
        pooled = Pooled(pooling)
        for begin in range(0, n, size):
            end = min(n, begin + size)
            pooled.add(rows[begin:end][pooling.outputs(begin, end, n)])
        assert (pooled.vector == wanted).all(), size


def test_late_interaction() -> None:
    query = np.array([[1, 0], [0, 2]], np.float32)
    document = np.array([[3, -1], [0.5, 0.25], [-4, 0]], np.float32)
    assert max_similarity(query, document) == 3 + 0.5


def test_lengths() -> None:
    rows = normalized(np.array([[3.0, 4.0], [0.0, 0.0]]))
    assert rows.tolist() == [[0.6, 0.8], [0.0, 0.0]]
