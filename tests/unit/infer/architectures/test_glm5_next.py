"""GLM-5.3-Flash: keys that a file may have about its layers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_checkpoints
from random_checkpoints import CONFIGS

from hybrid.convert import convert
from hybrid.infer import LoadedModel
from hybrid.quant.ggml.errors import FormatError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.writer import GGUFWriter

IDS = np.random.default_rng(2).integers(0, 2000, 40).tolist()
N_LAYER = 5
FULL = "attention.indexer.types"


@pytest.fixture(scope="module")
def plain(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("glm5")
    checkpoint = random_checkpoints.write(CONFIGS["glm5-next-streams"], folder / "model")
    tokenizer = data_dir / "checkpoints" / "mamba-bf16"
    return convert(checkpoint, folder / "plain.gguf", outtype="f32", tokenizer=tokenizer).output


@pytest.fixture
def edited(plain: Path, tmp_path: Path) -> Callable[..., Path]:
    """The file with changed keys and additional tensors."""

    def make(keys: dict[str, Any], more: dict[str, np.ndarray] | None = None) -> Path:
        more, keys = more or {}, {f"glm5-next.{key}": value for key, value in keys.items()}
        path = tmp_path / "edited.gguf"
        with GGUFFile.open(plain) as file, GGUFWriter(path, None) as writer:
            for key, value in file.metadata.items():
                kept = (value, file.value_types[key]) if key not in keys else (keys.pop(key), None)
                writer.add(key, *kept)
            for key, value in keys.items():
                writer.add(key, value)
            for name, tensor in file.tensors.items():
                writer.declare(name, tensor.shape, tensor.type)
            some = next(iter(file.tensors.values())).type
            for name, values in more.items():
                writer.declare(name, values.shape, some)
            for name in file.tensors:
                writer.write(name, file.raw(name))
            for name, values in more.items():
                writer.write(name, values)
        return path

    return make


def logits(path: Path) -> np.ndarray:
    with LoadedModel.load(path, n_ctx=64, n_threads=1, precision="exact") as model:
        return model.sequence().logits_of(IDS)


def test_parts_of_layers_that_guess_ahead_are_not_run(plain: Path, edited: Callable[..., Path]) -> None:
    """The file has only a part of such a layer, after the others, and no key about its indexer."""
    ahead: dict[str, Any] = {
        "block_count": N_LAYER + 1,
        "nextn_predict_layers": 1,
        "attention.head_count_kv": [1, 0, 1, 1, 0, 1],
        "swiglu_clamp_exp": [0.6] * (N_LAYER + 1),
        "swiglu_clamp_shexp": [0.6] * (N_LAYER + 1),
    }
    more = {"blk.5.nextn.enorm.weight": np.ones(80, np.float32)}
    assert logits(edited(ahead, more)).tobytes() == logits(plain).tobytes()


def test_limits_of_gates(plain: Path, edited: Callable[..., Path]) -> None:
    """Limits of experts and of other gates, per layer; 0 means no limit."""
    usual = logits(plain)
    none = logits(edited({"swiglu_clamp_exp": [0.0] * N_LAYER, "swiglu_clamp_shexp": [0.0] * N_LAYER}))
    high = logits(edited({"swiglu_clamp_exp": 1e30, "swiglu_clamp_shexp": 1e30}))
    assert np.abs(none - high).max() < 1e-5
    assert np.abs(none - usual).max() > 1e-2
    for key in ("swiglu_clamp_exp", "swiglu_clamp_shexp"):
        last = logits(edited({key: [0.6, 0.6, 0.6, 0.6, 0.3]}))
        assert np.abs(last - usual).max() > 1e-3


def test_a_layer_takes_what_one_before_it_chose(plain: Path) -> None:
    with LoadedModel.load(plain, n_ctx=64, n_threads=1) as model:
        rows = [(spec.layer, spec.part, spec.n, spec.every) for spec in model.engine.memory.attention.row_specs]
    assert rows == [
        (0, "latent", 36, 1),
        (0, "index", 20, 3),
        (2, "latent", 36, 1),
        (2, "index", 20, 3),
        (3, "latent", 36, 1),
    ]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"rope.dimension_count": 4}, "rope.dimension_count = 4, expected 0"),
        ({"attention.indexer.kpool_select_tail": False}, "kpool_select_tail = False, expected True"),
        ({"attention.indexer.top_k": 10}, "top_k = 10, expected a multiple of kpool = 3"),
        ({"attention.indexer.kpool": 0}, "kpool = 0, expected an integer of at least 1"),
        ({"attention.q_lora_rank": 0}, "q_lora_rank = 0, expected 1 or more"),
        ({"kda.gate_lower_bound": 0.5}, "kda.gate_lower_bound = 0.5, expected a negative number"),
        ({"kda.gate_lower_bound": -81.0}, "kda.gate_lower_bound = -81.0, expected a finite number of at least -80"),
        ({FULL: [False, True, True, False, True]}, "types = .*a layer that chooses before layer 0, which does not"),
        ({FULL: [True] * 5}, "blk.3.indexer.attn_q_b.weight"),
        ({FULL: [True, True, True, False]}, "types has 4 values for 5 layers"),
        ({"hyper_connection.count": 9}, "hyper_connection.count = 9, expected 1 to 8"),
        ({"hyper_connection.count": 4}, "blk.0.hc_attn_fn.weight has shape .15, 240., expected .24"),
        ({"hyper_connection.sinkhorn_iterations": 0}, "sinkhorn_iterations = 0, expected 1 to 1000"),
        ({"swiglu_clamp_exp": [1.0, 2.0]}, "swiglu_clamp_exp has 2 values for 5 layers"),
        ({"swiglu_clamp_exp": [-1.0] * 5}, "swiglu_clamp_exp = -1.0, expected a finite number of at least 0"),
        ({"swiglu_clamp_exp": "none"}, "swiglu_clamp_exp = 'none', expected a number, or one for every layer"),
    ],
)
def test_refused(keys: dict[str, Any], message: str, edited: Callable[..., Path]) -> None:
    with pytest.raises(FormatError, match=message):
        logits(edited(keys))
