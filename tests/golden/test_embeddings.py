"""Embeddings of transformers (BertModel in float32), and of llama.cpp with our file.

The second needs PEER=path/to/llama.cpp/build/bin with llama-embedding in it.
"""

import json
import os
import subprocess
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import random_checkpoints

from hybrid.convert import convert
from hybrid.infer.evaluate.embed import Embedder, Pooling
from hybrid.quant import quantize

PEER = os.environ.get("PEER", "")
TEXTS = ["The quick brown fox jumps over the lazy dog.", "How do I read a file?", "a", "Keys, values & state: 3 + 4."]


def lengths_one(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize(("kind", "least"), [("auto", 0.99999), ("f32", 0.99999), ("q8_0", 0.9995)])
def test_bert_of_transformers(kind: str, least: float, shared_dir: Path, tmp_path: Path) -> None:
    folder = shared_dir / "checkpoints" / "bert-embed"
    golden = json.loads((folder / "golden" / "embeddings.json").read_text())
    path = tmp_path / "bert.gguf"
    convert(folder, path, outtype="f32" if kind == "q8_0" else kind)
    if kind == "q8_0":
        path = tmp_path / "q8_0.gguf"
        quantize(tmp_path / "bert.gguf", path, kind)
    with np.load(folder / "golden" / "embeddings.npz") as values, Embedder(path) as embedder:
        assert embedder.pooling is Pooling.CLS
        assert embedder.tokens(golden["sentences"], truncate=True) == golden["ids"]
        vectors = embedder.embed(golden["sentences"], truncate=True)
        likeness = (vectors * values["cls_normalized"]).sum(1)
        print(kind, "cls", likeness.min())
        assert likeness.min() >= least
        if kind != "q8_0":
            np.testing.assert_allclose(vectors @ vectors.T, golden["cosine"], atol=1e-5)
        embedder.pooling = Pooling.MEAN
        likeness = (embedder.embed(golden["sentences"], truncate=True) * values["mean_normalized"]).sum(1)
        print(kind, "mean", likeness.min())
        assert likeness.min() >= least


@pytest.mark.slow
@pytest.mark.skipif(not PEER, reason="PEER names no folder of llama.cpp's programs")
@pytest.mark.parametrize("pooling", ["cls", "mean", "last"])
def test_llama_cpp_agrees(pooling: str, data_dir: Path, tmp_path: Path) -> None:
    """Its GELU is the tanh formula in f16, which causes the difference."""
    source = random_checkpoints.write(random_checkpoints.ENCODERS["bert-even"], tmp_path / "model")
    path, texts = tmp_path / "bert.gguf", tmp_path / "texts"
    convert(source, path, outtype="f32", tokenizer=data_dir / "tokenizers" / "wordpiece")
    texts.write_text("\n".join(TEXTS))
    command = [Path(PEER) / "llama-embedding", "-m", path, "-f", texts, "--pooling", pooling, "-t", 2]
    command += ["--embd-output-format", "json", "-ngl", 0]
    for _ in range(20):  # it sometimes ends before its last lines are written
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=True)
        with suppress(ValueError):
            answers = json.loads(done.stdout[done.stdout.index("{") :])["data"]
            break
    theirs = lengths_one(np.array([item["embedding"] for item in answers]))
    with Embedder(path, pooling=Pooling(pooling)) as embedder:
        likeness = (embedder.embed(TEXTS) * theirs).sum(1)
    print(pooling, likeness)
    assert likeness.min() > 0.9999
