"""A file without some layers computes what the whole file does with these layers skipped, or it is refused."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_heads
from random_checkpoints import CONFIGS
from random_models import TOKENIZER
from test_conformance import logits_in_a_new_sequence

from hybrid.convert import convert
from hybrid.infer import LoadedModel
from hybrid.infer.architectures import FAMILIES
from hybrid.pipeline.pruning import pruned
from hybrid.quant import quantize
from hybrid.quant.ggml.errors import UnsupportedError
from hybrid.quant.ggml.reader import GGUFFile

pytestmark = pytest.mark.exhaustive
IDS = [int(i) for i in np.random.default_rng(3).integers(20, 2000, 40)]
# Layers that cannot be left out alone, with the reason; every other one can.
REFUSED: dict[str, Sequence[int]] = {
    # decays, factors or banks of residuals by the number of the layer
    "minimax-scaled": range(4), "minimax-window": [0, 2], "minimax-text-01": range(9), "kimi-k3": range(5),
    "kimi-k3-wide": [0], "phi4flash": range(7), "phi4flash-biased": range(7), "rwkv6": range(3),
    # the first layer makes what others read
    "rwkv7": [0], "arwkv7": [0], "arwkv7-plain": [0], "zaya": [0], "zaya-window": [0], "zaya-yarn": [0],
    # a table outside of the layers has values for each of them, or for this one alone
    "gemma4": range(6), "gemma4-order": range(5), "gemma3n": range(7), "gemma3n-order": range(4), "qwen4exp": [2],
    # other layers use its weights or its choice of tokens
    "zamba": [1], "zamba-biased": [1], "zamba2": [1, 2], "zamba2-2.7b": [1], "zamba2-biased": [1],
    "glm5-next-streams": [2],
}  # fmt: skip


def logits(path: Path) -> np.ndarray:
    with LoadedModel.load(path, n_ctx=64, precision="exact") as model:
        return logits_in_a_new_sequence(model, IDS)


def logits_without(path: Path, layers: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """The logits of the whole file if these layers add nothing to the residual stream."""
    kind = type(FAMILIES[header(path)[0]])
    whole = kind.block

    def block(self: Any, h: Any, i: int, w: Any) -> Iterator[Any]:
        if i in layers:
            w.ignore_block(i)
        else:
            yield from whole(self, h, i, w)

    with monkeypatch.context() as patched:
        patched.setattr(kind, "block", block)
        return logits(path)


def header(path: Path) -> tuple[str, int, int]:
    """Architecture, number of layers, and of those that guess tokens ahead."""
    with GGUFFile.open(path) as gguf:
        arch = str(gguf.get("general.architecture"))
        return arch, gguf.get(f"{arch}.block_count"), gguf.get(f"{arch}.nextn_predict_layers", 0)


def left(path: Path, layers: Sequence[int], to: Path) -> Path:
    with pruned(path, layers) as source:
        quantize(source, to, "COPY")
    return to


def check(path: Path, layers: Sequence[int], to: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    got = logits(left(path, layers, to))
    _, n_layer, n_ahead = header(path)
    assert header(to)[1] == n_layer - len(layers)
    skipped = [i for i in layers if i < n_layer - n_ahead]
    assert np.array_equal(got, logits_without(path, skipped, monkeypatch))


# one for each way in which keys, layers or refusals go by the layer; the rest is in the long suite
QUICK = {
    "lfm2moe", "qwen3next", "gemma3-order", "zamba2", "glm5-next-streams", "deepseek4", "rwkv7", "openelm",
    "kimi-linear", "qwen4exp", "phi4flash", "qwen35-mtp", "glm5-next-streams-mtp",
}  # fmt: skip


def each(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=() if name in QUICK else pytest.mark.matrix) for name in names]


@pytest.mark.parametrize("name", each(CONFIGS))
def test_a_model_without_some_layers(
    name: str, random_model: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = random_model(name)
    n_layer, refused = header(path)[1], []
    for i in range(n_layer):
        try:
            check(path, [i], tmp_path / "left.gguf", monkeypatch)
        except UnsupportedError as error:
            assert str(error).startswith((f"{path.name} without layer {i}: ", f"{path.name}: of the layers"))
            assert str(error).endswith(" Leave out other layers.")
            refused.append(i)
    assert refused == list(REFUSED.get(name, ()))
    first_and_last = [0, n_layer - 1]
    if n_layer > 2 and not refused:
        check(path, first_and_last, tmp_path / "left.gguf", monkeypatch)


@pytest.mark.parametrize("name", each(random_heads.WITH_HEADS))
def test_a_model_with_a_head(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.gguf"
    convert(random_heads.write(name, tmp_path / name), path, outtype="f32", tokenizer=TOKENIZER)
    _, n_layer, n_ahead = header(path)
    assert n_ahead
    check(path, [1], tmp_path / "left.gguf", monkeypatch)
    check(path, [0, n_layer - 1], tmp_path / "left.gguf", monkeypatch)
    assert header(tmp_path / "left.gguf")[2] == n_ahead - 1
