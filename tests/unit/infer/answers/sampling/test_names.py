"""Settings under other programs' names."""

from dataclasses import fields

import pytest

from hybrid.infer.answers.sampling import SamplingParams
from hybrid.infer.answers.sampling.names import LISTS, OTHER_NAMES, SettingError, with_settings
from hybrid.quant.ggml.errors import UsageError

BASE = SamplingParams(top_k=7)


def test_names_are_of_fields() -> None:
    known = {field.name for field in fields(SamplingParams)}
    assert set(OTHER_NAMES.values()) | set(LISTS) <= known
    assert not set(OTHER_NAMES) & known


def test_values_by_any_name() -> None:
    given = {"temperature": 0.3, "repetition_penalty": 1.5, "min_p": 0.2, "dry_sequence_breakers": ["a", "b"]}
    want = SamplingParams(top_k=7, temp=0.3, repeat_penalty=1.5, min_p=0.2, dry_breakers=("a", "b"))
    assert with_settings(BASE, given) == want
    assert with_settings(BASE, {}) == BASE == SamplingParams(top_k=7)


@pytest.mark.parametrize(("name", "value"), [("temperature", -1e9), ("typical_p", 0.0), ("top_p", 2.0)])
def test_a_wrong_value_has_the_name_that_was_given(name: str, value: float) -> None:
    with pytest.raises(SettingError, match=f"^{name} = {value}, expected") as error:
        with_settings(BASE, {"min_p": 0.1, name: value})
    assert error.value.name == name


def test_two_that_do_not_go_together_are_no_ones_fault() -> None:
    with pytest.raises(UsageError, match="mirostat and adaptive_target") as error:
        with_settings(BASE, {"mirostat": 2, "adaptive_target": 0.5})
    assert not isinstance(error.value, SettingError)
