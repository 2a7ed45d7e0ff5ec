"""A resize of bytes in plain Python, in f64: one pixel after the other, from the definition of its filter.

`resized` rounds weights to whole units, as torchvision does; `resized_exactly` does not.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np


def triangle(x: float) -> float:
    return 1 - abs(x) if abs(x) < 1 else 0.0


def cubic(x: float, a: float = -0.5) -> float:
    x = abs(x)
    if x < 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0


def lobes(x: float) -> float:
    def sinc(y: float) -> float:
        return 1.0 if y == 0 else math.sin(math.pi * y) / (math.pi * y)

    return sinc(x) * sinc(x / 3) if abs(x) < 3 else 0.0


FILTERS: dict[str, tuple[Callable[[float], float], int]] = {
    "bilinear": (triangle, 1), "bicubic": (cubic, 2), "lanczos": (lobes, 3),
}  # fmt: skip


def shares(n_in: int, n_out: int, resample: str) -> Iterator[dict[int, float]]:
    """For every output: input -> its weight; they add up to 1."""
    weight, radius = FILTERS[resample]
    scale = n_in / n_out
    stretch = max(scale, 1)
    for i in range(n_out):
        centre = (i + 0.5) * scale
        begin = max(int(centre - radius * stretch + 0.5), 0)
        end = min(int(centre + radius * stretch + 0.5), n_in)
        found = {j: weight((j - centre + 0.5) / stretch) for j in range(begin, end)}
        total = sum(found.values())
        yield {j: w / total for j, w in found.items()}


def whole(all_shares: list[dict[int, float]]) -> list[dict[int, float]]:
    """Weights rounded to units of 2^-bits, half away from zero."""
    largest = max(w for row in all_shares for w in row.values())
    bits = next(bits for bits in range(23) if bits == 22 or int(largest * 2 ** (bits + 1) + 0.5) >= 2**15)
    return [{j: math.floor(abs(w) * 2**bits + 0.5) * math.copysign(1, w) / 2**bits for j, w in row.items()}
            for row in all_shares]  # fmt: skip


def one_pass(rows: np.ndarray, weights: list[dict[int, float]]) -> np.ndarray:
    """u8 [n, ..] -> u8 [len(weights), ..]: rounded, half up, and clamped."""
    out = np.empty((len(weights), *rows.shape[1:]), np.uint8)
    for i, row in enumerate(weights):
        for place in np.ndindex(*rows.shape[1:]):
            value = math.floor(sum(w * int(rows[(j, *place)]) for j, w in row.items()) + 0.5)
            out[(i, *place)] = min(max(value, 0), 255)
    return out


def resized(rgb: np.ndarray, height: int, width: int, resample: str, round_weights: bool = True) -> np.ndarray:
    """u8 [h, w, 3] -> u8 [height, width, 3]: columns first."""
    chosen = whole if round_weights else list
    columns = one_pass(rgb.swapaxes(0, 1), chosen(list(shares(rgb.shape[1], width, resample)))).swapaxes(0, 1)
    return one_pass(columns, chosen(list(shares(rgb.shape[0], height, resample))))


def resized_exactly(rgb: np.ndarray, height: int, width: int, resample: str) -> np.ndarray:
    return resized(rgb, height, width, resample, round_weights=False)
