"""Qwen3-Reranker: two rows of the output matrix become a head; the same model with a head of its own."""

import json
from pathlib import Path

import numpy as np
import pytest
import random_checkpoints
from reference.families import Reference
from retrieval_checkpoints import ANSWERS, qwen3_reranker
from safetensors.numpy import load_file, save_file

from hybrid.convert import convert
from hybrid.infer.evaluate.embed import Embedder
from hybrid.quant.ggml.errors import TokenizerError
from hybrid.quant.ggml.reader import GGUFFile

PAIRS = [("how to read a file", "open it"), ("a", "b " * 90), ("what?", "")]


@pytest.mark.parametrize("tied", [True, False])
def test_the_answers_are_scored(tied: bool, data_dir: Path, tmp_path: Path) -> None:
    source = qwen3_reranker(tmp_path, data_dir, tie_word_embeddings=tied)
    path = tmp_path / "a.gguf"
    convert(source, path, outtype="f32")
    with GGUFFile.open(path) as file:
        assert file.get("qwen3.pooling_type") == 4
        assert list(file.get("qwen3.classifier.output_labels")) == ["yes", "no"]
        assert list(file.get("tokenizer.chat_templates")) == ["rerank"]
        assert "output.weight" not in file.tensors
    config, tensors = json.loads((source / "config.json").read_text()), load_file(source / "model.safetensors")
    twin = Reference(config, tensors)
    with Embedder(path, precision="exact") as embedder:
        assert embedder.labels == ("yes", "no")
        scores, tokens = embedder.scores(PAIRS), embedder.pairs.all(PAIRS, truncate=False)
        wanted = np.array([twin.logits(one.ids)[-1][list(ANSWERS)] for one in tokens])
        print(np.abs(scores - wanted).max())
        np.testing.assert_allclose(scores, wanted, atol=2e-5)
        for pair, together in zip(PAIRS, scores, strict=True):
            assert (embedder.scores([pair])[0] == together).all()
        text = embedder.tokenizer.decode(tokens[0].ids)
        assert "<Query>: how to read a file\n<Document>: open it<|im_end|>\n<|im_start|>assistant\n<think>" in text


def test_a_head_of_its_own(data_dir: Path, tmp_path: Path) -> None:
    source = qwen3_reranker(tmp_path, data_dir, architectures=["Qwen3ForSequenceClassification"], num_labels=1)
    tensors = load_file(source / "model.safetensors")
    save_file({**tensors, "score.weight": np.ones((1, 96), np.float32)}, source / "model.safetensors")
    report = convert(source, tmp_path / "a.gguf", outtype="f32")
    assert any(note.startswith("llama.cpp scores every text 1") for note in report.notes)
    with GGUFFile.open(tmp_path / "a.gguf") as file:
        assert file.f32("cls.output.weight").tolist() == [[1.0] * 96]
        assert list(file.get("tokenizer.chat_templates")) == ["rerank"]
    with Embedder(tmp_path / "a.gguf") as embedder:
        assert embedder.scores(PAIRS).shape == (3, 1)


@pytest.mark.parametrize("where", ["folder", "readme", "config", "nowhere"])
def test_the_name_says_it(where: str, data_dir: Path, tmp_path: Path) -> None:
    named = {"_name_or_path": "Qwen/Qwen3-Reranker-0.6B"} if where == "config" else {}
    source = qwen3_reranker(tmp_path, data_dir, **named)
    if where != "folder":
        source = source.rename(tmp_path / "model")
    if where == "readme":
        (source / "README.md").write_text("---\nlicense: apache-2.0\n---\n# Qwen3-Reranker-0.6B\n\nA model.")
    convert(source, tmp_path / "a.gguf", vocab_only=True)
    with GGUFFile.open(tmp_path / "a.gguf") as file:
        assert ("qwen3.pooling_type" in file.metadata) == (where != "nowhere")


def test_without_the_tokens(data_dir: Path, tmp_path: Path) -> None:
    source = random_checkpoints.write(random_checkpoints.CONFIGS["qwen3"], tmp_path / "Qwen3-Reranker-1B")
    (source / "tokenizer.json").write_bytes((data_dir / "tokenizers" / "bpe_qwen.json").read_bytes())
    with pytest.raises(TokenizerError, match=r"Qwen3-Reranker-1B: its tokenizer\.json has no tokens 'yes' and 'no'"):
        convert(source, tmp_path / "a.gguf")
