"""Small models with random weights of every family, in every weight type, made once."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import random_checkpoints
from made_models import ROOT, made, sources

from hybrid.convert import convert
from hybrid.infer.bench.shapes import ModelShape, write_shape
from hybrid.quant import quantize
from hybrid.quant.ggml.types import FileType

TOKENIZER = ROOT / "tests" / "data" / "checkpoints" / "mamba-bf16"


@cache
def random_model(shape: ModelShape | str, file_type: FileType = FileType.F32) -> Path:
    """The GGUF file of a shape, or of a config of random_checkpoints.CONFIGS by its name."""
    makers = sources("convert", "quant", "infer/bench", "tests/random_checkpoints.py")
    if isinstance(shape, ModelShape):
        name = f"{shape.name}-{file_type.name}.gguf"
        return made(name, f"{makers} {shape}", lambda path: write_shape(shape, path, file_type))
    name, key = f"{shape}-{file_type.name}.gguf", f"{makers} {random_checkpoints.CONFIGS[shape]}"
    if file_type is FileType.F32:
        return made(name, key, lambda path: _convert(shape, path))
    return made(name, key, lambda path: quantize(random_model(shape), path, file_type, n_threads=1))


def _convert(name: str, path: Path) -> None:
    with TemporaryDirectory() as folder:
        source = random_checkpoints.write(random_checkpoints.CONFIGS[name], Path(folder) / name)
        convert(source, path, outtype="f32", tokenizer=TOKENIZER)
