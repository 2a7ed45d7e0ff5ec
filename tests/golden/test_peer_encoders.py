"""Encoders and rerankers beside llama.cpp's server with the same file: PEER=path/to/llama.cpp/build/bin."""

import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_checkpoints
from retrieval_checkpoints import qwen3_reranker, write_modules
from safetensors.numpy import load_file, save_file

from hybrid.convert import convert
from hybrid.infer.evaluate.embed import Embedder, Pooling

PEER = os.environ.get("PEER", "")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not PEER, reason="PEER names no folder of llama.cpp's programs")]

QUERY = "How do I read a file?"
DOCUMENTS = [
    "Open it, then read its lines.",
    "The quick brown fox jumps over the lazy dog. " * 6,
    "a",
    "Keys, values & state: 3 + 4.",
]
# Scores, and the tokenizer of tests/data.
SCORES = {
    "bert-scores": "tokenizers/wordpiece",
    "roberta-scores": "checkpoints/mamba-bf16",
    "modern-bert-scores": "checkpoints/mamba-bf16",
    "modern-bert-first": "checkpoints/mamba-bf16",
}
VECTORS = {"modern-bert": "checkpoints/mamba-bf16", "embedding-gemma": "checkpoints/mamba-bf16"}


@contextmanager
def server(*options: object) -> Iterator[str]:
    """The address of llama-server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [Path(PEER) / "llama-server", "--port", port, "-t", 2, "-ngl", 0, *options]
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(600):
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                    break
                except OSError:
                    assert process.poll() is None, f"llama-server ended: {command}"
                    time.sleep(0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def asked(address: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def made(name: str, tokenizer: Path, folder: Path) -> Path:
    """A file in F32 with random weights. The second type of token equals the first: llama.cpp knows one."""
    config = {**random_checkpoints.ENCODERS[name], "vocab_size": random_checkpoints.N_VOCAB}
    config = {**config, "vocab_size": 2000} if tokenizer.name == "wordpiece" else config
    if "Roberta" in config["architectures"][0]:
        config = {**config, "architectures": ["RobertaForSequenceClassification"]}
    source = random_checkpoints.write(config, folder / "model")
    random_checkpoints.pad_positions(source)
    tensors, types = load_file(source / "model.safetensors"), "embeddings.token_type_embeddings.weight"
    if types in tensors:
        same = np.repeat(tensors[types][:1], len(tensors[types]), 0)
        save_file({**tensors, types: same}, source / "model.safetensors")
    if name == "embedding-gemma":
        write_modules(source, (60, 90), (90, 60), pooling_mode_cls_token=True)
    convert(source, folder / f"{name}.gguf", outtype="f32", tokenizer=tokenizer)
    return folder / f"{name}.gguf"


@pytest.mark.parametrize("name", SCORES)
def test_scores(name: str, data_dir: Path, tmp_path: Path) -> None:
    path = made(name, data_dir / SCORES[name], tmp_path)
    with Embedder(path) as embedder:
        ours = embedder.scores([(QUERY, document) for document in DOCUMENTS])[:, 0]
    with server("-m", path, "--rerank") as address:
        found = asked(f"{address}/rerank", {"query": QUERY, "documents": DOCUMENTS})["results"]
    theirs = [one["relevance_score"] for one in sorted(found, key=lambda one: int(one["index"]))]
    print(name, ours, theirs)
    np.testing.assert_allclose(ours, theirs, atol=1e-3)


def test_answers_of_qwen3_reranker(data_dir: Path, tmp_path: Path) -> None:
    """Its score is the probability of "yes" beside "no"."""
    convert(qwen3_reranker(tmp_path, data_dir), path := tmp_path / "a.gguf", outtype="f32")
    with Embedder(path) as embedder:
        scores = np.exp(embedder.scores([(QUERY, document) for document in DOCUMENTS]).astype(np.float64))
    with server("-m", path, "--rerank") as address:
        found = asked(f"{address}/rerank", {"query": QUERY, "documents": DOCUMENTS})["results"]
    theirs = [one["relevance_score"] for one in sorted(found, key=lambda one: int(one["index"]))]
    print(scores[:, 0] / scores.sum(1), theirs)
    np.testing.assert_allclose(scores[:, 0] / scores.sum(1), theirs, atol=1e-3)


@pytest.mark.parametrize("name", VECTORS)
def test_vectors(name: str, data_dir: Path, tmp_path: Path) -> None:
    path = made(name, data_dir / VECTORS[name], tmp_path)
    with Embedder(path, pooling=Pooling.CLS) as embedder:
        ours = embedder.embed(DOCUMENTS)
    with server("-m", path, "--embeddings", "--pooling", "cls") as address:
        found = asked(f"{address}/v1/embeddings", {"input": DOCUMENTS})["data"]
    theirs = np.array([one["embedding"] for one in found])
    print(name, np.abs(ours - theirs).max())
    np.testing.assert_allclose(ours, theirs, atol=1e-3)
