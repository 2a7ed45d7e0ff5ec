"""The names that `hybrid.infer` offers."""

import pytest

from hybrid import infer


def test_the_name_of_earlier_versions_works() -> None:
    assert infer.Model is infer.LoadedModel
    assert "Model" not in infer.__all__
    with pytest.raises(AttributeError, match=r"module 'hybrid\.infer' has no attribute 'Models'"):
        infer.Models  # noqa: B018
