"""A thread that answers all requests: cancelling, errors or the number of some do not change the answers of others."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from test_conformance import SHAPES, tokens
from test_speculation import Plain

from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.batcher import Job, answer_all
from hybrid.infer.answers.batch.job import AnswerFaultError
from hybrid.infer.answers.batch.service import BusyError, ClosedError, Service
from hybrid.infer.answers.drawing.drawing import Drawing, TextPiece
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.program.builder import Program
from hybrid.quant.ggml.errors import HybridError, UsageError
from hybrid.quant.ggml.types import FileType

WAIT = 120  # seconds; nothing here takes that long


class Broken(Sampler):
    """Samples three tokens, then fails."""

    n_left = 3

    def sample(self, logits: np.ndarray) -> int:
        self.n_left -= 1
        if self.n_left < 0:
            raise HybridError("the logits hold NaN")
        return super().sample(logits)


class Asked:
    """A job, its output, and an event for its end."""

    def __init__(
        self, model: LoadedModel, ids: list[int], n: int, sampler: type[Sampler] = Sampler, **more: object
    ) -> None:
        self.pieces: list[TextPiece] = []
        self.read: list[tuple[int, int]] = []
        self.ended = threading.Event()
        draw = Drawing(sampler(SamplingParams(temp=0.9, seed=len(ids)), model.n_vocab), Plain(), n, (), n_top=2)  # type: ignore[arg-type]
        self.job = Job(
            ids,
            draw,
            on_text=self.pieces.append,
            on_read=lambda n, of: self.read.append((n, of)),
            on_end=self.ended.set,
            **more,  # type: ignore[arg-type]
        )

    def wait(self) -> list[int]:
        assert self.ended.wait(WAIT)
        return self.job.result.ids


@pytest.fixture
def model(random_model: Callable[..., Path]) -> Iterator[LoadedModel]:
    path = random_model(SHAPES["jamba"], FileType.Q8_0)
    with LoadedModel.load(path, n_ctx=2048, n_ubatch=256, n_seq_max=4, checkpoint_budget=16 << 20) as loaded:
        yield loaded


def test_answers_are_those_of_a_batch(model: LoadedModel) -> None:
    prompts = [tokens(20 + 7 * i, i) for i in range(9)]
    want = [r.ids for r in answer_all(model, [Asked(model, ids, 12).job for ids in prompts], 3)]
    assert model.cache is not None
    model.cache.clear()
    service = Service(model, 3)
    asked = [Asked(model, ids, 12) for ids in prompts]
    for one in asked:
        service.submit(one.job)
    assert [one.wait() for one in asked] == want
    for one, ids in zip(asked, prompts, strict=True):
        assert [p.id for p in one.pieces if p.id is not None] == one.job.result.ids
        assert "".join(p.text for p in one.pieces) == one.job.result.text
        assert one.read[-1] == (len(ids), len(ids)) and one.job.result.reason == "length"
        assert all(p.logprobs is not None and len(p.logprobs.top) == 2 for p in one.pieces if p.id is not None)
    service.close()
    assert model.n_free == 4 and service.n_jobs == 0


def test_answers_have_places(model: LoadedModel) -> None:
    """The lowest free slot, or the requested one; each slot keeps the text of its last answer."""
    service = Service(model, 3)
    first, second = Asked(model, tokens(20, 1), 5), Asked(model, tokens(21, 2), 5, place=0)
    wished = Asked(model, tokens(22, 3), 5, place=2)
    # between two steps, so that they join together
    service.call(lambda: [service.submit(one.job) for one in (first, second, wished)]).result(WAIT)
    answers = [one.wait() for one in (first, second, wished)]
    assert [one.job.place for one in (first, second, wished)] == [0, 1, 2]
    # the last sampled token was not processed
    assert service.batcher.texts == [
        (b"", [*one.job.ids, *answer[:-1]]) for one, answer in zip((first, second, wished), answers, strict=True)
    ]
    service.close()


def test_cancelling_ends_the_pass_that_reads_a_prompt(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(model, 2)
    first = Asked(model, tokens(30), 40)
    service.submit(first.job)
    long = Asked(model, tokens(1800, 5), 5)
    run, begun, cancelled = model.engine._run, threading.Event(), threading.Event()

    def held(program: Program, stoppable: bool, stamps: int = 0) -> None:
        if long.read:
            begun.set()
            assert cancelled.wait(WAIT)
        return run(program, stoppable, stamps)

    monkeypatch.setattr(model.engine, "_run", held)
    service.submit(long.job)
    assert begun.wait(WAIT)
    service.cancel(long.job)
    cancelled.set()
    assert long.wait() == [] and long.job.result.reason == "interrupt"
    want = first.wait()
    service.close()
    alone = Asked(model, tokens(30), 40)
    assert answer_all(model, [alone.job], 1)[0].ids == want, "the neighbour's answer is what it is alone"


def test_one_that_fails_fails_alone(model: LoadedModel) -> None:
    service = Service(model, 2)
    good, bad = Asked(model, tokens(25), 30), Asked(model, tokens(26), 30, Broken)
    service.submit(good.job)
    service.submit(bad.job)
    assert len(bad.wait()) == 3 and str(bad.job.error) == "the logits hold NaN"
    assert len(good.wait()) == 30 and good.job.error is None and service.is_open
    service.close()


def test_what_cannot_be_answered_is_refused_at_once(model: LoadedModel) -> None:
    service = Service(model, 1, most_waiting=1)
    with pytest.raises(UsageError, match="prompt is empty"):
        service.submit(Asked(model, [], 3).job)
    with pytest.raises(UsageError, match="token 99999 is outside this model's vocabulary"):
        service.submit(Asked(model, [5, 99999], 3).job)
    with pytest.raises(UsageError, match="2049 tokens, the context 2048"):
        service.submit(Asked(model, tokens(2049), 3).job)
    running = [Asked(model, tokens(1500, i), 50) for i in range(3)]
    service.submit(running[0].job)
    service.submit(running[1].job)
    with pytest.raises(BusyError, match="2 requests are being answered or wait"):
        service.submit(running[2].job)
    service.close()
    assert [one.ended.is_set() for one in running] == [True, True, False]
    with pytest.raises(ClosedError, match="no longer answers"):
        service.submit(running[2].job)
    assert model.n_free == 4


def test_a_full_queue_has_room_for_another_client(model: LoadedModel) -> None:
    """As long as that client has fewer jobs, up to a limit. Unread answers do not count."""
    service, held = Service(model, 2, most_waiting=4), threading.Event()
    service.call(lambda: held.wait(WAIT))

    def submit(client: str) -> Asked:
        asked = Asked(model, tokens(9), 3, client=client, remember=True)
        service.submit(asked.job)
        return asked

    asked = []
    for client, n in (("a", 6), ("b", 4), ("c", 0)):
        asked += [submit(client) for _ in range(n)]
        with pytest.raises(BusyError):
            submit(client)
    asked[0].job.paused = True
    asked.append(submit("c"))
    asked[0].job.paused = False
    held.set()
    assert all(len(one.wait()) == 3 for one in asked)
    service.close()


def test_other_work_comes_between_steps(model: LoadedModel) -> None:
    service = Service(model, 2)
    asked = Asked(model, tokens(30), 400)
    service.submit(asked.job)
    while not asked.pieces:
        time.sleep(0.001)
    seen = service.call(lambda: (threading.current_thread().name, model.n_free)).result(WAIT)
    assert seen == ("hybrid-service", 3)
    with pytest.raises(ZeroDivisionError):
        service.call(lambda: 1 / 0).result(WAIT)
    assert len(asked.wait()) == 400
    service.close()


@pytest.mark.faults
def test_a_listener_that_fails_ends_its_own_answer(model: LoadedModel) -> None:
    service = Service(model, 2)

    def fail(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    deaf, broken, good = (Asked(model, tokens(20 + i), 5) for i in range(3))
    broken.job.on_text = fail
    deaf.job.on_read = fail
    for one in (deaf, broken, good):
        service.submit(one.job)
    assert len(good.wait()) == 5 and len(deaf.wait()) == 5 and len(broken.wait()) < 5
    assert isinstance(broken.job.error, AnswerFaultError) and deaf.job.error is good.job.error is None
    assert service.is_open and service.fault is None
    service.close()
    assert model.n_free == 4


def test_what_nobody_can_recover_from_reaches_everybody(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example with a model in stages."""
    monkeypatch.setattr(type(model.runner), "recovers", False)
    service = Service(model, 1)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(model.engine, "run", fail)
    waiting, broken = Asked(model, tokens(40), 5), Asked(model, tokens(20), 5)
    service.submit(broken.job)
    service.submit(waiting.job)
    assert broken.ended.wait(WAIT) and waiting.ended.wait(WAIT)
    service.close()
    assert isinstance(service.fault, RuntimeError) and not service.is_open
    with pytest.raises(ClosedError, match="a fault of ours"):
        service.call(lambda: 1)
    assert model.n_free == 4


