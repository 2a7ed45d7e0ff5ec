"""Small models of every family with random weights, in every weight type."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import random_checkpoints
from made_models import made, sources

from hybrid.convert import convert
from hybrid.infer.bench.shapes import Shape, write_shape
from hybrid.quant import quantize
from hybrid.quant.ggml.types import FileType


@pytest.fixture(scope="session")
def random_model(data_dir: Path) -> Callable[[Shape | str, FileType], Path]:
    """random_model(shape or name in CONFIGS, type) -> path of the GGUF file."""
    makers = sources("convert", "quant", "infer/bench", "tests/random_checkpoints.py")

    @cache
    def make(shape: Shape | str, file_type: FileType) -> Path:
        if isinstance(shape, Shape):
            name = f"{shape.name}-{file_type.name}.gguf"
            return made(name, f"{makers} {shape}", lambda path: write_shape(shape, path, file_type))
        name, key = f"{shape}-{file_type.name}.gguf", f"{makers} {random_checkpoints.CONFIGS[shape]}"
        if file_type is FileType.F32:
            return made(name, key, lambda path: converted(shape, path))
        return made(name, key, lambda path: quantize(make(shape, FileType.F32), path, file_type, n_threads=1))

    def converted(name: str, path: Path) -> None:
        with TemporaryDirectory() as folder:
            source = random_checkpoints.write(random_checkpoints.CONFIGS[name], Path(folder) / name)
            convert(source, path, outtype="f32", tokenizer=data_dir / "checkpoints" / "mamba-bf16")

    return make
