"""Encoders with random weights against transformers: encoders/make.py makes the files."""

from pathlib import Path

import numpy as np
import pytest
import random_checkpoints
from random_checkpoints import ENCODERS
from reference.encoders import encoder as twin

from hybrid.convert import convert
from hybrid.infer.engine.encoder import Encoder
from hybrid.infer.evaluate.embed import Embedder
from hybrid.infer.evaluate.pairs import TextIds

HERE = Path(__file__).parent / "encoders"
IN_F32 = {"embedding-gemma": 3e-5, "lfm2-bidirectional": 5e-6}  # norms and RoPE are in f32 there: errors
Golden = tuple[list[list[int]], list[int], list[np.ndarray], int]


def golden(name: str) -> Golden:
    """Texts, where the second text of each begins, results of each, and which values of a row these have."""
    with np.load(HERE / f"{name}.npz") as file:
        texts = np.split(file["ids"], np.cumsum(file["lengths"])[:-1])
        values = list(file["scores"]) if "scores" in file else np.split(file["rows"], np.cumsum(file["lengths"])[:-1])
        return [text.tolist() for text in texts], file["seconds"].tolist(), values, 1 if "scores" in file else 4


@pytest.mark.parametrize("name", ENCODERS)
def test_the_twin_computes_what_transformers_does(name: str) -> None:
    config = random_checkpoints.complete(ENCODERS[name])
    tensors = random_checkpoints.tensors(config)
    for text, second, expected, every in zip(*golden(name)[:3], [golden(name)[3]] * 3, strict=True):
        found = twin(config, tensors, text, second)
        np.testing.assert_allclose(found[..., ::every], expected, rtol=3e-7, atol=IN_F32.get(name, 3e-7))


@pytest.mark.parametrize("name", ENCODERS)
def test_the_model_computes_what_transformers_does(name: str, data_dir: Path, tmp_path: Path) -> None:
    source = random_checkpoints.write(ENCODERS[name], tmp_path / "model")
    random_checkpoints.pad_positions(source)
    path = tmp_path / f"{name}.gguf"
    convert(source, path, outtype="f32", tokenizer=data_dir / "tokenizers" / "wordpiece")
    texts, seconds, expected, every = golden(name)
    if every == 1:
        with Embedder(path) as embedder:
            found = list(embedder.scores_of_ids([TextIds(*both) for both in zip(texts, seconds, strict=True)]))
    else:
        encoder = Encoder.load(path)
        found = encoder.encode(texts, seconds)
        encoder.close()
    for x, wanted in zip(found, expected, strict=True):
        error = np.abs(x[..., ::every] - wanted).max() / max(1, np.abs(wanted).max())
        print(name, error)
        assert error < 1e-5
