"""Dense layers of modules.json in the file, and their effect on vectors."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_checkpoints
from reference.encoders import rows
from retrieval_checkpoints import write_modules
from safetensors.numpy import load_file, save_file

from hybrid.convert import convert
from hybrid.infer.evaluate.embed import Embedder, Pooling
from hybrid.quant.ggml.errors import HybridError, Remedy, UnsupportedError
from hybrid.quant.ggml.reader import GGUFFile

CONFIG = random_checkpoints.ENCODERS["embedding-gemma"]
N = CONFIG["hidden_size"]


@pytest.fixture
def gemma(tmp_path: Path) -> Path:
    return random_checkpoints.write(CONFIG, tmp_path / "model")


def test_vectors_of_embedding_gemma(gemma: Path, data_dir: Path, tmp_path: Path) -> None:
    layers = write_modules(gemma, (N, 90), (90, N), pooling_mode_mean_tokens=True)
    convert(gemma, tmp_path / "a.gguf", outtype="f32", tokenizer=data_dir / "tokenizers" / "wordpiece")
    with GGUFFile.open(tmp_path / "a.gguf") as file:
        keys = ("dense_2_feat_in", "dense_2_feat_out", "dense_3_feat_in", "dense_3_feat_out", "pooling_type")
        assert [file.get(f"gemma-embedding.{key}") for key in keys] == [N, 90, 90, N, 1]
        np.testing.assert_array_equal(file.f32("dense_3.weight"), layers[1]["linear.weight"])
    tensors, ids = random_checkpoints.tensors(CONFIG), [[2, 9, 44, 7, 3], [2, 5, 3]]
    with Embedder(tmp_path / "a.gguf") as embedder:
        assert embedder.pooling is Pooling.MEAN and embedder.n_embd == N
        found = embedder.embed_ids(ids, normalize=False)
    for vector, text in zip(found, ids, strict=True):
        wanted = rows(CONFIG, tensors, text, len(text)).mean(0)
        for layer in layers:
            wanted = layer["linear.weight"].astype(np.float64) @ wanted
        np.testing.assert_allclose(vector, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bidirectional", [True, False])
def test_a_vector_of_every_token(bidirectional: bool, data_dir: Path, tmp_path: Path) -> None:
    """LFM2.5-ColBERT, and the causal LFM2-ColBERT."""
    config = random_checkpoints.ENCODERS["lfm2-bidirectional"]
    name = "Lfm2BidirectionalModel" if bidirectional else "Lfm2Model"
    folder = random_checkpoints.write({**config, "architectures": [name]}, tmp_path / "model")
    (layer,) = write_modules(folder, (60, 12), bias=True)
    convert(folder, tmp_path / "a.gguf", outtype="f32", tokenizer=data_dir / "tokenizers" / "wordpiece")
    with GGUFFile.open(tmp_path / "a.gguf") as file:
        assert file.get("lfm2.embedding_length_out") == 12
        assert file.get("lfm2.attention.causal", True) is not bidirectional
        np.testing.assert_array_equal(file.f32("dense_2.weight"), layer["linear.weight"])
    texts = ["opening files", "how to read"]
    with Embedder(tmp_path / "a.gguf") as embedder:
        assert embedder.by_token and embedder.n_embd == 12
        assert (embedder.encoder is not None) == bidirectional
        ids, found = embedder.tokens(texts), embedder.token_vectors(texts, normalize=False)
        for text, vectors in zip(texts, embedder.token_vectors(texts), strict=True):
            np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)
            assert (embedder.token_vectors([text])[0] == vectors).all()
        with pytest.raises(
            UnsupportedError, match=r"a\.gguf makes a vector of every token: it has no pooling"
        ) as refused:
            embedder.embed(texts)
        assert refused.value.remedy is Remedy.POOLING
    with Embedder(tmp_path / "a.gguf", pooling=Pooling.CLS) as embedder:
        np.testing.assert_allclose(embedder.embed(texts, normalize=False), [x[0] for x in found], rtol=1e-6)
    if bidirectional:
        for text, vectors in zip(ids, found, strict=True):
            wanted = rows(config, random_checkpoints.tensors(config), text, len(text))
            wanted = wanted @ layer["linear.weight"].T.astype(np.float64) + layer["linear.bias"]
            np.testing.assert_allclose(vectors, wanted, atol=1e-5)


def test_a_family_without_dense_layers(data_dir: Path, tmp_path: Path) -> None:
    folder = random_checkpoints.write(random_checkpoints.ENCODERS["bert"], tmp_path / "model")
    write_modules(folder, (60, 30), pooling_mode_cls_token=True)
    report = convert(folder, tmp_path / "a.gguf", tokenizer=data_dir / "tokenizers" / "wordpiece")
    assert "2_Dense left out: vectors are taken before these layers" in report.notes


def changed(path: Path, **values: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: changed(f / "2_Dense" / "config.json", activation_function="torch.nn.Tanh"), "torch.nn.Tanh is not"),
        (lambda f: changed(f / "2_Dense" / "config.json", use_residual=True), r"2_Dense/config\.json: use_residual"),
        (lambda f: changed(f / "2_Dense" / "config.json", out_features=7), r"has weight \[90, 60\], expected .*7, 60"),
        (
            lambda f: changed(f / "2_Dense" / "config.json", bias=True),
            r"2_Dense: model\.safetensors has weight \[90, 60",
        ),
        (lambda f: (f / "3_Dense" / "model.safetensors").unlink(), r"3_Dense has no model\.safetensors"),
        (lambda f: (f / "3_Dense" / "config.json").unlink(), r"modules\.json names 3_Dense/config\.json, which is not"),
        (lambda f: write_modules(f, (N, 90)), r"sizes \[\(60, 90\)\], expected two, from 60 values to 60"),
        (lambda f: write_modules(f, (N, 90), (91, N)), "expected two, from 60 values to 60"),
        (lambda f: changed(f / "config.json", use_bidirectional_attention=False), "this model generates text"),
    ],
)
def test_modules_that_are_refused(change: Callable[[Path], Any], message: str, gemma: Path, data_dir: Path) -> None:
    write_modules(gemma, (N, 90), (90, N), pooling_mode_mean_tokens=True)
    change(gemma)
    with pytest.raises(HybridError, match=message) as error:
        convert(gemma, gemma / "a.gguf", tokenizer=data_dir / "tokenizers" / "wordpiece")
    assert "\n" not in str(error.value)


def test_names_without_a_prefix(gemma: Path, data_dir: Path, tmp_path: Path) -> None:
    """As published."""
    convert(gemma, tmp_path / "a.gguf", tokenizer=data_dir / "tokenizers" / "wordpiece")
    tensors = load_file(gemma / "model.safetensors")
    save_file({name.removeprefix("model."): x for name, x in tensors.items()}, gemma / "model.safetensors")
    convert(gemma, tmp_path / "b.gguf", tokenizer=data_dir / "tokenizers" / "wordpiece")
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()
