"""The resize against its definition in plain Python, bit for bit; and how far the rounding of weights moves a pixel."""

import numpy as np
import pytest
from reference.resizing import resized, resized_exactly

from hybrid.infer.pictures.resize import MOST_BITS, WEIGHT_BITS, resize, taps

FILTERS = ("bilinear", "bicubic", "lanczos")
SIZES = [  # height, width -> height, width
    (5, 7, 3, 11),
    (1, 1, 4, 6),
    (9, 1, 2, 5),
    (1, 40, 3, 3),
    (20, 3, 37, 3),  # rows alone
    (3, 20, 3, 9),  # columns alone
    (33, 35, 32, 16),  # more rows than a block of columns has
    (18, 24, 9, 6),  # whole factors
    (6, 5, 13, 15),
]


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng([height, width]).integers(0, 256, (height, width, 3)).astype(np.uint8)


@pytest.mark.parametrize("resample", FILTERS)
@pytest.mark.parametrize("sizes", SIZES)
def test_against_the_definition(sizes: tuple[int, int, int, int], resample: str) -> None:
    h, w, height, width = sizes
    for rgb in (noise(h, w), noise(h, w) // 128 * 255):  # the latter overshoots
        found = resize(rgb, height, width, resample)
        np.testing.assert_array_equal(found, resized(rgb, height, width, resample))
        off = np.abs(found.astype(int) - resized_exactly(rgb, height, width, resample))
        print(f"rounded weights: {off.max()} levels, on {(off > 0).mean():.2%} of the values")
        assert off.max() <= 1


def test_steep_edges_are_clamped_between_the_passes() -> None:
    """A value beyond 255 after the first pass must not reach the second one."""
    rgb = noise(12, 12) // 128 * 255
    found = resize(rgb, 17, 17, "bicubic")
    np.testing.assert_array_equal(found, resized(rgb, 17, 17, "bicubic"))
    weights = [np.zeros((12, 17)) for _ in range(2)]
    for axis in weights:
        sums = taps(12, 17, "bicubic")
        for i, (first, count) in enumerate(zip(sums.first, sums.counts, strict=True)):
            axis[first : first + count, i] = sums.weights[i, :count] / 2.0**sums.bits
    at_once = np.clip(np.einsum("yxc,yi,xj->ijc", rgb.astype(float), *weights).round(), 0, 255)
    assert np.abs(at_once - found).max() > 5, "here a single rounding would differ visibly"


@pytest.mark.parametrize("resample", (*FILTERS, "nearest"))
def test_the_same_size(resample: str) -> None:
    rgb = noise(6, 5)
    assert resize(rgb, 6, 5, resample) is rgb


def test_one_colour_stays() -> None:
    for resample in FILTERS:
        for level in (0, 1, 127, 254, 255):
            rgb = np.full((13, 29, 3), level, np.uint8)
            for height, width in ((5, 7), (31, 40)):
                assert np.abs(resize(rgb, height, width, resample).astype(int) - level).max() <= (resample == "lanczos")


@pytest.mark.parametrize("resample", FILTERS)
def test_no_sum_leaves_32_bits(resample: str) -> None:
    """Over many ratios: the largest magnitude that a sum of bytes can reach."""
    pairs = [(n, m) for n in (1, 2, 3, 7, 50, 181, 4096, 32768) for m in (1, 2, 3, 5, 64, 117, 896)]
    for n_in, n_out in pairs:
        sums = taps(n_in, n_out, resample)
        assert sums.bits <= MOST_BITS and sums.weights.max() < 1 << WEIGHT_BITS
        assert (sums.first >= 0).all() and (sums.counts >= 1).all() and (sums.first + sums.counts <= n_in).all()
        largest = int(np.abs(sums.weights.astype(np.int64)).sum(axis=1).max()) * 255 + (1 << sums.bits)
        assert largest < 2**31, f"{n_in} -> {n_out}: {largest}"
        outside = np.arange(sums.weights.shape[1]) >= sums.counts[:, None]
        assert not sums.weights[outside].any()


def test_nearest() -> None:
    rgb = np.arange(5, dtype=np.uint8)[None, :, None].repeat(3, axis=2)
    assert resize(rgb, 1, 2, "nearest")[0, :, 0].tolist() == [1, 3]
    assert resize(rgb, 2, 10, "nearest")[1, :, 0].tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    # a centre on the border of two pixels is the second one's
    assert resize(rgb[:, :2], 1, 1, "nearest")[0, 0, 0] == 1


def test_parts_of_larger_arrays() -> None:
    rgb = noise(20, 30)
    part = rgb[3:17, 5:24]
    np.testing.assert_array_equal(resize(part, 9, 8, "bicubic"), resize(part.copy(), 9, 8, "bicubic"))
