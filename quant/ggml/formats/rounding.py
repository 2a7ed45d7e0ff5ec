"""Rounding as C's roundf does it."""

import numpy as np

# trunc(y + copysign(0.49999997, y)) rounds halves away from zero, as C's roundf does and np.rint does not; with 0.5
# itself, 0.49999997 + 0.5 would round up to 1. The sign is copied as a bit, since np.copysign has no SIMD loop.
_HALF = np.nextafter(np.float32(0.5), np.float32(0.0)).view(np.uint32)
_SIGN = np.uint32(0x80000000)


def before_truncation(y: np.ndarray) -> np.ndarray:
    """y f32, changed in place and returned: what a cast to an integer makes the nearest, halves away from zero."""
    half = y.view(np.uint32) & _SIGN
    half |= _HALF
    y += half.view(np.float32)
    return y
