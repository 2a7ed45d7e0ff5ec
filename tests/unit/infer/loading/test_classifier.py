"""The head against its formula in transformers, and heads that are refused."""

import math
from pathlib import Path

import numpy as np
import pytest
from retrieval_checkpoints import write_gguf

from hybrid.infer.loading.classifier import Classifier
from hybrid.quant.ggml.errors import FormatError
from hybrid.quant.ggml.reader import GGUFFile

N, LABELS = 5, ["far", "near", "same"]


def head(*names: str, n_labels: int = 3) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    shapes = {
        "cls.weight": (N, N), "cls.bias": (N,), "cls.norm.weight": (N,), "cls.output.weight": (n_labels, N),
        "cls.output.bias": (n_labels,),
    }  # fmt: skip
    return {name: rng.standard_normal(shapes[name]).astype(np.float32) for name in names}


def test_tanh_head(tmp_path: Path) -> None:
    t = head("cls.weight", "cls.bias", "cls.output.weight", "cls.output.bias")
    x = np.arange(N) / 4 - 0.7
    with GGUFFile.open(write_gguf(tmp_path / "a.gguf", "bert", t)) as file:
        read = Classifier.read(file, N, 1e-5)
        assert read is not None and read.labels == tuple(LABELS) and read.n_labels == 3
    wanted = t["cls.output.weight"].astype(np.float64) @ np.tanh(t["cls.weight"] @ x + t["cls.bias"])
    np.testing.assert_allclose(read.scores(x), wanted + t["cls.output.bias"], rtol=1e-12)


def test_gelu_head_with_norm(tmp_path: Path) -> None:
    t = head("cls.weight", "cls.norm.weight", "cls.output.weight", "cls.output.bias")
    x = np.arange(N) / 4 - 0.7
    with GGUFFile.open(write_gguf(tmp_path / "a.gguf", "modern-bert", t, None)) as file:
        read = Classifier.read(file, N, 1e-2)
        assert read is not None and read.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    y = np.array([v * (1 + math.erf(v / math.sqrt(2))) / 2 for v in t["cls.weight"].astype(np.float64) @ x])
    y = (y - y.mean()) / np.sqrt(y.var() + 1e-2) * t["cls.norm.weight"]
    np.testing.assert_allclose(read.scores(x), t["cls.output.weight"] @ y + t["cls.output.bias"], rtol=1e-12)


def test_one_label_as_a_vector(tmp_path: Path) -> None:
    t = head("cls.output.weight", n_labels=1)
    x = np.arange(N) / 4
    for i, values in enumerate((t["cls.output.weight"], t["cls.output.weight"][0])):
        with GGUFFile.open(write_gguf(tmp_path / f"{i}.gguf", "bert", {"cls.output.weight": values}, ["only"])) as file:
            read = Classifier.read(file, N, 1e-5)
            assert read is not None and read.labels == ("only",)
            np.testing.assert_allclose(read.scores(x), t["cls.output.weight"].astype(np.float64) @ x, rtol=1e-12)


def test_heads_that_are_refused(tmp_path: Path) -> None:
    whole = head("cls.weight", "cls.output.weight")
    for labels in (["a", "b"], 7, [1, 2, 3]):
        with (
            GGUFFile.open(write_gguf(tmp_path / "a.gguf", "bert", whole, labels)) as file,
            pytest.raises(FormatError, match=r"output_labels = .*, expected 3 names"),
        ):
            Classifier.read(file, N, 1e-5)
    with (
        GGUFFile.open(write_gguf(tmp_path / "b.gguf", "bert", head("cls.weight"))) as file,
        pytest.raises(FormatError, match=r"b\.gguf has no cls\.output\.weight"),
    ):
        Classifier.read(file, N, 1e-5)
    with (
        GGUFFile.open(write_gguf(tmp_path / "c.gguf", "bert", whole)) as file,
        pytest.raises(FormatError, match=r"cls\.output\.weight has shape \[3, 5\], expected \[3, 6\]"),
    ):
        Classifier.read(file, N + 1, 1e-5)
    with GGUFFile.open(write_gguf(tmp_path / "d.gguf", "bert", {"x": np.zeros(3, np.float32)}, None)) as file:
        assert Classifier.read(file, N, 1e-5) is None
