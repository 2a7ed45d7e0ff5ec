"""Random checkpoints of Qwen3-Reranker, and the modules of sentence-transformers beside a checkpoint."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import random_checkpoints
from safetensors.numpy import save_file

from hybrid.quant.ggml.types import GGMLType
from hybrid.quant.ggml.writer import GGUFWriter

ANSWERS = (1989, 956)  # tokens of "yes" and "no"


def qwen3_reranker(folder: Path, data_dir: Path, **changes: object) -> Path:
    """A folder named like the model, with a tokenizer that has its tokens."""
    config = {**random_checkpoints.CONFIGS["qwen3"], **changes}
    source = random_checkpoints.write(config, folder / "Qwen3-Reranker-0.6B")
    tokenizer = json.loads((data_dir / "tokenizers" / "bpe_qwen.json").read_text())
    assert tokenizer["model"]["vocab"]["no"] == ANSWERS[1]
    # in place of the last word
    (last,) = (text for text, token in tokenizer["model"]["vocab"].items() if token == ANSWERS[0])
    tokenizer["model"]["vocab"] = {text: i for text, i in tokenizer["model"]["vocab"].items() if text != last}
    tokenizer["model"]["vocab"]["yes"] = ANSWERS[0]
    merged = tokenizer["model"]["merges"].pop()
    assert "".join(merged).replace(" ", "") == last
    (source / "tokenizer.json").write_text(json.dumps(tokenizer))
    return source


def write_modules(folder: Path, *sizes: tuple[int, int], bias: bool = False, **pooling: Any) -> list[dict[str, Any]]:
    """Write modules.json with a pooling, if there are any settings, and dense layers of these sizes (inputs, outputs).
    Returns the tensors of the layers."""
    modules, layers = [{"type": "sentence_transformers.models.Transformer", "path": ""}], []
    if pooling:
        modules.append({"type": "sentence_transformers.models.Pooling", "path": f"{len(modules)}_Pooling"})
        (folder / modules[-1]["path"]).mkdir(exist_ok=True)
        (folder / modules[-1]["path"] / "config.json").write_text(json.dumps(pooling))
    rng = np.random.default_rng(5)
    for n_in, n_out in sizes:
        modules.append({"type": "sentence_transformers.models.Dense", "path": f"{len(modules)}_Dense"})
        own = folder / modules[-1]["path"]
        own.mkdir(exist_ok=True)
        settings = {"in_features": n_in, "out_features": n_out, "bias": bias}
        activation = "torch.nn.modules.linear.Identity"
        (own / "config.json").write_text(json.dumps({**settings, "activation_function": activation}))
        tensors = {"linear.weight": rng.standard_normal((n_out, n_in)).astype(np.float32) / 8}
        if bias:
            tensors["linear.bias"] = rng.standard_normal(n_out).astype(np.float32)
        save_file(tensors, own / "model.safetensors")
        layers.append(tensors)
    (folder / "modules.json").write_text(json.dumps(modules))
    return layers


def write_gguf(path: Path, arch: str, tensors: dict[str, np.ndarray], labels: object = ("far", "near", "same")) -> Path:
    """Write a file with these tensors in F32 and these labels, unless None."""
    with GGUFWriter(path, arch) as writer:
        if labels is not None:
            writer.add(f"{arch}.classifier.output_labels", list(labels) if isinstance(labels, tuple) else labels)
        for name, values in tensors.items():
            writer.declare(name, values.shape, GGMLType.F32)
        for name, values in tensors.items():
            writer.write(name, [values.view(np.uint8)])
    return path
