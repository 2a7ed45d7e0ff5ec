"""Attention with a bias by distance, and a sink of each token, against a float64 twin; the bits depend only on the
sequence."""

import numpy as np
import pytest
from reference import attention as twin
from reference.run_kernel import same_bits, worst

from hybrid.infer.kernels.attention.distance_bias import packed_profiles

from .test_attention import Layer

# heads, heads of keys, d_head, profiles, extent, window
SHAPES = [
    (6, 2, 21, 5, 37, 0),
    (5, 1, 40, 16, 1, 0),
    (3, 3, 16, 1, 64, 64),
    (7, 1, 33, 3, 200, 90),
    (40, 1, 24, 4, 65, 0),
]


@pytest.mark.parametrize("kind", ["f32", "f16", "q8_0", "q4_0"])
@pytest.mark.parametrize("shape", SHAPES)
def test_matches_float64(shape: tuple[int, int, int, int, int, int], kind: str) -> None:
    """Prompts split in any way, and single tokens to the bit; q4_0 with integer products."""
    n_head, n_kv, d_head, n, extent, window = shape
    rng = np.random.default_rng(3)
    profiles = rng.standard_normal((n, extent), np.float32)
    states = rng.standard_normal((163, n_head * (n + 1)), np.float32) * 2
    layer, single = (
        Layer(n_head, n_kv, d_head, 211, window, kind=kind, integer=kind == "q4_0", profiles=packed_profiles(profiles))
        for _ in range(2)
    )
    q, k, v = layer.inputs(163)
    layer.store(k, v, (163, 1, 0))
    cuts = ((0, 61), (61, 62), (62, 70), (70, 163))
    y = np.concatenate([layer.attend(q[s:e], (e - s, 1, s), states=states[s:e]) for s, e in cuts])
    pos, sinks = np.arange(163), states[:, -n_head:]
    bias = twin.distance_bias(states[:, :-n_head].reshape(163, n_head, n), profiles, pos, 163)
    seen = twin.kept(k, kind), twin.kept(v, kind), pos, layer.scale, window
    error = worst(y, twin.attention(q, *seen, sinks=sinks, bias=bias))
    print(f"distance bias {kind} {shape}: error {error:.1e}")
    assert error < (0.07 if kind == "q4_0" else 8e-6)  # integer products round queries and weights
    assert worst(y, twin.attention(q, *seen, sinks=sinks)) > 0.1, "the bias changed nothing"
    assert worst(y, twin.attention(q, *seen, bias=bias)) > 0.1, "the sinks changed nothing"
    single.store(k, v, (163, 0, 0))
    one = [single.attend(q[t : t + 1], (1, 0, t), n_threads=1 + t % 3, states=states[t : t + 1]) for t in range(163)]
    assert same_bits(np.concatenate(one), y)


@pytest.mark.parametrize("window", [0, 700])
def test_over_chunks(window: int) -> None:
    """Chunks shared among threads or not; the extent ends within a chunk, and within a block."""
    n, n_head = 1400, 6
    rng = np.random.default_rng(5)
    profiles, states = rng.standard_normal((3, 600), np.float32), rng.standard_normal((n, n_head * 4), np.float32)
    layer = Layer(n_head, 2, 24, n, window, profiles=packed_profiles(profiles))
    q, k, v = layer.inputs(n)
    layer.store(k, v, (n, 1, 0))
    y = layer.attend(q, (n, 1, 0), states=states)
    some = np.array([0, 511, 512, 513, 1023, 1024, 1399])
    bias = twin.distance_bias(states[some, : 3 * n_head].reshape(-1, n_head, 3), profiles, some, n)
    want = twin.attention(q[some], k, v, some, layer.scale, window, sinks=states[some, -n_head:], bias=bias)
    assert worst(y[some], want) < 5e-6
    for t, count in ((1399, 1), (1024, 1), (1030, 3), (510, 4)):
        for n_threads in (1, 3, 9):
            part = layer.attend(q[t : t + count], (count, 1, t), n_threads=n_threads, states=states[t : t + count])
            assert same_bits(part, y[t : t + count]), (t, count, n_threads)


def test_a_bias_of_nothing_changes_no_bit() -> None:
    plain, leaning = (Layer(5, 1, 19, 90, profiles=packed_profiles(np.zeros((2, 7), np.float32))) for _ in range(2))
    inputs = plain.inputs(80)
    states = np.ones((80, 5 * 3), np.float32)
    states[:, -5:] = -1e30
    leaning.store(inputs[1], inputs[2], (80, 0, 0))
    assert same_bits(plain.step(inputs, (80, 0, 0)), leaning.attend(inputs[0], (80, 0, 0), states=states))
