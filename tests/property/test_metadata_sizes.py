"""Absurd sizes in a file's metadata: every architecture refuses them in one line, before allocating anything of that
size. Loading compares shapes, `inspect` asks the layers for their memory."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from address_space import at_most
from random_checkpoints import CONFIGS, family_for

from hybrid.infer.engine.layer_facts import layer_facts
from hybrid.infer.engine.network import Network
from hybrid.quant.ggml.errors import HybridError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import FileType

MOST = 1 << 30  # bytes of address space, beside those in use
WRONG = (10**9, 2**31 - 8, 0, -1, 1.5)
# keys of limits, or without effect on allocations; some architectures read others of them
HARMLESS = {
    "attention.dense_length", "attention.head_count", "attention.head_count_kv", "attention.indexer.top_k",
    "attention.key_length", "attention.sliding_window", "attention.temperature_length", "attention.value_length",
    "attention.value_length_swa", "attn_res.block_size", "context_length", "embedding_length_out",
    "expert_feed_forward_length", "expert_gating_func", "expert_group_used_count", "expert_shared_count",
    "expert_shared_feed_forward_length", "expert_used_count", "feed_forward_length", "full_attention_interval",
    "interleave_moe_layer_step", "leading_dense_block_count", "ple.eos_token_id", "ple.layer_multipliers",
    "rescale_every_n_layers", "rope.dimension_count", "rope.dimension_sections", "rope.scaling.original_context_length",
    "ssm.group_count", "tokenizer.end_token_ids", "vocab_size",
}  # fmt: skip
EACH: dict[str, str] = {}  # architecture -> its first random checkpoint
for _name, _config in CONFIGS.items():
    EACH.setdefault(family_for({"vocab_size": 8, "max_position_embeddings": 512, **_config}).arch, _name)


@pytest.fixture
def bounded_memory() -> Iterator[None]:
    with at_most(MOST):
        yield


def integers(gguf: GGUFFile) -> dict[str, Any]:
    """The keys of the model's sizes, with their values."""
    own = {key: value for key, value in gguf.metadata.items() if not key.startswith(("general.", "tokenizer."))}
    return {
        key: value
        for key, value in own.items()
        if (isinstance(value, int) and not isinstance(value, bool))
        or (isinstance(value, np.ndarray) and value.dtype.kind in "iu")
    }


def with_value(value: Any, wrong: float) -> Any:
    """The wrong number, or a list that ends with it."""
    if not isinstance(value, np.ndarray):
        return wrong
    values = value.astype(np.float64 if isinstance(wrong, float) else np.int64)
    values[-1] = wrong
    return values


@pytest.mark.usefixtures("bounded_memory")
@pytest.mark.parametrize("arch", EACH)
def test_sizes_that_no_model_has(arch: str, random_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    n_refused = 0
    with GGUFFile.open(random_model(EACH[arch], FileType.F32)) as gguf:
        metadata = dict(gguf.metadata)
        Network(gguf, 16, n_ctx=64)
        for key, value in integers(gguf).items():
            for wrong in WRONG:
                monkeypatch.setattr(gguf, "metadata", {**metadata, key: with_value(value, wrong)})
                for use in (layer_facts, lambda gguf: Network(gguf, 16, n_ctx=64)):
                    refused = ""
                    try:
                        use(gguf)
                    except HybridError as error:
                        refused = str(error)
                    assert "\n" not in refused and len(refused) < 500, (key, wrong, refused)
                name = key.removeprefix(f"{arch}.").removeprefix("hybrid.")
                n_refused += bool(refused)
                assert refused or wrong == 0 or name in HARMLESS, f"{key} = {wrong} is loaded"
    assert n_refused > 10
