"""Logits of a few tokens: the same bits as among all logits."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import random_checkpoints

from hybrid.convert import convert
from hybrid.infer import LoadedModel, Work
from hybrid.infer.engine.chosen_logits import MOST_ROWS, ChosenLogits
from hybrid.infer.program.operands import LowRank
from hybrid.quant.ggml.errors import UnsupportedError

ROTATED = Path(__file__).resolve().parents[3] / "data" / "rotated"


# tied; with a bias of the output and a norm's; with a cap of logits and a scaled embedding
@pytest.mark.parametrize(("name", "type_"), [("qwen3", "bf16"), ("phimoe", "q8_0"), ("gemma2", "bf16")])
def test_bits_of_the_models_logits(name: str, type_: str, tmp_path: Path, data_dir: Path) -> None:
    source = random_checkpoints.write(random_checkpoints.CONFIGS[name], tmp_path / name)
    path = tmp_path / f"{name}.gguf"
    convert(source, path, outtype=type_, tokenizer=data_dir / "checkpoints" / "mamba-bf16")
    compare(path)


@pytest.mark.parametrize("name", ["v1", "v2-tied"])
def test_bits_of_a_rotated_matrix(name: str) -> None:
    compare(ROTATED / name / "model-ptq1_0.gguf")


def compare(path: Path) -> None:
    chosen = [7, 501, 7, 0, 311]
    with LoadedModel.load(path, n_ctx=64, n_seq_max=2) as model:
        ids = np.random.default_rng(3).integers(0, model.n_vocab, MOST_ROWS + 5).tolist()
        every = model.eval([Work(model.sequence(), ids, "all")])[0].logits
        (rows,) = model.runner.hidden_states([Work(model.sequence(), ids, "all")])
        few = ChosenLogits(model.engine, chosen)(rows)
    assert every is not None and few.shape == (len(ids), len(chosen))
    assert (few == every[:, chosen]).all() and np.ptp(few) > 0.1


def test_an_adapter_of_the_output_is_refused() -> None:
    with LoadedModel.load(ROTATED / "v1" / "model-ptq1_0.gguf", n_ctx=16) as model:
        net = model.engine.network
        net.output = replace(net.output, adapters=LowRank(0, 1, 1))
        with pytest.raises(UnsupportedError, match="an adapter changes the output matrix"):
            ChosenLogits(model.engine, [1])
