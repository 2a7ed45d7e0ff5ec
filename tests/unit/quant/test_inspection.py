"""The facts of a file, on a small hybrid written for these tests."""

from pathlib import Path

import numpy as np
import pytest
from two_layers import TENSORS, write

from hybrid.quant import inspect
from hybrid.quant.ggml.errors import FormatError
from hybrid.quant.ggml.reader import GGUFFile


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "hybrid.gguf")


def test_facts(file: Path) -> None:
    with GGUFFile.open(file) as gguf:
        facts = inspect(gguf)
    assert facts.file_type == "Q8_0"
    assert facts.n_vocab == 11
    weights = sum(int(np.prod(shape)) for shape, _ in TENSORS.values())
    assert facts.n_weights == weights == sum(t.n_weights for t in facts.types)
    assert facts.bits_per_weight == pytest.approx(8 * sum(t.nbytes for t in facts.types) / weights)


def test_of_a_path(file: Path, tmp_path: Path) -> None:
    with GGUFFile.open(file) as gguf:
        assert inspect(file) == inspect(str(file)) == inspect(gguf)
    (tmp_path / "text.gguf").write_text("no model")
    with pytest.raises(FormatError, match=r"text\.gguf is not a GGUF file"):
        inspect(tmp_path / "text.gguf")
