"""What `hybrid inspect` says of a file is what the model keeps when it is loaded."""

from collections.abc import Callable
from pathlib import Path

import pytest
from test_conformance import MODELS

from hybrid.infer import Model
from hybrid.quant import inspect
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import FileType


@pytest.mark.exhaustive
@pytest.mark.parametrize("family", MODELS)
def test_layers_and_memory(family: str, random_model: Callable[..., Path]) -> None:
    path = random_model(MODELS[family], FileType.F32)
    with GGUFFile.open(path) as gguf:
        facts, n_layer = inspect(gguf), int(gguf.get(f"{gguf.get('general.architecture')}.block_count"))
        n_shared = int(gguf.get(f"{gguf.get('general.architecture')}.attention.shared_kv_layers", 0))
        borrowing = set(range(n_layer - n_shared, n_layer))  # from the memory of others
    with Model.load(path, n_ctx=64) as model:
        specs = model.engine.network.specs
        recurrent = sum(spec.nbytes for spec in specs if hasattr(spec, "nbytes"))
        # in memory, heads of odd sizes are padded
        tokens = sum(2 * spec.n_kv * (spec.d_head + spec.d_value) for spec in specs if hasattr(spec, "n_kv"))
        attention = {spec.layer for spec in specs if hasattr(spec, "n_kv")}
    assert facts.state_nbytes_per_seq == recurrent
    assert facts.kv_nbytes_per_token == tokens
    assert {i for i, letters in enumerate(facts.pattern) if "A" in letters} - borrowing == attention
