"""Facts of files with vision towers, for `inspect`."""

from pathlib import Path

import numpy as np
import pytest
import random_towers
from seeing_models import seeing_model, tower_of

from hybrid.convert import convert_vision
from hybrid.infer import LoadedModel
from hybrid.infer.answers.asking.eyes import Eyes
from hybrid.infer.engine.estimate import Estimate
from hybrid.infer.pictures.cost import cost_of_size
from hybrid.pipeline.tower_facts import SIZES, picture_needs, tower_facts
from hybrid.quant.ggml.errors import FormatError
from hybrid.quant.ggml.reader import GGUFFile


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        # 16384 pixels at most, features of 18 x 18 pixels
        ("qwen35-vl", [49, 40]),
        # tiles of 2 x 2 features: 3 x 3 or 2 x 3, and the whole
        ("smolvlm", [40, 28]),
        # the second one is long: two crops, and the whole
        ("gemma3-vl", [4, 12]),
    ],
)
def test_sizes_and_pictures(name: str, tokens: list[int], tmp_path: Path) -> None:
    output = tmp_path / "mmproj.gguf"
    convert_vision(random_towers.write(name, tmp_path / name), output)
    with GGUFFile.open(output) as file:
        facts = tower_facts(file, [(200, 200), (300, 190), (1, 9000)])
        assert facts.nbytes == sum(tensor.nbytes for tensor in file.tensors.values())
    vision = random_towers.CONFIGS[name][0]["vision_config"]
    assert (facts.n_embd, facts.n_ff, facts.patch_size) == (20, vision["intermediate_size"], vision["patch_size"])
    assert facts.n_out == 18 and facts.n_head == 5
    square, wide, thin = facts.pictures
    assert [square.tokens, wide.tokens] == tokens
    assert square.nbytes > 3 * 200 * 200 and not square.trouble
    assert thin.trouble if name == "qwen35-vl" else thin.tokens > 0


def test_a_text_model(tmp_path: Path, data_dir: Path) -> None:
    from hybrid.convert import convert

    output = convert(data_dir / "checkpoints" / "mamba-bf16", tmp_path / "m.gguf").output
    with GGUFFile.open(output) as file, pytest.raises(FormatError, match="holds no vision tower but a model of arch"):
        tower_facts(file)


def test_what_pictures_take(data_dir: Path) -> None:
    """Against the arrays of a model that has read one."""
    path, (width, height) = seeing_model(data_dir), SIZES[-1]
    with Estimate(path, n_threads=2) as estimate:
        needs = picture_needs(tower_of(path), estimate, 256)
    with LoadedModel.load(path, n_ctx=256, n_threads=2) as model:
        eyes = Eyes.open(tower_of(path), model)
        runs = eyes.read(np.zeros((height, width, 3), np.uint8)).runs()
        tower = eyes.tower
        decoded = cost_of_size(eyes.make, width, height).nbytes
        assert needs.tower + needs.reading == tower.gguf.nbytes + tower.nbytes + decoded
        seq = model.sequence()
        seq.prefill([3, *runs[0].ids, 4], pictures=list(runs))
        passes = model.engine.picture_passes
        (program,) = passes.programs.values()
        assert program.arena.nbytes > passes.nbytes > model.engine.n_ubatch * 18 * 4
        assert needs.passes == passes.nbytes + program.arena.nbytes
        seq.close()
        tower.close()
