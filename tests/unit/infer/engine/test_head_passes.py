"""The head that guesses tokens ahead: its logits against float64, and what it leaves unchanged."""

import json
from pathlib import Path

import numpy as np
import pytest
import random_checkpoints
import random_heads
from reference.heads import reference_head

from hybrid.convert import convert
from hybrid.infer import LoadedModel
from hybrid.infer.engine.head_passes import HeadOutputs, HeadPasses, HeadSegment
from hybrid.infer.engine.ubatch import Segment

N_PROMPT, N_GUESSED = 37, 3


def converted(name: str, folder: Path, data_dir: Path, *, heads: bool = True) -> Path:
    checkpoint = random_heads.write(name, folder / name)
    path = folder / f"{name}-{heads}.gguf"
    convert(checkpoint, path, outtype="f32", tokenizer=data_dir / "checkpoints" / "mamba-bf16", heads=heads)
    return path


def prompt() -> list[int]:
    return np.random.default_rng(5).integers(0, random_checkpoints.N_VOCAB, N_PROMPT + 1).tolist()


def states_of(model: LoadedModel, ids: list[int]) -> np.ndarray:
    """The model's hidden states of all tokens, read by a sequence."""
    model.engine.keeps_states = True
    slot = model.sequence()
    model.engine.run([Segment(slot.slot, ids, (len(ids) - 1,))])
    return model.engine.last_states(len(ids))


@pytest.mark.parametrize("name", random_heads.WITH_HEADS)
def test_logits_of_heads(name: str, tmp_path: Path, data_dir: Path) -> None:
    """Logits for the prompt in two passes, then for tokens that follow the head's own states."""
    path, ids = converted(name, tmp_path, data_dir), prompt()
    guessed = np.random.default_rng(6).integers(0, random_checkpoints.N_VOCAB, N_GUESSED).tolist()
    config = json.loads((tmp_path / name / "config.json").read_text())
    settings, shapes = random_heads.WITH_HEADS[name]
    twin = reference_head(config, random_checkpoints.tensors({**settings, **config}, shapes=shapes))
    expected = twin.foretold(ids, guessed)
    with LoadedModel.load(path, n_ctx=64, precision="exact") as model:
        head = model.engine.network.head
        assert head is not None
        passes, states = HeadPasses(model.engine, head), states_of(model, ids[:-1])
        passes.run([HeadSegment(0, ids[1:12], states[:11], wanted=False)])
        foretold = passes.run([HeadSegment(0, ids[12:], states[11:])])
        rows = [foretold.logits[0]]
        for token in guessed:
            foretold = passes.run([HeadSegment(0, [token], foretold.states)])
            rows.append(foretold.logits[0])
    error = np.abs(np.stack(rows) - expected).max() / np.abs(expected).max()
    print(f"{name}: {error:.1e} of the largest logit")
    assert error < 2e-5


VARIANTS = ("-shared-mtp", "-yarn-mtp", "-plain-mtp", "-order-mtp", "-groups-mtp")  # with the layers of another one


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.matrix) if n.endswith(VARIANTS) else n for n in random_heads.WITH_HEADS],
)
def test_a_head_changes_nothing_but_speed(name: str, tmp_path: Path, data_dir: Path) -> None:
    """The same bits with a head in the file, without one, and after the head has run in between."""
    ids, rows = prompt(), []
    for heads in (True, False):
        path = converted(name, tmp_path / str(heads), data_dir, heads=heads)
        with LoadedModel.load(path, n_ctx=64) as model:
            assert (model.engine.network.head is not None) == heads
            sequence = model.sequence()
            rows.append(sequence.logits_of(ids[:20]))
            if head := model.engine.network.head:
                passes = HeadPasses(model.engine, head)
                passes.run([HeadSegment(0, ids[1:20], model.engine.last_states(19))])
            rows.append(sequence.logits_of(ids[20:]))
    np.testing.assert_array_equal(rows[0], rows[2])
    np.testing.assert_array_equal(rows[1], rows[3])


def test_segments_are_cut_and_joined_without_effect(tmp_path: Path, data_dir: Path) -> None:
    """However a text is cut, and whatever else is in a pass."""
    path, ids = converted("qwen35-mtp", tmp_path, data_dir), prompt()
    results: list[HeadOutputs] = []
    for n_ubatch in (64, 5):
        with LoadedModel.load(path, n_ctx=64, n_ubatch=64, n_seq_max=3, precision="exact") as model:
            head = model.engine.network.head
            assert head is not None
            passes, states = HeadPasses(model.engine, head), states_of(model, ids[:-1])
            passes.n_ubatch = n_ubatch
            pairs = ids[1:], states
            cuts = {0: 9, 2: 17}
            passes.run([HeadSegment(s, pairs[0][:n], pairs[1][:n], wanted=False) for s, n in cuts.items()])
            results.append(passes.run([HeadSegment(s, pairs[0][n:], pairs[1][n:]) for s, n in cuts.items()]))
            assert passes.memory.n_past.tolist() == [N_PROMPT, 0, N_PROMPT]
    for result in results:
        np.testing.assert_array_equal(result.logits, results[0].logits[[0, 0]])
        np.testing.assert_array_equal(result.states, results[0].states[[0, 0]])
