"""Settings of a request: special values of other servers."""

from types import SimpleNamespace
from typing import Any

import pytest

from hybrid.infer.answers.sampling.names import SettingError
from hybrid.infer.answers.sampling.params import SamplingParams
from hybrid.infer.answers.sampling.requested import with_requested

TOKENIZER: Any = SimpleNamespace(encode=lambda text, add_special: [7, 8])


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"temperature": -1}, "temp", 0),
        ({"temperature": 0.5}, "temp", 0.5),
        ({"top_p": 0}, "top_p", 1e-30),
        ({"seed": -1}, "seed", None),
        ({"seed": -2}, "seed", 2**64 - 2),
        ({"repetition_penalty": 1.1}, "repeat_last_n", -1),
        ({"logit_bias": {"word": -100}}, "logit_bias", {7: -float("inf"), 8: -float("inf")}),
    ],
)
def test_special_values(given: dict[str, Any], field: str, value: Any) -> None:
    assert getattr(with_requested(SamplingParams(), given, TOKENIZER), field) == value


@pytest.mark.parametrize("value", [-1e9, float("nan"), 1e9])
def test_a_temperature_out_of_range_is_refused(value: float) -> None:
    with pytest.raises(SettingError, match=r"temperature = .*, expected a number from 0 to 1e"):
        with_requested(SamplingParams(), {"temperature": value}, TOKENIZER)
