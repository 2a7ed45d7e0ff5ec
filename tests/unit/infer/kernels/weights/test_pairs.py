"""Products of pairs of BF16 as `Builder` makes them, on a path that has vdpbf16ps in two instructions."""

import numpy as np
import pytest

from hybrid.infer.kernels.build.jit import compile_kernels
from hybrid.infer.kernels.emit.isa import PLAIN_WIDE
from hybrid.infer.program.builder import Batch, Builder, Rows, Weight
from hybrid.infer.program.threads import Pool
from hybrid.quant.ggml import formats
from hybrid.quant.ggml.formats.random_blocks import random_blocks
from hybrid.quant.ggml.types import GGMLType


def product(raw: np.ndarray, x: np.ndarray, capacity: int, n_threads: int = 1, *, exact: bool = False) -> np.ndarray:
    """W x for all rows of x, in a program for `capacity` columns."""
    control = np.array([len(x), 1, 0, 0, len(x)], np.int64)
    at = int(control.ctypes.data)
    batch = Batch(*[at] * 10, all_tokens=at + 8, all_outputs=at + 8)
    b = Builder(capacity, n_threads, exact=exact, batch=batch, isa=PLAIN_WIDE)
    weight = Weight("w", GGMLType.BF16, len(raw), raw.shape[1] // 2, int(raw.ctypes.data), raw.strides[0], keep=raw)
    y = b.matmul(Rows(int(x.ctypes.data), x.shape[1], x.strides[0]), weight, "product")
    program = b.build()
    program.arena[:] = 255
    compile_kernels(program.kernels)
    program.link()
    pool = Pool(n_threads)
    pool.run(program, stoppable=True)
    pool.close()
    return program.view(y, len(x)).copy()


def rounded(x: np.ndarray) -> np.ndarray:
    """Rounded to BF16, ties to even, as float64."""
    bits = x.view(np.uint32).astype(np.uint64)
    bits = bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000
    return bits.astype(np.uint32).view(np.float32).astype(np.float64)


@pytest.mark.parametrize(("rows", "n"), [(37, 2560), (70, 160), (25, 96), (3, 32), (24, 544)])
def test_products_of_pairs(rows: int, n: int) -> None:
    rng = np.random.default_rng([rows, n])
    raw = random_blocks(GGMLType.BF16, (rows, n), rng)
    x = rng.standard_normal((19, n)).astype(np.float32)
    expected = rounded(x) @ formats.decode(GGMLType.BF16, raw).astype(np.float64).T
    few = np.concatenate([product(raw, x[i : i + 1], 1) for i in range(len(x))])
    error = np.linalg.norm(few - expected) / np.linalg.norm(expected)
    print(f"{rows} x {n}: relative error {error:.1e}")
    assert error < 5e-7
    for capacity, n_threads in ((19, 1), (19, 2), (16, 1), (64, 3)):
        many = product(raw, x[:capacity], capacity, n_threads)
        np.testing.assert_array_equal(many.view(np.uint32), few[:capacity].view(np.uint32))


def test_exact_precision_does_not_round() -> None:
    rng = np.random.default_rng(5)
    raw = random_blocks(GGMLType.BF16, (8, 64), rng)
    x = rng.standard_normal((2, 64)).astype(np.float32)
    expected = x.astype(np.float64) @ formats.decode(GGMLType.BF16, raw).astype(np.float64).T
    np.testing.assert_allclose(product(raw, x, 2, exact=True), expected, rtol=1e-5)
    assert np.abs(product(raw, x, 2) - expected).max() > 1e-4


def test_broken_activations_stay_visible() -> None:
    raw = random_blocks(GGMLType.BF16, (5, 32), np.random.default_rng(1))
    for bits in (0x7F800000, 0x7FC00000, 0x7F800001, 0xFFFFFFFF):
        x = np.ones((2, 32), np.float32)
        x.view(np.uint32)[1, 7] = bits
        for capacity in (2, 40):
            y = product(raw, x, capacity)
            assert np.isfinite(y[0]).all()
            assert not np.isfinite(y[1]).any()
