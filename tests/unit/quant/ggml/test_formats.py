"""Block formats against frozen blocks, layouts spelt out in plain Python, and the gguf package."""

import math
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import quants

from hybrid.quant.ggml import formats
from hybrid.quant.ggml.errors import FormatError
from hybrid.quant.ggml.types import TRAITS, GGMLType

F32, F16, BF16, Q8_0, Q4_0 = GGMLType.F32, GGMLType.F16, GGMLType.BF16, GGMLType.Q8_0, GGMLType.Q4_0
Q4_1, Q5_0, Q5_1, MXFP4, NVFP4 = GGMLType.Q4_1, GGMLType.Q5_0, GGMLType.Q5_1, GGMLType.MXFP4, GGMLType.NVFP4
Q1_0, Q2_0, TQ1_0, TQ2_0 = GGMLType.Q1_0, GGMLType.Q2_0, GGMLType.TQ1_0, GGMLType.TQ2_0
WRITTEN = [k for k in GGMLType if formats.can_encode(k)]
GOLDEN = np.load(Path(__file__).resolve().parents[3] / "golden" / "blocks" / "blocks.npz")


@pytest.mark.parametrize("kind", [F16, BF16, Q8_0, Q4_0], ids=lambda k: k.name)
def test_golden_blocks(kind: GGMLType) -> None:
    encoded = formats.encode(kind, GOLDEN["x"])
    np.testing.assert_array_equal(encoded, GOLDEN[kind.name])
    np.testing.assert_array_equal(formats.decode(kind, encoded), GOLDEN[f"{kind.name}_decoded"])


