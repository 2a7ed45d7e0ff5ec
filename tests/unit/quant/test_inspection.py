"""The facts of a file, on a small hybrid written for the purpose."""

from pathlib import Path

import numpy as np
import pytest
import tiny_models
from two_layers import D_CONV, D_HEAD, D_INNER, D_STATE, N_KV, TENSORS, write

from hybrid.quant import inspect
from hybrid.quant.ggml.errors import FormatError
from hybrid.quant.ggml.reader import GGUFFile


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "hybrid.gguf")


def test_facts(file: Path) -> None:
    with GGUFFile.open(file) as gguf:
        facts = inspect(gguf, n_ctx=100)
    assert facts.pattern == ("M", "AE", "-")
    assert facts.file_type == "Q8_0"
    assert facts.n_vocab == 11
    assert facts.state_nbytes_per_seq == 4 * (D_INNER * D_STATE + D_INNER * (D_CONV - 1))
    assert facts.kv_nbytes_per_token == 2 * 2 * N_KV * D_HEAD
    assert facts.kv_nbytes_per_seq == 100 * facts.kv_nbytes_per_token
    weights = sum(int(np.prod(shape)) for shape, _ in TENSORS.values())
    assert facts.n_weights == weights == sum(t.n_weights for t in facts.types)
    assert facts.bits_per_weight == pytest.approx(8 * sum(t.nbytes for t in facts.types) / weights)


def test_latent_attention_and_the_delta_rule(tmp_path: Path) -> None:
    """Keys of 12 latent values and 4 more, of which the first are the value, too; states of 7 x 7 for each of 4 heads
    behind three convolutions of 3 taps."""
    facts = inspect(tiny_models.kimi().write(tmp_path / "kimi.gguf"), n_ctx=10)
    assert facts.pattern == ("M", "AE")
    assert facts.kv_nbytes_per_token == 2 * (16 + 12)
    assert facts.state_nbytes_per_seq == 4 * (4 * 7 * 7 + 3 * 2 * 4 * 7)
    own = tiny_models.kimi()
    own.set("hybrid.kda.head_count", 6)
    more = inspect(own.write(tmp_path / "own.gguf")).state_nbytes_per_seq - facts.state_nbytes_per_seq
    assert more == 4 * 2 * 7 * 7


def test_of_a_path(file: Path, tmp_path: Path) -> None:
    with GGUFFile.open(file) as gguf:
        assert inspect(file) == inspect(str(file)) == inspect(gguf)
    (tmp_path / "text.gguf").write_text("no model")
    with pytest.raises(FormatError, match=r"text\.gguf is not a GGUF file"):
        inspect(tmp_path / "text.gguf")
