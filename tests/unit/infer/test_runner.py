"""Owners of slots, and what a slot knows of itself, after anything is refused, stopped, filled or given back."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hybrid.infer import Interrupted, LoadedModel, Stop, Work
from hybrid.infer.answers.batch.batcher import Batcher, Job
from hybrid.infer.answers.drawing.drawing import Drawing
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.bench.shapes import ModelShape, write_shape
from hybrid.infer.memory.state_file import read_state, write_state
from hybrid.infer.memory.state_header import StateHeader
from hybrid.infer.runner import Slot
from hybrid.quant.ggml.errors import StateError, UsageError
from hybrid.quant.ggml.types import FileType

LLAMA = ModelShape(
    "runner-llama", "llama", 2, 64, 320, 512, 1e-5, n_ff=96, n_head=2, n_head_kv=1, head_dim=32, rope_base=1e4
)
MAMBA = ModelShape("runner-mamba", "mamba", 2, 64, 320, 512, 1e-5, d_state=16, dt_rank=4)
IDS = np.random.default_rng(4).integers(260, 320, 40).tolist()


@pytest.fixture(scope="module", params=[LLAMA, MAMBA], ids=["attention", "recurrent"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shape(request.param, tmp_path_factory.mktemp("runner") / "m.gguf", FileType.F32)


@pytest.fixture
def model(path: Path) -> Iterator[LoadedModel]:
    with LoadedModel.load(path, n_ctx=64, n_seq_max=2, n_ubatch=16, n_threads=1, checkpoint_budget=1 << 20) as model:
        yield model


def test_slots_are_taken_and_given_back(model: LoadedModel) -> None:
    first, second = Slot(model.runner), Slot(model.runner)
    assert {first.slot, second.slot} == {0, 1} and model.n_free == 0
    with pytest.raises(UsageError, match="all 2 sequences are in use"):
        Slot(model.runner)
    model.eval([Work(first, IDS[:5])])
    first.close()
    first.close()  # a second time gives nothing back
    assert model.n_free == 1
    again = Slot(model.runner)
    assert (again.slot, again.n_past, again.tokens) == (first.slot, 0, [])


@pytest.mark.parametrize("call", ["fill", "truncate", "become", "shift", "leave_gap", "eval", "step"])
def test_a_closed_slot_is_not_touched(model: LoadedModel, call: str) -> None:
    closed = Slot(model.runner)
    closed.close()
    other = Slot(model.runner)  # the same one of the memory
    other.fill(IDS)
    calls = {
        "fill": lambda: closed.fill(IDS[:3]),
        "truncate": lambda: closed.truncate(0),
        "become": lambda: closed.become(other),
        "shift": lambda: closed.shift(0, 3),
        "leave_gap": lambda: closed.leave_gap(0, 3),
        "eval": lambda: model.eval([Work(closed, IDS[:3])]),
        "step": lambda: model.runner.step(closed, 261),
    }
    with pytest.raises(UsageError, match="was closed"):
        calls[call]()
    assert other.slot == closed.slot and other.n_past == len(other.tokens) == len(IDS)


def test_random_numbers_are_nobodys_beginning(model: LoadedModel) -> None:
    """Values left by `fill` were never computed: they must not be taken for the prefix of a text."""
    seq = model.sequence()
    seq.fill(IDS[:30])
    assert not seq.is_computed and seq.n_computed == 0
    assert seq.resume(IDS) == 0
    logits = seq.prefill(IDS)
    assert seq.is_computed
    other = model.sequence()
    assert logits.tobytes() == other.prefill(IDS).tobytes()


def test_hidden_states_are_what_logits_are_made_of(model: LoadedModel) -> None:
    seq, other = model.sequence(), model.sequence()
    seen: list[tuple[int, int]] = []
    rows, none = model.runner.hidden_states(
        [Work(seq, IDS, slice(20, None, 7)), Work(other, IDS[:3], "none")],
        lambda done, total: seen.append((done, total)),
    )
    assert rows.shape == (3, 64) and none.shape == (0, 64) and seen[-1] == (43, 43)
    assert seq.tokens == IDS and other.tokens == IDS[:3], "the slots know what they were given"
    # the next token equals the one after the same tokens by eval
    goes_on = model.runner.step(seq, 261)
    other.clear()
    model.eval([Work(other, IDS, "none")])
    assert goes_on.tobytes() == other.decode(261).tobytes()


def test_hidden_states_can_be_stopped(model: LoadedModel) -> None:
    seq, stop = model.sequence(), Stop()
    with pytest.raises(Interrupted), model.stopped_by(stop):
        model.runner.hidden_states([Work(seq, IDS)], lambda done, total: stop.set())
    assert seq.tokens == IDS[:16] and seq.n_past == 16, "the ubatch that was read whole"


def test_a_damaged_cache_leaves_no_sequence_behind(model: LoadedModel, tmp_path: Path) -> None:
    seq = model.sequence()
    seq.prefill(IDS)
    seq.save(tmp_path / "s", checkpoints=1 << 20)
    with read_state(tmp_path / "s") as state:
        header, arrays = state.header, {name: state[name].copy() for name in state}
    assert header.cache
    entries = [{**entry, "parent": 5} for entry in header.cache]
    bad = StateHeader(header.fingerprint, header.model, header.n_tokens, cache=entries)
    write_state(tmp_path / "bad", bad, arrays.items())
    with pytest.raises(StateError, match="entry 0 of its cache"):
        model.restore(tmp_path / "bad")
    assert model.n_free == 1


def test_a_job_without_a_sequence_ends_alone(model: LoadedModel) -> None:
    """If another user has taken the sequences, answers of others go on."""

    class Words:
        eog: frozenset[int] = frozenset()

        def is_eog(self, token: int) -> bool:
            return False

        def stream(self, skip_special: bool = False, shown: object = ()) -> "Words":
            return self

        def push(self, token: int) -> str:
            return "."

        def flush(self) -> str:
            return ""

    others = [model.sequence(), model.sequence()]
    batcher = Batcher(model.runner, 1)

    def job() -> Job:
        drawing = Drawing(Sampler(SamplingParams(temp=0), model.n_vocab), Words(), 3, ())  # type: ignore[arg-type]
        return Job(IDS, drawing)

    refused, answered = job(), job()
    batcher.submit(refused)
    assert batcher.step() == [refused] and not batcher.busy and batcher.n_faults == 0
    assert isinstance(refused.error, UsageError) and "in use" in str(refused.error)
    others[0].close()
    batcher.submit(answered)
    assert list(batcher.run()) == [answered] and len(answered.result.ids) == 3 and answered.error is None
