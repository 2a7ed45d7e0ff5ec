"""Logits, greedy continuations and layer outputs of transformers, reproduced."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden.models import EMBEDDING_SCALE, IN_REPOSITORY, NOISE, PROMPTS, SCALED_BY_THE_LOOKUP, Golden

from hybrid.infer import LoadedModel
from hybrid.infer.engine.ubatch import Segment
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import FileType

ALLOWED = 4  # as a multiple of the reference's own noise
WITHOUT_LAYERS = ("lara-mini",)  # checkpoints whose goldens have no outputs of layers


def names() -> list:
    return [n if n in IN_REPOSITORY else pytest.param(n, marks=pytest.mark.shared) for n in NOISE]


@pytest.mark.parametrize("name", names())
def test_logits_and_greedy_continuations(name: str, golden: Callable[[str], Golden], converted: Callable) -> None:
    reference = golden(name)
    with LoadedModel.load(converted(name), n_ctx=512, precision="exact") as model:
        for prompt in PROMPTS:
            ids = reference.ids(prompt)
            assert model.tokenizer.encode(reference.prompts[prompt]["text"]) == ids
            seq = model.sequence()
            logits = seq.logits_of(ids)
            expected = reference.last_logits(prompt)
            error = np.abs(logits[-len(expected) :] - expected).max()
            print(f"{name} {prompt}: max error {error:.1e}, noise {NOISE[name]:.1e}")
            assert error <= ALLOWED * NOISE[name]
            greedy = [int(logits[-1].argmax())]
            while len(greedy) < 32:
                greedy.append(int(seq.decode(greedy[-1]).argmax()))
            assert greedy == reference.greedy[prompt]["ids"][:32]
            seq.close()


@pytest.mark.parametrize(
    "name",
    [
        n if n in IN_REPOSITORY else pytest.param(n, marks=[pytest.mark.shared, pytest.mark.matrix])
        for n in NOISE
        if n not in WITHOUT_LAYERS
    ],
)
def test_layer_outputs(name: str, golden: Callable[[str], Golden], converted: Callable[..., Path]) -> None:
    reference = golden(name)
    with LoadedModel.load(converted(name), n_ctx=512, precision="exact") as model:
        seq = model.sequence()
        ids = reference.ids("short")
        embedded, *after = model.engine.trace([Segment(seq.slot, ids, [])])
    assert len(after) == model.n_layer
    # the converter multiplies in f64, the model in f32
    lookup = reference.layers["embed_lookup"].astype(np.float64) * EMBEDDING_SCALE.get(name, 1.0)
    scale = 1.0 if name in SCALED_BY_THE_LOOKUP else model.hparams.scales.embedding
    scaled = lookup.astype(np.float32) * np.float32(scale)
    scaled = shifted(scaled, converted(name)).reshape(len(embedded), -1)
    n_stream = embedded.shape[1] // scaled.shape[1]  # residual streams, all equal at the beginning
    np.testing.assert_array_equal(embedded, np.tile(scaled, n_stream))
    for i, rows in enumerate(after):
        expected = reference.layers[f"layer_{i}_out"].reshape(rows.shape)
        error = np.abs(rows - expected).max() / np.abs(expected).max()
        print(f"{name} layer {i}: relative error {error:.1e}")
        assert error < 3e-6


def shifted(rows: np.ndarray, path: Path) -> np.ndarray:
    """The embedding after the file's scale and bias vectors, if it has them."""
    with GGUFFile.open(path) as gguf:
        if "token_embd_scale.weight" not in gguf.tensors:
            return rows
        return (rows + gguf.f32("token_embd_scale.bias")) * gguf.f32("token_embd_scale.weight")


# KL divergence from the reference, nats per token. Random weights lose far more than trained ones (0.0002 and 0.006 for
# the 11 M Jamba): 0.02 and 0.9 for most of these, 0.11 and 1.6 for the widest.
DISTANCE = {FileType.Q8_0: 0.15, FileType.Q4_K_M: 2.0}
# A token gets another group of experts if two are nearly equal: 0.22; with feed-forward parts in F32 0.014. Or other
# pools of tokens: 0.15, while half of the tokens have less than 0.015.
WIDER = {("kimi-linear", FileType.Q8_0): 0.3, ("glm5-next", FileType.Q8_0): 0.3}


def quantized_cases() -> Iterator[Any]:
    """Both types for checkpoints in the repository, one for each other checkpoint; the long suite has both."""
    for i, name in enumerate(NOISE):
        for j, kind in enumerate(DISTANCE):
            marks = [] if name in IN_REPOSITORY else [pytest.mark.shared]
            marks += [pytest.mark.matrix] if name not in IN_REPOSITORY and i % 2 != j else []
            yield pytest.param(name, kind, marks=marks, id=f"{name}-{kind.name}")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), list(quantized_cases()))
def test_quantized(name: str, kind: FileType, golden: Callable[[str], Golden], quantized: Callable[..., Path]) -> None:
    reference = golden(name)
    with LoadedModel.load(quantized(name, kind), n_ctx=512) as model:
        logits = model.sequence().logits_of(reference.ids("p64")).astype(np.float64)
    expected = log_softmax(reference.last_logits("p64").astype(np.float64))
    distance = (np.exp(expected) * (expected - log_softmax(logits))).sum(1).mean()
    print(f"{name} {kind.name}: KL divergence {distance:.4f}")
    assert 0 < distance < WIDER.get((name, kind), DISTANCE[kind])


def log_softmax(x: np.ndarray) -> np.ndarray:
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))
