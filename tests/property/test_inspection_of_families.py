"""`hybrid inspect` reports of a file what the loaded model keeps in memory."""

from collections.abc import Callable
from math import ceil
from pathlib import Path

import pytest
from test_conformance import MODELS

from hybrid.infer import LoadedModel
from hybrid.infer.engine.layer_facts import layer_facts
from hybrid.infer.memory import AttentionSpec, RecurrentSpec, RowsSpec
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import FileType


@pytest.mark.exhaustive
@pytest.mark.parametrize("family", MODELS)
def test_layers_and_memory(family: str, random_model: Callable[..., Path]) -> None:
    path = random_model(MODELS[family], FileType.F32)
    with GGUFFile.open(path) as gguf:
        facts, arch = layer_facts(gguf), gguf.get("general.architecture")
        n_shared = int(gguf.get(f"{arch}.attention.shared_kv_layers", 0))
        n_heads = gguf.get(f"{arch}.attention.head_count_kv", 0)
        distances = gguf.get(f"{arch}.attention.kv_distance", [])
    with LoadedModel.load(path, n_ctx=64) as model:
        arrays = dict(model.memory.layout(64))
        specs = model.engine.network.specs
    n_states = sum(
        4 * shape[0] * shape[1] for spec in specs if isinstance(spec, RecurrentSpec) for shape in spec.shapes.values()
    )
    assert sum(layer.state_nbytes for layer in facts) == n_states
    kept = [(spec, name) for spec in specs if not isinstance(spec, RecurrentSpec) for name in arrays if of(spec, name)]
    assert len({name for _, name in kept}) == len([name for name in arrays if not name.endswith(("conv", "ssm"))])
    per_token = sum(2 * arrays[name][1][-1] * arrays[name][1][-2] / every(spec) for spec, name in kept)
    assert ceil(per_token) <= sum(layer.kv_nbytes_per_token for layer in facts) < per_token + len(facts)
    attention = {spec.layer for spec, _ in kept}
    borrowing = set(range(len(facts) - n_shared, len(facts)))  # layers that use other layers' memory
    borrowing |= {i for i, n in enumerate(distances) if n}
    assert {i for i, layer in enumerate(facts) if "A" in layer.letters} - borrowing == attention
    if hasattr(n_heads, "tolist"):  # per layer; 0 without attention
        assert attention <= {i for i, n in enumerate(n_heads.tolist()) if n}


def every(spec: AttentionSpec | RowsSpec) -> int:
    return spec.every if isinstance(spec, RowsSpec) else 1


def of(spec: AttentionSpec | RowsSpec, name: str) -> bool:
    """Whether this array of the memory belongs to the spec."""
    mine = (spec.name,) if isinstance(spec, RowsSpec) else (f"blk.{spec.layer}.k", f"blk.{spec.layer}.v")
    return name in mine
