"""MiniCPM with sparse attention: contexts end before it."""

from pathlib import Path

import pytest
import random_checkpoints
from random_checkpoints import CONFIGS

from hybrid.convert import convert
from hybrid.infer import LoadedModel
from hybrid.quant.ggml.errors import UnsupportedError
from hybrid.quant.ggml.reader import GGUFFile


@pytest.mark.parametrize("name", ["minicpm", "minicpm-sala"])
def test_contexts_end_before_sparse_attention(name: str, data_dir: Path, tmp_path: Path) -> None:
    config = {**CONFIGS[name], "sparse_config": {"dense_len": 100}, "max_position_embeddings": 300}
    checkpoint = random_checkpoints.write(config, tmp_path / "model")
    tokenizer = data_dir / "checkpoints" / "mamba-bf16"
    path = convert(checkpoint, tmp_path / "model.gguf", outtype="f32", tokenizer=tokenizer).output
    with GGUFFile.open(path) as gguf:
        assert gguf.get(f"{name}.context_length") == 99
    with LoadedModel.load(path, n_threads=1) as model:
        assert model.memory.n_ctx == 99
    with pytest.raises(UnsupportedError, match="a context of 100 tokens is not supported, only of up to 99"):
        LoadedModel.load(path, n_ctx=100, n_threads=1)
