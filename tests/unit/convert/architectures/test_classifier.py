"""The labels of a config."""

from typing import Any

import pytest

from hybrid.convert.architectures.classifier import read_labels
from hybrid.convert.checkpoint import Config
from hybrid.quant.ggml.errors import CheckpointError


def test_labels() -> None:
    names = {"1": "near", "0": "far", **{str(i): f"more {i}" for i in range(2, 11)}}
    assert read_labels(Config({"id2label": names}, "c"))[:3] == ("far", "near", "more 2")
    assert read_labels(Config({}, "c")) == ("LABEL_0", "LABEL_1")
    assert read_labels(Config({"num_labels": 1}, "c")) == ("LABEL_0",)


@pytest.mark.parametrize("names", [{}, [], {"1": "a"}, {"0": "a", "x": "b"}, {"0": 3}])
def test_labels_that_are_none(names: Any) -> None:
    with pytest.raises(CheckpointError, match="id2label"):
        read_labels(Config({"id2label": names}, "config.json"))
