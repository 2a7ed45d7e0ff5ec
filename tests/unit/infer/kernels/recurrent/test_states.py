"""Layouts that recurrent kernels share, and the same bits of all of them on every processor."""

import hashlib

import forced_isa
import numpy as np
import pytest
from reference.run_kernel import same_bits

from hybrid.infer.kernels.recurrent.states import arrange_heads, pad_channels, restore_heads, state_shape

DIGEST = """
import sys
sys.path[:0] = ["tests", "tests/unit/infer/kernels/recurrent"]
from test_states import digest
print(digest())
"""


@pytest.mark.parametrize("depth", [1, 7])
@pytest.mark.parametrize("lanes", [1, 19, 48])
@pytest.mark.parametrize("heads", [1, 3])
def test_layout_is_undone(heads: int, lanes: int, depth: int) -> None:
    a = np.random.default_rng(0).standard_normal((heads, lanes, depth), np.float32)
    arranged = arrange_heads(a)
    assert arranged.shape == state_shape(heads, lanes, depth) == (heads, -(-lanes // 16), depth, 16)
    assert arranged[heads - 1, (lanes - 1) // 16, depth - 1, (lanes - 1) % 16] == a[-1, -1, -1]
    assert same_bits(restore_heads(arranged, lanes), a)


def test_missing_lanes_are_zero() -> None:
    assert (arrange_heads(np.ones((2, 5, 3)))[..., 5:] == 0).all()
    assert pad_channels(np.ones(17)).tolist() == [1.0] * 17 + [0.0] * 15


def digest() -> str:
    """Digest of the results of all recurrent kernels for random input in two calls."""
    from test_conv import Conv
    from test_delta import Delta
    from test_mamba1 import Scan as Mamba1
    from test_mamba2 import Scan as Mamba2
    from test_rglru import Lru

    total = hashlib.sha256()
    cases = [
        Conv("silu", 53, 4),
        Conv("gated", 53, 3),
        Conv("plain", 53, 5),
        Mamba1(53, 7),
        Mamba2(3, 37, 9, 1),
        Delta(4, 2, 9, 37, per_channel=False, repeat=2),
        Delta(2, 2, 9, 37, per_channel=True),
        Lru(53),
    ]
    for case in cases:
        inputs = case.inputs(20)
        for n, m in ((0, 18), (18, 20)):
            y = case.step([a[n:m] for a in inputs], (m - n, 1, n == 0))
            assert np.isfinite(y).all()
            total.update(y.tobytes())
        total.update(case.state[1].tobytes())
    return total.hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [name if name == "avx2" else pytest.param(name, marks=pytest.mark.paths) for name in forced_isa.FEATURES]
)
def test_bits_are_the_same_on_every_path(path: str) -> None:
    forced_isa.require(path)
    done = forced_isa.python(path, "-c", DIGEST)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == digest()


@pytest.mark.slow
@pytest.mark.paths
def test_more_registers_are_used() -> None:
    """Code that this machine cannot execute is at least compiled."""
    for kernel in ("mamba1:mamba1_scan", "mamba2:mamba2_scan", "delta:delta_scan"):
        text = forced_isa.assembly("avx512-vnni", f"hybrid.infer.kernels.recurrent.{kernel}")
        assert "vfmadd231ps" in text and "zmm3" in text, kernel
