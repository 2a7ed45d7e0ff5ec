"""Rows given for tokens: a token's own embedding, given as the row of a picture, changes no bit of a text."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from test_conformance import MODELS, tokens

from hybrid.infer import LoadedModel, Work
from hybrid.infer.engine.pictures import Picture
from hybrid.quant.ggml.split import open_gguf
from hybrid.quant.ggml.types import FileType

# attention, states, windows with tokens that see each other, axes of positions, factors of embeddings, experts
FAMILIES = ["llama", "jamba", "gemma3", "qwen35", "granite", "lfm2"]
N = 90


class Given:
    """A model, a text, and the text with some tokens as pictures of their own embeddings."""

    def __init__(self, path: Path, **options: object) -> None:
        self.model = LoadedModel.load(path, n_ctx=160, n_threads=2, **options)  # type: ignore[arg-type]
        scale = np.float32(self.model.hparams.scales.embedding)
        self.rows = open_gguf(path).f32("token_embd.weight").astype(np.float32) * scale
        self.text = tokens(N)

    def picture(self, ids: list[int], name: bytes) -> Picture:
        picture = Picture(self.rows[ids], (1, len(ids)), name=name)
        self.model.runner.pictures.add(picture)
        return picture

    def replaced(self, runs: list[tuple[int, int]]) -> tuple[list[int], list[Picture]]:
        ids, held = list(self.text), []
        for begin, end in runs:
            held.append(self.picture(self.text[begin:end], b"%d" % begin))
            ids[begin:end] = held[-1].ids
        return ids, held


def runs_of(model: LoadedModel) -> list[tuple[int, int]]:
    """Longer runs only where a picture's tokens are like those of a text."""
    if model.memory.is_together or model.memory.has_axes:
        return [(0, 1), (7, 8), (8, 9), (60, 61), (N - 1, N)]
    return [(0, 3), (7, 8), (8, 40), (60, 61), (N - 5, N)]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("n_ubatch", [512, 16])
def test_embeddings_as_pictures_change_no_bit(family: str, n_ubatch: int, random_model: Callable[..., Path]) -> None:
    given = Given(random_model(MODELS[family], FileType.Q8_0), n_ubatch=n_ubatch, n_seq_max=2)
    model = given.model
    ids, held = given.replaced(runs_of(model))
    plain, seeing = model.sequence(), model.sequence()
    want = plain.logits_of(given.text)
    np.testing.assert_array_equal(seeing.logits_of(ids), want)
    assert held and seeing.tokens == ids
    np.testing.assert_array_equal(seeing.decode(5), plain.decode(5))
    assert seeing.tokens == [*ids, 5]
    # several in one pass, one of them without pictures; also without logits
    for seq in (plain, seeing):
        seq.truncate(0)
    results = model.eval([Work(plain, given.text, "all"), Work(seeing, ids, "all")])
    for result in results:
        np.testing.assert_array_equal(result.logits, want)
    for seq in (plain, seeing):
        seq.truncate(0)
    states = model.runner.hidden_states([Work(plain, given.text, "last"), Work(seeing, ids, "last")])
    np.testing.assert_array_equal(*states)
    model.close()


def test_text_has_the_same_programs_as_ever(random_model: Callable[..., Path]) -> None:
    """Programs for pictures are made when the first is read; others have no op of theirs."""
    given = Given(random_model(MODELS["llama"], FileType.Q8_0))
    engine = given.model.engine
    assert engine._pictures is None
    given.model.sequence().logits_of(given.text)
    assert engine._pictures is None
    names = {op.name for program, _ in engine._programs.values() for op in program.ops}
    assert "embed" in names and "pictures" not in names
    ids, held = given.replaced([(3, 9)])
    given.model.runner.give_back(0)
    given.model.sequence().logits_of(ids)
    assert engine._pictures is not None and held
    assert {"pictures"} == {op.name for p in engine._pictures.programs.values() for op in p.ops} - names
    given.model.close()
