"""Answers to random schemas by random models of every family at temperature 2: each is valid, whether generated in a
batch, alone with guesses, or in parts continued from a file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from random_schemas import schemas
from schema_answers import Answers
from test_conformance import LAYERED

from hybrid.infer import LoadedModel
from hybrid.quant.ggml.types import FileType

N_SCHEMAS = 16
SOON = ("gpt2", "lfm2", "rwkv7", "falcon-h1")  # one of each kind of memory: others run the same code
FAMILIES = [
    name if name in SOON else pytest.param(name, marks=[pytest.mark.slow, pytest.mark.matrix]) for name in LAYERED
]


@pytest.mark.exhaustive
@pytest.mark.parametrize("family", FAMILIES)
def test_answers_are_of_their_schemas(family: str, random_model: Callable[..., Path], tmp_path: Path) -> None:
    path = random_model(family, FileType.F32)
    at = crc32(family.encode())  # other schemas for other families
    some: list[dict[str, Any]] = schemas(N_SCHEMAS * 4)[at % 4 :: 4]
    with LoadedModel.load(path, n_ctx=512, n_seq_max=8, checkpoint_budget=0) as model:
        answers = Answers(model, some, 150)
        answers.run(tmp_path, 3)
    assert not answers.wrong
    assert answers.counts["other"] == 0 and answers.counts["whole"] > 0.8 * N_SCHEMAS
