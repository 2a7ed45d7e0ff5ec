"""One-pass encoding against the formats' numpy code and `error_sums`, to the bit."""

import numpy as np
import pytest
from numba import njit

from hybrid.quant.ggml import formats
from hybrid.quant.ggml.kernels import coding, halves, recode
from hybrid.quant.ggml.kernels.errors import error_sums
from hybrid.quant.ggml.kernels.lanes import load32, store, to_u16, widened
from hybrid.quant.ggml.types import GGMLType

pytestmark = pytest.mark.exhaustive

SOURCES = (GGMLType.F32, GGMLType.F16, GGMLType.BF16)
TARGETS = sorted(recode.TARGETS)


def stored(source: GGMLType, n: int) -> np.ndarray:
    """u8 [60, bytes of n weights]: ties of both signs, zeros, tiny and large numbers, at an odd address."""
    rng = np.random.default_rng(n)
    x = rng.standard_normal((60, n)).astype(np.float32)
    x[::3] = rng.integers(-4, 5, x[::3].shape)
    x *= np.float32(2) ** rng.integers(-12, 10, (60, 1)).astype(np.float32)
    x[:3] = np.array([[0], [-0.0], [1e-41]])
    raw = formats.encode(source, x)
    odd = np.zeros(raw.size + 1, np.uint8)[1:].reshape(raw.shape)
    odd[...] = raw
    return odd


@pytest.mark.parametrize(
    ("source", "target"),
    [*((GGMLType.BF16, target) for target in TARGETS), (GGMLType.F16, GGMLType.Q8_0), (GGMLType.F32, GGMLType.Q8_0)],
    ids=lambda k: k.name,
)
@pytest.mark.parametrize("n", [32, 352])
def test_bytes_and_sums(source: GGMLType, target: GGMLType, n: int) -> None:
    raw = stored(source, n)
    x = np.ascontiguousarray(formats.decode(source, raw))
    expected = formats.encode(target, x)
    of_rows = np.full((60, 3), np.nan)
    assert error_sums(x, formats.decode(target, expected), of_rows)
    out, sums = np.full_like(expected, 0xA5), np.full((60, 3), np.nan)
    assert recode.can_recode(source, target, n) and recode.recode(source, target, raw, out, sums)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(sums, of_rows)


@pytest.mark.parametrize("source", SOURCES, ids=lambda k: k.name)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [(0, 0), (4, 95)])
def test_what_is_no_number(source: GGMLType, value: float, at: tuple[int, int]) -> None:
    x = np.ones((5, 96), np.float32)
    raw = formats.encode(source, x)
    out, sums = np.empty((5, 102), np.uint8), np.empty((5, 3))
    assert recode.all_finite(source, raw) and recode.recode(source, GGMLType.Q8_0, raw, out, sums)
    x[at] = value
    raw = formats.encode(source, x)
    assert not recode.all_finite(source, raw) and not recode.recode(source, GGMLType.Q8_0, raw, out, sums)


def test_what_goes_another_way() -> None:
    assert not recode.can_recode(GGMLType.BF16, GGMLType.F16, 48)
    assert not recode.can_recode(GGMLType.Q8_0, GGMLType.Q4_0, 64)
    assert not recode.can_recode(GGMLType.F32, GGMLType.Q6_K, 256)


def test_halves_without_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instructions for halves, where the processor has them, give the integer code's results."""

    def compiled() -> tuple[object, object]:
        bits_of, half_of = njit(halves.half_bits.py_func), njit(halves.of_half.py_func)  # type: ignore[attr-defined]

        @njit(error_model="numpy")
        def there(x, out):  # type: ignore[no-untyped-def]
            for i in range(0, len(x), 32):
                store(out, i, to_u16(bits_of(load32(x, i))))

        @njit(error_model="numpy")
        def back(raw, out):  # type: ignore[no-untyped-def]
            for i in range(0, len(out), 32):
                store(out, i, half_of(widened(load32(raw, i))))

        return there, back

    some = np.random.default_rng(3).integers(0, 1 << 32, 320_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    some[:8] = 65504, 65519, 65520, 6e-8, 2.98e-8, -6.1e-5, np.inf, -0.0
    some[np.isnan(some)] = 0
    every = np.arange(1 << 16, dtype=np.uint16)
    there, back = compiled()
    monkeypatch.setattr(halves, "HARDWARE_HALVES", False)
    there_plain, back_plain = compiled()
    encoded, values = np.zeros((2, some.size), np.uint16), np.zeros((2, every.size), np.float32)
    for i, (forth, home) in enumerate(((there, back), (there_plain, back_plain))):
        forth(some, encoded[i])  # type: ignore[operator]
        home(every, values[i])  # type: ignore[operator]
    np.testing.assert_array_equal(encoded[0], encoded[1])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(encoded[0], some.astype(np.float16).view(np.uint16))
    number = ~np.isnan(values[0])
    assert number.sum() == (1 << 16) - 2 * 1023
    np.testing.assert_array_equal(values[0][number].view(np.uint32), values[1][number].view(np.uint32))


def test_codes_of_floats_of_any_length() -> None:
    """Rows with incomplete vectors take the kernels of `halves`."""
    x = np.random.default_rng(5).standard_normal((3, 37)).astype(np.float32)
    for kind in (GGMLType.F16, GGMLType.BF16):
        out = np.zeros((3, 74), np.uint8)
        coding.encode(kind, x, out)
        np.testing.assert_array_equal(out, formats.encode(kind, x))
