"""Models with random weights compared with whole models in float64 (tests/reference/families.py), and those compared
with transformers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_checkpoints
from families import listed
from golden.models import NOISE, Golden
from random_checkpoints import CONFIGS
from random_models import TOKENIZER, random_model
from reference.families import Reference

from hybrid.convert import convert
from hybrid.convert.checkpoint import Checkpoint, Dtype, StoredTensor
from hybrid.infer import LoadedModel

# Checks of the reference: transformers' results for real checkpoints of these families.
CHECKED = [name for name in NOISE if name not in listed("unchecked")]


# the inner loop leaves out models that differ from another one only in RoPE tables, windows or biases
_VARIANT = ("-biased", "-window", "-yarn", "-order", "-period", "-longrope", "-shortrope", "-normed", "-groups")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.exhaustive) if n.endswith(_VARIANT) else n for n in CONFIGS]
)
def test_logits_of_random_models(name: str) -> None:
    compare_logits(CONFIGS[name], random_model(name))


@pytest.mark.parametrize(
    ("name", "more"),
    [("rwkv6", {"head_size_divisor": 90}), ("rwkv7", {"norm_eps": 1e-3}), ("arwkv7", {"head_size_divisor": 90})],
)
def test_epsilon_of_the_norm_of_heads(name: str, more: dict[str, float], tmp_path: Path) -> None:
    settings = {**CONFIGS[name], **more}
    folder = random_checkpoints.write(settings, tmp_path / "model")
    convert(folder, tmp_path / "f32.gguf", outtype="f32", tokenizer=TOKENIZER)
    compare_logits(settings, tmp_path / "f32.gguf")


def compare_logits(settings: dict[str, Any], path: Path, n_tokens: int = 40, n_ctx: int = 64) -> None:
    """Compare a random model's logits with float64."""
    config = random_checkpoints.complete(settings)
    ids = np.random.default_rng(4).integers(0, config["vocab_size"], n_tokens).tolist()
    expected = Reference(config, random_checkpoints.tensors(config)).logits(ids)
    with LoadedModel.load(path, n_ctx=n_ctx, precision="exact") as model:
        got = model.sequence().logits_of(ids)
    error = np.abs(got - expected).max() / np.abs(expected).max()
    print(f"{path.name}: {error:.1e} of the largest logit")
    assert error < 2e-5


@pytest.mark.parametrize("n_ctx", [24, 25])
def test_long_rope_goes_by_the_context(n_ctx: int) -> None:
    """24 is the model's original context. Transformers also uses short factors for a text that just fills it."""
    compare_logits(CONFIGS["phi3-longrope"], random_model("phi3-longrope"), n_ctx, n_ctx)


@pytest.mark.matrix  # no code of ours runs in this test and the next
@pytest.mark.parametrize("path", sorted((Path(__file__).parent / "transformers").glob("*.npz")), ids=lambda p: p.stem)
def test_the_reference_is_that_of_transformers_for_random_models(path: Path) -> None:
    """Compares with files of transformers/make.py; some operations of transformers are in f32."""
    with np.load(path) as golden:
        ids, expected = golden["ids"].tolist(), golden["logits"]
    config = random_checkpoints.complete(CONFIGS[path.stem])
    got = Reference(config, random_checkpoints.tensors(config)).logits(ids)[
        :, :: round(config["vocab_size"] / expected.shape[1])
    ]
    error = np.abs(got - expected).max() / np.abs(expected).max()
    print(f"{path.stem}: {error:.1e} of the largest logit")
    assert error < 1e-5


def f32(tensor: StoredTensor) -> np.ndarray:
    """The values of a BF16 tensor, or of a table of integers."""
    if tensor.dtype == "I64":
        return tensor.raw(np.dtype("<i8"), 0, tensor.size).reshape(tensor.shape)
    bits = tensor.read(0, int(np.prod(tensor.shape))).astype(np.uint32) << 16
    return bits.view(np.float32).reshape(tensor.shape)


@pytest.mark.matrix
@pytest.mark.shared
@pytest.mark.parametrize("name", CHECKED)
def test_the_reference_is_that_of_transformers(name: str, golden: Callable[[str], Golden]) -> None:
    checkpoint = golden(name)
    legacy = checkpoint.source / "config.legacy.json"
    config = json.loads((legacy if legacy.exists() else checkpoint.source / "config.json").read_text())
    if "full_attn_idxs" in config:
        config["layer_types"] = ["full_attention" if i in config["full_attn_idxs"] else "conv" for i in range(4)]
    stored = Checkpoint(checkpoint.source).tensors
    tensors = {
        name: f32(tensor) for name, tensor in stored.items() if isinstance(tensor.dtype, Dtype) or "tid2eid" in name
    }
    expected = checkpoint.last_logits("short")
    got = Reference(config, tensors).logits(checkpoint.ids("short"))
    error = np.abs(got - expected).max()
    print(f"{name}: {error:.1e}, noise {NOISE[name]:.1e}")
    assert error <= 2 * NOISE[name]
