"""DeepSeek-V4: keys that a file may have, and what its layers keep."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_checkpoints
from random_checkpoints import CONFIGS

from hybrid.convert import convert
from hybrid.infer import LoadedModel
from hybrid.infer.evaluate.imatrix import collect
from hybrid.quant.ggml.errors import FormatError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import GGMLType
from hybrid.quant.ggml.writer import GGUFWriter

TABLE = "blk.0.ffn_gate_tid2eid.weight"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Path:
    folder = tmp_path_factory.mktemp("deepseek4")
    checkpoint = random_checkpoints.write(CONFIGS["deepseek4"], folder / "model")
    path = folder / "model.gguf"
    convert(checkpoint, path, outtype="f32", tokenizer=data_dir / "checkpoints" / "mamba-bf16")
    return path


@pytest.fixture
def changed(file: Path, tmp_path: Path) -> Callable[..., Path]:
    """The file with changed keys, named without the architecture's prefix, or another table of experts."""

    def make(table: np.ndarray | None = None, **keys: Any) -> Path:
        others = {f"deepseek4.{name.replace('__', '.')}": value for name, value in keys.items()}
        path = tmp_path / "changed.gguf"
        with GGUFFile.open(file) as old, GGUFWriter(path, None) as new:
            for key, value in old.metadata.items():
                new.add(key, *((others[key], None) if key in others else (value, old.value_types[key])))
            kinds = {name: tensor.type for name, tensor in old.tensors.items()}
            kinds |= {TABLE: GGMLType.F32} if table is not None else {}
            for name, tensor in old.tensors.items():
                new.declare(name, tensor.shape, kinds[name])
            for name in kinds:
                new.write(name, old.raw(name) if table is None or name != TABLE else table)
        return path

    return make


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"attention__compress_ratios": [0, 0, 7, 3, 7]}, r"compress_ratios = .*entries for the indexer of layer 0"),
        ({"attention__compress_ratios": [3, 0, 7]}, "has 3 values for 5 layers"),
        ({"expert_gating_func": 2}, "expert_gating_func = 2, expected 4, the root of the softplus"),
        ({"attention__output_group_count": 7}, "output_group_count = 7, expected a divisor of the 60 values of heads"),
        ({"rope__dimension_count": 18}, "dimension_count = 18, expected an even number of the 16 values of a head"),
        ({"rope__dimension_count": 11}, "dimension_count = 11, expected an even number of the 16 values of a head"),
    ],
)
def test_impossible_keys(changed: Callable[..., Path], keys: dict[str, Any], says: str) -> None:
    with pytest.raises(FormatError, match=says):
        LoadedModel.load(changed(**keys))


def test_ratios_of_layers_that_guess_ahead(file: Path, changed: Callable[..., Path]) -> None:
    """llama.cpp's converter writes these ratios whether or not the file has such layers."""
    ids, got = list(range(300, 330)), []
    for path in (file, changed(attention__compress_ratios=[3, 0, 7, 3, 7, 0])):
        with LoadedModel.load(path, n_ctx=64) as model:
            got.append(model.sequence().logits_of(ids))
    np.testing.assert_array_equal(got[0], got[1])


def test_a_table_of_floats(changed: Callable[..., Path]) -> None:
    with pytest.raises(FormatError, match=r"tid2eid\.weight is F32, expected I32"):
        LoadedModel.load(changed(table=np.zeros((random_checkpoints.N_VOCAB, 3), np.float32)))


def test_what_is_kept(file: Path) -> None:
    """A layer with an indexer, one with only a window, and one with all entries; entries of 3 and 7 tokens."""
    with LoadedModel.load(file, n_ctx=64) as model:
        kept = {spec.name.removesuffix("."): spec for spec in model.engine.network.specs}
    names = {
        i: sorted(name.removeprefix(f"blk.{i}.") for name in kept if name.startswith(f"blk.{i}.")) for i in range(3)
    }
    assert names == {
        0: ["entries", "entries_pool", "index", "index_pool", "kv"],
        1: ["kv"],
        2: ["entries", "entries_pool", "kv"],
    }
    assert kept["blk.0.entries_pool"].nbytes == 4 * 6 * 80 and kept["blk.2.entries_pool"].nbytes == 4 * 6 * 40
    assert (kept["blk.0.index"].every, kept["blk.0.index"].n, kept["blk.2.entries"].every) == (3, 16, 7)


def test_importance_of_the_grouped_output(file: Path) -> None:
    """The file has one matrix, so one row of sums: every group of every token counts."""
    text = "A window, and what is left of what came before it: " * 9
    with LoadedModel.load(file, n_ctx=32, n_threads=1) as model:
        *_, last = collect(model, text, n_ctx=32, chunks=2)
    sums, counts = last.sums["blk.0.attn_output_a.weight"]
    assert sums.shape == (1, 30) and sums.all() and counts.tolist() == [2 * 64]