def test_one_client_does_not_hold_up_another(model: LoadedModel) -> None:
    service = Service(model, 2)
    many = [Asked(model, tokens(40, i), 20, client="many") for i in range(8)]
    for one in many:
        service.submit(one.job)
    single = Asked(model, tokens(50, 99), 20, client="one")
    service.submit(single.job)
    single.wait()
    assert sum(one.ended.is_set() for one in many) <= 3, "it did not wait for all of them"
    for one in many:
        one.wait()
    service.close()


def test_an_answer_that_is_remembered_is_not_read_again(model: LoadedModel) -> None:
    service = Service(model, 1)
    first = Asked(model, tokens(60), 30, remember=True)
    service.submit(first.job)
    text = [*tokens(60), *first.wait(), *tokens(8, 3)]
    again = Asked(model, text, 3)
    service.submit(again.job)
    again.wait()
    assert again.job.n_known == 60 + 29, "but for the last token drawn"
    service.close()


def test_boundaries_are_where_later_texts_go_on(model: LoadedModel) -> None:
    """A prompt processed with breaks there gives the same answer."""
    ids = tokens(120)
    service = Service(model, 1)
    whole = Asked(model, ids, 12)
    service.submit(whole.job)
    want = whole.wait()
    assert model.cache is not None
    service.call(model.cache.clear).result(WAIT)
    marked = Asked(model, ids, 12, boundaries=(3, 70, 95, 120, 500))
    service.submit(marked.job)
    assert marked.wait() == want
    for shared, known in ((110, 95), (80, 70), (40, 0)):
        edited = Asked(model, [*ids[:shared], *tokens(9, shared)], 3)
        service.submit(edited.job)
        edited.wait()
        assert edited.job.n_known == known
    service.close()
