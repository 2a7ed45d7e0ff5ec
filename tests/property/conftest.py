"""Small models of every family with random weights, in every weight type."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hybrid.infer.bench.shapes import Shape, write_shape
from hybrid.quant.ggml.types import FileType


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Shape, FileType], Path]:
    folder = tmp_path_factory.mktemp("random-models")

    def make(shape: Shape, file_type: FileType) -> Path:
        path = folder / f"{shape.name}-{file_type.name}.gguf"
        return path if path.exists() else write_shape(shape, path, file_type)

    return make
