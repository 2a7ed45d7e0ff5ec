"""Keys that a file may have for convolved attention, checked before any kernel runs."""

import pytest

from hybrid.infer.layers.convolved_attention import ConvolvedAttention
from hybrid.quant.ggml.errors import FormatError


class File:
    """Weights for tests of errors only."""

    def wrong(self, key: str, value: int, expected: str) -> FormatError:
        return FormatError(f"{key} = {value}, expected {expected}")


@pytest.mark.parametrize(
    ("n_kv", "d_head", "taps", "message"),
    [
        (1, 7, (2, 2), "attention.key_length = 7, expected an even number of values"),
        (2, 8, (1, 1), "attention.conv_kernel = 1, expected 2 or more, where ssm.conv_kernel is 1"),
        (3, 8, (2, 2), "attention.head_count_kv = 3, expected a divisor of the 4 query heads"),
    ],
)
def test_impossible_sizes(n_kv: int, d_head: int, taps: tuple[int, int], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        ConvolvedAttention(0, 32, 4, n_kv, d_head, taps=taps).load(File())  # type: ignore[arg-type]


def test_what_it_keeps() -> None:
    """Keys and values, and the inputs of both convolutions with half of the values."""
    attention, mixed = ConvolvedAttention(3, 96, 6, 2, 20, window=11, taps=(3, 4)).memory()
    assert (attention.layer, attention.n_kv, attention.d_head, attention.window) == (3, 2, 20, 11)
    assert mixed.shapes == {"blk.3.conv": (5, 160), "blk.3.ssm": (20, 1)}
