"""Dense layers after the pooling."""

from pathlib import Path

import numpy as np
import pytest
from retrieval_checkpoints import write_gguf

from hybrid.infer.loading.dense import Dense
from hybrid.quant.ggml.errors import FormatError
from hybrid.quant.ggml.reader import GGUFFile


def layer(name: str, n_in: int, n_out: int, *, bias: bool = False) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(n_in)
    weight = {f"{name}.weight": rng.standard_normal((n_out, n_in)).astype(np.float32)}
    return weight | ({f"{name}.bias": rng.standard_normal(n_out).astype(np.float32)} if bias else {})


def test_layers_one_after_the_other(tmp_path: Path) -> None:
    t = layer("dense_2", 5, 7, bias=True) | layer("dense_3", 7, 3)
    x = np.arange(5) / 3
    with GGUFFile.open(write_gguf(tmp_path / "a.gguf", "lfm2", t, None)) as file:
        dense = Dense.read(file, 5)
    assert dense and dense.n_out(5) == 3
    wanted = t["dense_3.weight"].astype(np.float64) @ (t["dense_2.weight"].astype(np.float64) @ x + t["dense_2.bias"])
    np.testing.assert_allclose(dense.apply(x), wanted, rtol=1e-12)


def test_no_layers(tmp_path: Path) -> None:
    with GGUFFile.open(write_gguf(tmp_path / "a.gguf", "lfm2", {"x": np.zeros(3, np.float32)}, None)) as file:
        dense = Dense.read(file, 5)
    assert not dense and dense.n_out(5) == 5 and dense.apply(np.arange(5.0)).tolist() == [0, 1, 2, 3, 4]


def test_layers_that_do_not_fit(tmp_path: Path) -> None:
    t = layer("dense_2", 5, 7) | layer("dense_3", 6, 3)
    with (
        GGUFFile.open(write_gguf(tmp_path / "a.gguf", "lfm2", t, None)) as file,
        pytest.raises(FormatError, match=r"dense_3\.weight has shape \[3, 6\], expected rows of 7 values"),
    ):
        Dense.read(file, 5)
