"""Values that a file may have for the decay of recurrences."""

import numpy as np
import pytest

from hybrid.infer.layers.base import A_LOWEST, decay_logs
from hybrid.quant.ggml.errors import FormatError


class File:
    """Weights with one tensor."""

    class gguf:  # noqa: N801  as Weights has it
        class path:  # noqa: N801
            name = "m.gguf"

    def __init__(self, *values: float) -> None:
        self.values = np.array(values, np.float32)

    def squeezed(self, name: str, *shape: int) -> np.ndarray:
        return self.values.reshape(shape)


def read(*values: float, positive: bool = False) -> np.ndarray:
    return decay_logs(File(*values), "blk.0.ssm_a", len(values), 1, positive=positive)  # type: ignore[arg-type]


def test_either_sign_as_it_is_asked_for() -> None:
    assert read(-2.0, 0.0).tolist() == [[-2.0], [0.0]]
    assert read(2.0, 0.0, positive=True).tolist() == [[2.0], [0.0]]


@pytest.mark.parametrize(
    ("values", "positive", "expected"),
    [
        ((-1.0, 1e-9), False, "-exp(A_log), which is not positive"),
        ((-1.0, 2 * A_LOWEST), False, "-exp(A_log), which is not positive"),
        ((1.0, -1e-9), True, "expected exp(A_log), which is not negative"),
        ((1.0, -2 * A_LOWEST), True, "expected exp(A_log), which is not negative"),
    ],
)
def test_what_is_refused(values: tuple[float, ...], positive: bool, expected: str) -> None:
    with pytest.raises(FormatError) as caught:
        read(*values, positive=positive)
    assert "m.gguf: blk.0.ssm_a has values from" in str(caught.value) and expected in str(caught.value)
