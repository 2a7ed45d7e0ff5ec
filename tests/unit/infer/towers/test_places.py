"""Places of patches against slow twins."""

import numpy as np
import pytest
from reference import tower_passes as twin
from reference.run_kernel import worst

from hybrid.infer.towers.places import axial_turns, block_order, cornered, smoothed
from hybrid.infer.towers.qwen25_vl import windows


def test_order_of_blocks() -> None:
    assert block_order(2, 4, 2).tolist() == [0, 1, 4, 5, 2, 3, 6, 7]
    assert block_order(3, 2, 1).tolist() == list(range(6))
    x = np.arange(54).reshape(54, 1)
    np.testing.assert_array_equal(x[block_order(6, 9, 3)].reshape(6, 9), twin.beside(x, 6, 9, 3))


@pytest.mark.parametrize("size", [(7, 7), (4, 11), (1, 3), (14, 5), (2, 1)])
def test_positions_for_other_grids(size: tuple[int, int]) -> None:
    table = np.random.default_rng(0).standard_normal((49, 5)).astype(np.float32)
    assert worst(cornered(table, *size), twin.cornered(table.astype(np.float64), *size)) < 1e-6
    assert worst(smoothed(table, *size), twin.smoothed(table.astype(np.float64), *size)) < 1e-6
    if size == (7, 7):
        np.testing.assert_array_equal(cornered(table, 7, 7), table)
        np.testing.assert_array_equal(smoothed(table, 7, 7), table)


def test_turns_by_row_and_column() -> None:
    rows, columns = np.arange(12) // 4, np.arange(12) % 4
    table = axial_turns(rows, columns, 16, 500.0)
    assert table.shape == (12, 8, 2)
    x = np.random.default_rng(0).standard_normal((12, 1, 16))
    want = twin.turned(x, rows, columns, 500.0)
    c, s = table[..., 0], table[..., 1]
    got = np.concatenate([x[:, 0, :8] * c - x[:, 0, 8:] * s, x[:, 0, :8] * s + x[:, 0, 8:] * c], axis=1)
    assert worst(got.astype(np.float32), want[:, 0]) < 1e-6


def test_windows() -> None:
    found = [part.tolist() for part in windows(3, 5, 2)]
    assert found == [[0, 1, 5, 6], [2, 3, 7, 8], [4, 9], [10, 11], [12, 13], [14]]
