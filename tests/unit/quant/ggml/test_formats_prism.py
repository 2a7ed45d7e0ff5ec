"""PrismML's types: their layouts by plain formulas, a known block, and weights that are not ternary."""

import numpy as np
import pytest

from hybrid.quant.ggml import formats
from hybrid.quant.ggml.types import GGMLType

PQ2_0, PTQ1_0, Q2_0 = GGMLType.PQ2_0, GGMLType.PTQ1_0, GGMLType.Q2_0
KINDS = (PQ2_0, PTQ1_0)
J = np.arange(128)
KNOWN = (((J * J + 3 * J + 7) // 5 % 3) - 1).astype(np.float32) * np.float32(1.5)  # of a test of PrismML's encoder


def digit(block: np.ndarray, j: int) -> int:
    """Weight j of a block u8 [28], from 0 to 2."""
    if j < 80:
        byte, n = block[j % 16], j // 16
    elif j < 120:
        byte, n = block[16 + (j - 80) % 8], (j - 80) // 8
    else:
        byte, n = block[24 + (j - 120) % 2], (j - 120) // 2
    return (int(byte) * 3**n % 256) * 3 >> 8


def test_a_known_block() -> None:
    raw = formats.encode(PTQ1_0, KNOWN)
    assert raw.tobytes().hex() == "96c143c85706103296c247d58182879620212fa2b451d2605fe4003e"
    for kind in KINDS:
        np.testing.assert_array_equal(formats.decode(kind, formats.encode(kind, KNOWN)), KNOWN)


def test_digits() -> None:
    raw = np.random.default_rng(1).integers(0, 256, (50, 28), np.uint8)
    raw[:, 26:] = np.frombuffer(np.float16(0.5).tobytes(), np.uint8)
    expected = [[(digit(block, j) - 1) * 0.5 for j in range(128)] for block in raw]
    np.testing.assert_array_equal(formats.decode(PTQ1_0, raw), expected)


def test_codes_are_those_of_q2_0() -> None:
    raw = np.random.default_rng(2).integers(0, 256, (50, 34), np.uint8)
    raw[:, :2] = np.frombuffer(np.float16(-0.75).tobytes(), np.uint8)
    halves = np.concatenate([raw[:, :2], raw[:, 2:18], raw[:, :2], raw[:, 18:]], axis=1).reshape(100, 18)
    expected = formats.decode(Q2_0, halves).reshape(50, 128)
    assert (np.unique(expected) == [-1.5, -0.75, 0, 0.75]).all()
    np.testing.assert_array_equal(formats.decode(PQ2_0, raw), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_ternary_weights_are_kept(kind: GGMLType) -> None:
    rng = np.random.default_rng(3)
    scale = rng.uniform(1e-3, 10, (40, 4, 1)).astype(np.float16).astype(np.float32)
    x = (rng.integers(-1, 2, (40, 4, 128)) * scale).astype(np.float32)
    x[0, 0] = 0
    x = x.reshape(40, 512)
    for importance in (None, rng.uniform(0, 1, 512).astype(np.float32)):
        raw = formats.encode(kind, x, importance=importance)
        np.testing.assert_array_equal(formats.decode(kind, raw), x)
    for other in KINDS:
        np.testing.assert_array_equal(formats.encode(other, x), formats.encode(other, formats.decode(kind, raw)))


@pytest.mark.parametrize("kind", KINDS)
def test_other_weights_have_a_scale_of_little_error(kind: GGMLType) -> None:
    rng = np.random.default_rng(4)
    x = rng.standard_normal((100, 256)).astype(np.float32)
    importance = np.where(np.arange(256) % 4, 0.01, 1).astype(np.float32)

    def error(importance: np.ndarray | None, weight: np.ndarray) -> float:
        values = formats.decode(kind, formats.encode(kind, x, importance=importance))
        return float(np.average((values - x) ** 2, weights=np.broadcast_to(weight, x.shape)))

    # the least error of three levels for normal values is 0.19; with the largest magnitude as the scale it is 0.5
    assert error(None, np.ones(256)) < 0.195
    assert error(importance, importance) < 0.99 * error(None, importance)
