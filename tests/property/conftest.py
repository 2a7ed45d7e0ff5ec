"""Small random models of every family, in every weight type."""

from collections.abc import Callable
from pathlib import Path

import pytest
import random_models

from hybrid.infer.bench.shapes import ModelShape
from hybrid.quant.ggml.types import FileType


@pytest.fixture(scope="session")
def random_model() -> Callable[[ModelShape | str, FileType], Path]:
    """random_model(shape or name in CONFIGS, type) -> path of the GGUF file."""
    return random_models.random_model
