"""A fault in a step costs only the answers in it. The others are, bit for bit, as alone, and the memory's bookkeeping
stays correct."""

import itertools
import random
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tiny_models
from injected import InjectedError, Injection

from hybrid import infer
from hybrid.infer import LoadedModel, faults
from hybrid.infer.answers.batch.batcher import Batcher, Job
from hybrid.infer.answers.batch.job import AnswerFaultError
from hybrid.infer.answers.batch.service import MOST_FAULTS, ClosedError, Service
from hybrid.infer.answers.constraints import Constraint, Grammar
from hybrid.infer.answers.drawing.drawing import Drawing, TextPiece
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.quant.ggml.errors import HybridError

INFER = Path(infer.__file__).parent
WAIT = 300  # seconds: nothing here takes that long
N_STREAMS, N_INJECTIONS = 8, 60
pytestmark = pytest.mark.faults


@pytest.fixture(params=["jamba", "llama", "mamba"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LoadedModel]:
    path = getattr(tiny_models, request.param)().write(tmp_path / "tiny.gguf")
    with LoadedModel.load(path, n_ctx=1024, n_ubatch=48, n_seq_max=N_STREAMS, checkpoint_budget=1 << 20) as loaded:
        yield loaded


@pytest.fixture
def quiet() -> Iterator[list[str]]:
    """The fault messages that listeners get."""
    said: list[str] = []
    before = faults.listen(lambda message, error: said.append(f"{message}: {faults.fault_text(error)}"))
    yield said
    faults.listen(before)


Heard = list[tuple[int | None, object]]


class Stream:
    """One of several kinds of jobs, its output, and its end."""

    def __init__(self, model: LoadedModel, number: int, round_: int) -> None:
        self.number, self.round, self.ended, self.heard = number, round_, threading.Event(), Heard()
        rng = random.Random(number)
        ids = [1, *(rng.randrange(4, model.n_vocab) for _ in range(5 + 9 * number))]
        if number % 3 == 0:  # several share a prefix, and diverge with every round after some tokens
            ids = [1, *range(4, 44), 4 + round_ % 50, *range(10, 40), 4 + number]
        if number == 5:
            ids = [1, *([7, 8, 9, 10] * 12)]  # repeats itself, so that it is guessed
        form = None
        if number in (1, 4):
            form = Constraint(Grammar.of_text('root ::= "ab" [a-f]+ "xyz" [a-c]*'), model.tokenizer)
        params = SamplingParams(temp=0.0 if number == 5 else 0.9, seed=number)
        drawing = Drawing(
            Sampler(params, model.n_vocab),
            model.tokenizer,
            6 + number,
            ["zzz"],
            n_top=2 if number == 2 else None,
            constraint=form,
        )
        self.job = Job(
            ids,
            drawing,
            remember=True,
            speculate=True,
            boundaries=(20,),
            client=number % 2,
            prompt_top=1 if number == 7 else None,
            keep=4 if number == 6 else None,
            on_text=self._hear,
            on_read=lambda n, of: None,
            on_end=self.ended.set,
        )

    def _hear(self, piece: TextPiece) -> None:
        self.heard.append((piece.id, piece.logprobs))

    @property
    def said(self) -> tuple[object, ...]:
        result = self.job.result
        return result.ids, result.reason, result.text, self.job.prompt_logprobs, self.heard


def alone(path: Path, streams: list[Stream]) -> list[tuple[object, ...]]:
    """Each stream's output alone, without a cache."""
    said = []
    with LoadedModel.load(path, n_ctx=1024, n_ubatch=48, n_seq_max=1) as model:
        for stream in streams:
            one = Stream(model, stream.number, stream.round)
            batcher = Batcher(model.runner, 1)
            batcher.submit(one.job)
            for _ in batcher.run():
                pass
            assert one.job.error is None
            said.append(one.said)
    return said


def asked(service: Service, round_: int, injection: Injection) -> list[Stream]:
    """A round of streams with an injection in the service's thread."""
    streams = [Stream(service.model, number, round_) for number in range(N_STREAMS)]

    def begin() -> None:
        for stream in streams:
            service.submit(stream.job)
        injection.start()

    service.call(begin).result(WAIT)
    for stream in streams:
        assert stream.ended.wait(WAIT), f"{injection.place}: stream {stream.number} was never ended"
    assert service.fault is None, f"{injection.place}:\n{''.join(traceback.format_exception(service.fault))}"
    service.call(injection.stop).result(WAIT)
    return streams


def check_books(model: LoadedModel) -> None:
    """Assert that no page, row or slot was lost."""
    assert model.n_free == N_STREAMS and not model.memory.loans
    if model.cache is not None:
        model.cache.clear()
    assert model.memory.recurrent.pool.used == model.memory.attention.pool.used == 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # injected while a generator is closed
def test_faults_at_random_places(model: LoadedModel, quiet: list[str]) -> None:
    service = Service(model, N_STREAMS)
    service.clock = itertools.count(0, 100).__next__  # each fault counts as in a minute of its own
    counting = Injection(0, INFER, but=("faults.py",))
    for _ in range(2):  # the second round finds its texts
        counting.n_calls = 0
        warm = asked(service, 0, counting)
        assert not quiet and all(stream.job.error is None for stream in warm)
    rng = random.Random(7)
    want: dict[tuple[int, int], tuple[object, ...]] = {}
    n_lost = n_survived = n_met = 0
    for i in range(N_INJECTIONS):
        injection = Injection(rng.randrange(1, counting.n_calls), INFER, but=("faults.py",))
        streams = asked(service, i, injection)
        assert service.is_open and service.fault is None
        n_met += bool(injection.place)
        new = [s for s in streams if (s.number, i if s.number % 3 == 0 else 0) not in want]
        for stream, said in zip(new, alone(model.path, new), strict=True):
            want[stream.number, i if stream.number % 3 == 0 else 0] = said
        for stream in streams:
            if stream.job.error is not None:
                assert isinstance(stream.job.error, AnswerFaultError), injection.place
                n_lost += 1
            else:
                same = want[stream.number, i if stream.number % 3 == 0 else 0]
                assert stream.said == same, f"{injection.place}: stream {stream.number}"
                n_survived += 1
        for path in faults.SidePath.all.values():
            path.n_faults = 0  # so no side path is switched off
    print(f"{n_met} of {N_INJECTIONS} injected: {n_lost} answers lost, {n_survived} survived")
    assert n_met > N_INJECTIONS // 2 and n_survived > n_lost
    service.close()
    check_books(model)


def failing(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, error: Exception) -> Callable[[], None]:
    """Make the attribute raise an error; returns a function that restores it."""
    before = getattr(owner, name)

    def fail(*_: object, **__: object) -> object:
        raise error

    monkeypatch.setattr(owner, name, fail)
    return lambda: monkeypatch.setattr(owner, name, before)


def test_only_three_faults_within_a_minute_end_the_service(
    model: LoadedModel, quiet: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(model, N_STREAMS)
    times = iter([0.0, 59.0, 60.0, 119.0, 119.5])
    service.clock = lambda: next(times)
    end = failing(monkeypatch, model.runner.engine, "run", RuntimeError("no room for a number"))
    for n in range(1, 6):
        assert service.is_open and service.batcher.n_faults == n - 1
        one = Stream(model, 2, 0)
        service.submit(one.job)
        assert one.ended.wait(WAIT) and isinstance(one.job.error, AnswerFaultError)
        assert "report what the log says" in str(one.job.error) and "number" not in str(one.job.error)
        assert "no room for a number" in one.job.error.what
    end()
    service.close()
    assert str(service.fault) == "no room for a number"
    with pytest.raises(ClosedError, match="no room for a number"):
        service.submit(Stream(model, 3, 0).job)
    assert len(quiet) == 5 and all("has ended 1 answer:" in line for line in quiet)
    check_books(model)


def test_an_error_of_the_input_in_a_step_is_no_fault(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example a full memory: the step's answers end with the error's message, however often."""
    service = Service(model, N_STREAMS)
    end = failing(monkeypatch, model.memory, "begin", HybridError("the memory is full"))
    for _ in range(MOST_FAULTS + 1):
        one = Stream(model, 2, 0)
        service.submit(one.job)
        assert one.ended.wait(WAIT) and str(one.job.error) == "the memory is full"
    end()
    good = Stream(model, 2, 0)
    service.submit(good.job)
    assert good.ended.wait(WAIT) and good.job.error is None and good.said == alone(model.path, [good])[0]
    assert service.batcher.n_faults == 0
    service.close()
    check_books(model)


PER_ANSWER = [(Sampler, "sample"), (Constraint, "accept"), (Drawing, "begin")]


@pytest.mark.parametrize(("owner", "name"), PER_ANSWER, ids=[f"{owner.__name__}.{name}" for owner, name in PER_ANSWER])
def test_a_fault_in_drawing_costs_one_answer(
    owner: type, name: str, model: LoadedModel, quiet: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often: a client that hits a bug in forms loses only its own answers."""
    service = Service(model, N_STREAMS)
    before = getattr(owner, name)
    good = Stream(model, 2, 0)
    (want,) = alone(model.path, [good])
    for _ in range(MOST_FAULTS + 1):
        streams = [Stream(model, 2, 0), Stream(model, 1, 0)]  # the second one has a form
        hit = {
            id(part)
            for part in (streams[1].job.drawing, streams[1].job.drawing.sampler, streams[1].job.drawing.constraint)
        }

        def fail(self: object, *args: object, hit: set[int] = hit) -> object:
            if id(self) in hit:
                raise InjectedError("in one answer")
            return before(self, *args)

        monkeypatch.setattr(owner, name, fail)
        service.call(lambda streams=streams: [service.submit(one.job) for one in streams]).result(WAIT)
        assert all(one.ended.wait(WAIT) for one in streams)
        assert isinstance(streams[1].job.error, AnswerFaultError)
        assert streams[0].job.error is None and streams[0].said == want
    assert service.is_open and service.batcher.n_faults == 0
    monkeypatch.setattr(owner, name, before)
    service.close()
    check_books(model)