@pytest.mark.exhaustive  # bytes of the same encoders are golden: above, and in test_formats_encoders.py
@pytest.mark.parametrize("kind", [F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, TQ1_0, TQ2_0, MXFP4], ids=lambda k: k.name)
def test_same_as_the_gguf_package(kind: GGMLType) -> None:
    """Enough blocks to reach roundings that occur once in a million weights."""
    rng = np.random.default_rng(1)
    block = max(TRAITS[kind].block, 32)
    x = rng.standard_normal((40_000 * 32 // block, block)).astype(np.float32)
    x[::3] = rng.integers(-128, 128, x[::3].shape) / 4  # many halves and equal magnitudes
    x *= np.float32(2) ** rng.integers(-12, 10, (len(x), 1)).astype(np.float32)
    other = gguf.GGMLQuantizationType[kind.name]
    expected = np.ascontiguousarray(quants.quantize(x, other)).view(np.uint8).reshape(len(x), -1)
    encoded = formats.encode(kind, x)
    np.testing.assert_array_equal(encoded, expected)
    np.testing.assert_array_equal(formats.decode(kind, encoded), quants.dequantize(encoded, other))


def q8_0_by_hand(x: list[float]) -> bytes:
    f32 = np.float32
    d = max(map(abs, map(f32, x))) / f32(127)
    inverse = f32(1) / d if d else f32(0)
    q = [int(math.copysign(math.floor(float(abs(f32(v) * inverse)) + 0.5), v)) for v in x]
    return struct.pack("<e32b", float(d), *q)


def test_q8_0_layout() -> None:
    x = [0.5 * (i - 20) for i in range(32)]
    block = formats.encode(Q8_0, np.array(x, np.float32))
    assert block.tobytes() == q8_0_by_hand(x)
    assert block[2:].view(np.int8)[:3].tolist() == [-127, -121, -114]


def test_q8_0_rounds_halves_away_from_zero() -> None:
    """With a largest weight of 127, d = 1 and q = round(w): 0.49999997 must not become 1."""
    below = np.nextafter(np.float32(0.5), np.float32(0))
    x = np.zeros(32, np.float32)
    x[:9] = 127, 0.5, -0.5, 1.5, 2.5, -2.5, below, -below, 126.5
    q = formats.encode(Q8_0, x)[2:].view(np.int8)
    assert q[:9].tolist() == [127, 1, -1, 2, 3, -3, 0, 0, 127]


def test_q4_0_layout() -> None:
    x = np.zeros(32, np.float32)
    x[0], x[1], x[16], x[31] = -8, 7, 3, -1
    block = formats.encode(Q4_0, x)
    assert block[:2].view("<f2")[0] == 1
    assert block[2:].tolist() == [0 | 11 << 4, 15 | 8 << 4, *[8 | 8 << 4] * 13, 8 | 7 << 4]
    np.testing.assert_array_equal(formats.decode(Q4_0, block), x)


def test_q4_0_scale_has_the_sign_of_the_first_largest() -> None:
    x = np.ones((3, 32), np.float32)
    x[0, ::2] = -1
    x[1, 1::2] = -1
    scales = formats.encode(Q4_0, x)[:, :2].copy().view("<f2")[:, 0]
    assert scales.tolist() == [0.125, -0.125, -0.125]


def test_blocks_of_zeros() -> None:
    """As in ggml: d is +0 in Q8_0, -0 in Q4_0, also when the zeros are negative."""
    for x in (np.zeros(32, np.float32), -np.zeros(32, np.float32)):
        assert formats.encode(Q8_0, x).tobytes() == bytes(34)
        assert formats.encode(Q4_0, x).tobytes() == b"\x00\x80" + b"\x88" * 16


@pytest.mark.parametrize("kind", [k for k in WRITTEN if k not in (F32, BF16, MXFP4)], ids=lambda k: k.name)
def test_tiny_weights_become_zeros(kind: GGMLType) -> None:
    """1 / d overflows f32 if d is subnormal; the stored weights are zero, not garbage."""
    x = np.linspace(-1e-41, 1e-41, 256, dtype=np.float32)
    assert not formats.decode(kind, formats.encode(kind, x)).any()


def test_f16_and_bf16_round_to_nearest_even() -> None:
    one = np.float32(1)
    half_step = {F16: np.float32(2.0**-11), BF16: np.float32(2.0**-8)}
    for kind, h in half_step.items():
        x = np.array([one + h, one + 3 * h, np.nextafter(one + h, np.float32(2)), -(one + h)], np.float32)
        expected = [one, one + 4 * h, one + 2 * h, -one]
        assert formats.decode(kind, formats.encode(kind, x)).tolist() == expected


def test_bf16_keeps_nan_and_infinity() -> None:
    bits = np.array([0x7F800001, 0xFFFFFFFF, 0x7FC00000, 0x7F800000, 0xFF800000, 0x7F7FFFFF], np.uint32)
    stored = formats.encode(BF16, bits.view(np.float32)).view("<u2")
    assert [hex(v) for v in stored] == ["0x7fc0", "0xffff", "0x7fc0", "0x7f80", "0xff80", "0x7f80"]


def test_f16_beyond_its_range_is_infinite() -> None:
    x = np.array([65504, 65519, 65520, -1e9], np.float32)
    assert formats.decode(F16, formats.encode(F16, x)).tolist() == [65504, 65504, np.inf, -np.inf]


@pytest.mark.parametrize("kind", WRITTEN, ids=lambda k: k.name)
def test_shapes_chunks_and_outputs(kind: GGMLType) -> None:
    """Three dimensions, more values than a chunk, an incomplete last chunk, non-contiguous input."""
    traits = TRAITS[kind]
    n = math.lcm(traits.block, 96)
    middle = 160 * 96 // n
    x = np.random.default_rng(2).standard_normal((3, middle, 5, n)).astype(np.float32).transpose(0, 2, 1, 3)
    assert x.size > formats.CHUNK and x.size % formats.CHUNK
    raw = formats.encode(kind, x)
    assert raw.shape == (3, 5, middle, n // traits.block * traits.nbytes)
    out = np.zeros_like(raw)
    assert formats.encode(kind, x, out) is out
    np.testing.assert_array_equal(out, raw)
    np.testing.assert_array_equal(formats.encode(kind, x[2, 3, 17]), raw[2, 3, 17])
    values = formats.decode(kind, raw)
    assert values.shape == x.shape
    copy = np.zeros(x.shape, np.float32)
    assert formats.decode(kind, raw, copy) is copy
    np.testing.assert_array_equal(copy, values)
    np.testing.assert_array_equal(formats.decode(kind, raw[1:, ::2]), values[1:, ::2])
    error = np.abs(values - x).max() / np.abs(x).max()
    print(kind.name, error)
    bounds = {
        F32: 0, F16: 5e-4, BF16: 4e-3, Q8_0: 4.5e-3, Q4_0: 0.126, Q4_1: 0.07, Q5_0: 0.063, Q5_1: 0.034, MXFP4: 0.25,
            GGMLType.Q2_K: 0.35, GGMLType.Q3_K: 0.25, GGMLType.Q4_K: 0.075, GGMLType.Q5_K: 0.04, GGMLType.Q6_K: 0.035,
            GGMLType.IQ4_NL: 0.12, GGMLType.IQ4_XS: 0.12, GGMLType.IQ3_S: 0.36, GGMLType.IQ3_XXS: 0.36,
            GGMLType.IQ2_S: 0.45, GGMLType.IQ2_XS: 0.45, GGMLType.IQ2_XXS: 0.5, GGMLType.IQ1_M: 0.8,
            GGMLType.IQ1_S: 0.8,
        NVFP4: 0.18, Q1_0: 0.9, Q2_0: 0.501, TQ1_0: 0.501, TQ2_0: 0.501, GGMLType.PQ2_0: 0.8, GGMLType.PTQ1_0: 0.8,
    }  # fmt: skip
    assert error <= bounds[kind]


@pytest.mark.parametrize("kind", [Q8_0, Q4_0], ids=lambda k: k.name)
def test_rows_that_are_not_whole_blocks(kind: GGMLType) -> None:
    with pytest.raises(FormatError, match=rf"^row of 48 values is not a multiple of 32 \({kind.name}\)$"):
        formats.encode(kind, np.zeros((2, 48), np.float32))


@pytest.mark.parametrize("kind", [k for k in WRITTEN if k not in (F32, BF16, MXFP4, NVFP4)], ids=lambda k: k.name)
@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e9])
def test_what_cannot_be_stored_does_not_decode_to_numbers(kind: GGMLType, value: float) -> None:
    if kind in (GGMLType.Q3_K, GGMLType.IQ2_XXS, GGMLType.IQ1_M) and np.isinf(value):
        pytest.skip("its search passes over infinity: callers look for that in the weights")
    x = np.ones((2, 256), np.float32)
    x[1, 7] = value
    values = formats.decode(kind, formats.encode(kind, x))
    np.testing.assert_array_equal(np.isfinite(values).all(axis=1), [True, False])


def test_q4_1_layout() -> None:
    x = np.zeros(32, np.float32)
    x[0], x[1], x[16], x[31] = -3, 12, 4, -2
    block = formats.encode(Q4_1, x)
    assert block[:4].view("<f2").tolist() == [1, -3]
    assert block[4:].tolist() == [0 | 7 << 4, 15 | 3 << 4, *[3 | 3 << 4] * 13, 3 | 1 << 4]
    np.testing.assert_array_equal(formats.decode(Q4_1, block), x)


def test_q5_layouts() -> None:
    x = np.zeros(32, np.float32)
    x[0], x[1], x[16], x[31] = -16, 15, 3, -1
    block = formats.encode(Q5_0, x)
    assert block[:2].view("<f2")[0] == 1
    assert int(block[2:6].view("<u4")[0]) == 0xFFFFFFFF ^ 1 << 0 ^ 1 << 31
    assert block[6:].tolist() == [0 | 3 << 4, 15 | 0 << 4, *[0] * 13, 0 | 15 << 4]
    np.testing.assert_array_equal(formats.decode(Q5_0, block), x)
    block = formats.encode(Q5_1, x)
    assert block[:4].view("<f2").tolist() == [1, -16]
    assert int(block[4:8].view("<u4")[0]) == 0xFFFFFFFF ^ 1 << 0 ^ 1 << 31
    np.testing.assert_array_equal(formats.decode(Q5_1, block), x)


def test_ternary_layouts() -> None:
    """The weight at each index of a block, spelt out; all others are 0."""
    for place in (0, 31, 32, 159, 160, 175, 239, 240, 243, 255):
        x = np.zeros(256, np.float32)
        x[place] = -2
        trits = formats.encode(TQ1_0, x)
        assert trits[52:].view("<f2")[0] == 2
        if place < 160:
            byte, digit, count = place % 32, place // 32, 5
        elif place < 240:
            byte, digit, count = 32 + (place - 160) % 16, (place - 160) // 16, 5
        else:
            byte, digit, count = 48 + (place - 240) % 4, (place - 240) // 4, 4
        value = sum((0 if i == digit else 1) * 3 ** (4 - i) for i in range(count))
        assert trits[byte] == -(-value * 256 // 243)
        np.testing.assert_array_equal(formats.decode(TQ1_0, trits), x)
        fields = formats.encode(TQ2_0, x)
        assert fields[32 * (place // 128) + place % 32] == 0x55 - (1 << 2 * (place % 128 // 32))
        np.testing.assert_array_equal(formats.decode(TQ2_0, fields), x)


def test_fp4_takes_the_smaller_of_two_that_are_equally_near() -> None:
    x = np.zeros(64, np.float32)
    x[:16] = 6, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, -0.25, -0.75, -1.25, -1.75, -2.5, -3.5, -5, -6
    expected = [6, 0, 0.5, 1, 1.5, 2, 3, 4, 0, -0.5, -1, -1.5, -2, -3, -4, -6]
    for kind in (MXFP4, NVFP4):
        assert formats.decode(kind, formats.encode(kind, x))[:16].tolist() == expected


def test_nvfp4_scales() -> None:
    """Round to nearest, ties up; subnormals; 448 from 256 on; 0 for groups that are too small."""
    d = np.array([1, 1.0625, 1.0624, 0.5 + 1e-3, 3 * 2.0**-9, 2.5 * 2.0**-9, 2.0**-10, 2.0**-11, 255, 256, 448, 1e6])
    x = np.zeros((len(d), 64), np.float32)
    x[:, 3] = 6 * d
    codes = formats.encode(NVFP4, x)[:, 0].tolist()
    assert codes == [56, 57, 56, 48, 3, 3, 1, 0, 126, 126, 126, 126]
