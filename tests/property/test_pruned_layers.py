"""A file without some layers computes what the whole file does with these layers skipped, or it is refused."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_checkpoints
import random_heads
from random_checkpoints import CONFIGS
from random_models import TOKENIZER
from safetensors.numpy import load_file, save_file
from test_conformance import logits_in_a_new_sequence

from hybrid.convert import convert
from hybrid.infer import LoadedModel
from hybrid.infer.architectures import FAMILIES
from hybrid.pipeline.pruning import pruned
from hybrid.quant import quantize
from hybrid.quant.ggml.errors import UnsupportedError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import ValueType

pytestmark = pytest.mark.exhaustive
IDS = [int(i) for i in np.random.default_rng(3).integers(20, 2000, 40)]
# Layers that cannot be left out alone, with the reason; every other one can.
REFUSED: dict[str, Sequence[int]] = {
    # decays, factors or banks of residuals by the number of the layer
    "minimax-scaled": range(4), "minimax-window": [0, 2], "minimax-text-01": range(9), "kimi-k3": range(5),
    "kimi-k3-wide": [0], "phi4flash": range(7), "phi4flash-biased": range(7), "rwkv4": range(4),
    "rwkv5": range(2), "rwkv6": range(3), "alice-ai": range(5), "alice-ai-blocks": range(4),
    **dict.fromkeys(("longcat-flash", "longcat-flash-yarn", "longcat-flash-ngram"), range(3)),
    "inkling2": range(3), "inkling2-first": [0], "inkling2-loop": range(15), "inkling2-loop-last": range(3),
    # the first layer makes what others read
    "rwkv7": [0], "rwkv7a": [0], "rwkv7b": [0], "arwkv7": [0], "arwkv7-plain": [0], "zaya": [0], "zaya-window": [0],
    "zaya-yarn": [0],
    # a table outside of the layers is for this one alone
    "qwen4exp": [2],
    # other layers use its keys, its weights or its choice of tokens
    "gemma4": [2, 3], "gemma4-order": [0], "gemma3n": [2, 3], "hymba": [1, 2], "hymba-plain": [0, 2],
    "zamba": [1], "zamba-biased": [1], "zamba2": [1, 2], "zamba2-2.7b": [1], "zamba2-biased": [1],
    "interns2-mobius": range(4),
    "glm5-next-streams": [2], "glm-dsa": [1],
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
    if 0 in layers and FAMILIES[header(path)[0]].hparams.in_parts:
        return  # the first layer prepares inputs of all: test_as_a_checkpoint_without_the_layers
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


@pytest.mark.parametrize(
    ("name", "layers"),
    [("gemma3n", [0]), ("gemma3n", [0, 1, 6]), ("gemma3n-order", [0, 2]), ("gemma4", [0]), ("gemma4", [1, 4])],
)
def test_as_a_checkpoint_without_the_layers(
    name: str, layers: list[int], random_model: Callable[..., Path], tmp_path: Path
) -> None:
    """Of families whose tokens have values for every layer."""
    config = dict(CONFIGS[name])
    whole = load_file(random_checkpoints.write(config, tmp_path / "whole") / "model.safetensors")
    n_layer, n = config["num_hidden_layers"], config["hidden_size_per_layer_input"]
    kept = [i for i in range(n_layer) if i not in layers]
    tensors = {}
    for key, values in whole.items():
        block = re.search(r"\blayers\.(\d+)\.", key)
        if block is None:
            parts = np.concatenate([np.arange(i * n, (i + 1) * n) for i in kept])
            cut = {"embed_tokens_per_layer.weight": (..., parts), "per_layer_model_projection.weight": parts}
            at = next((place for end, place in cut.items() if key.endswith(end)), ...)
            tensors[key] = np.ascontiguousarray(values[at])
        elif int(block[1]) in kept:
            tensors[f"{key[: block.start(1)]}{kept.index(int(block[1]))}{key[block.end(1) :]}"] = values
    for key, value in config.items():
        if isinstance(value, list) and len(value) == n_layer:
            config[key] = [value[i] for i in kept]
    shared = config["num_kv_shared_layers"]
    less = {"num_hidden_layers": len(kept), "num_kv_shared_layers": sum(i >= n_layer - shared for i in kept)}
    (tmp_path / "less").mkdir()
    stated = json.loads((tmp_path / "whole" / "config.json").read_text())
    (tmp_path / "less" / "config.json").write_text(json.dumps({**stated, **config, **less}))
    save_file(tensors, tmp_path / "less" / "model.safetensors")
    convert(tmp_path / "less", tmp_path / "less.gguf", outtype="f32", tokenizer=TOKENIZER)
    left(random_model(name), layers, tmp_path / "left.gguf")
    assert np.array_equal(logits(tmp_path / "left.gguf"), logits(tmp_path / "less.gguf"))


def test_layers_that_get_features_of_pictures(random_model: Callable[..., Path], tmp_path: Path) -> None:
    key = "granite.deepstack_mapping"
    whole, to = tmp_path / "whole.gguf", tmp_path / "left.gguf"
    quantize(random_model("granite-attention"), whole, "COPY", metadata={key: ([-1, 1], ValueType.INT32)})
    with GGUFFile.open(left(whole, [0], to)) as gguf:
        assert gguf.get(key).tolist() == [1]
    with pytest.raises(UnsupportedError, match=r"layer 1: features of pictures are added before layers \[1\]"):
        left(whole, [1], to)
