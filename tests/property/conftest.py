"""Small models of every family with random weights, in every weight type."""

from collections.abc import Callable
from pathlib import Path

import pytest
import random_checkpoints

from hybrid.convert import convert
from hybrid.infer.bench.shapes import Shape, write_shape
from hybrid.quant import quantize
from hybrid.quant.ggml.types import FileType


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Callable[[Shape | str, FileType], Path]:
    """random_model(shape or name in CONFIGS, type) -> path of the GGUF file."""
    folder = tmp_path_factory.mktemp("random-models")

    def make(shape: Shape | str, file_type: FileType) -> Path:
        if isinstance(shape, Shape):
            path = folder / f"{shape.name}-{file_type.name}.gguf"
            return path if path.exists() else write_shape(shape, path, file_type)
        path = folder / f"{shape}-{file_type.name}.gguf"
        if not path.exists() and file_type is FileType.F32:
            source = random_checkpoints.write(random_checkpoints.CONFIGS[shape], folder / shape)
            convert(source, path, outtype="f32", tokenizer=data_dir / "checkpoints" / "mamba-bf16")
        elif not path.exists():
            quantize(make(shape, FileType.F32), path, file_type, n_threads=1)
        return path

    return make
