"""Clients share the slots of a batch. An answer that gave up its slot, or that is not read, keeps its bits."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from test_conformance import SHAPES, tokens
from test_service import Asked

from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.batcher import Batcher, answer_all
from hybrid.infer.answers.batch.job import RunningJob
from hybrid.infer.guessers import NO_GUESS, Guess
from hybrid.quant.ggml.types import FileType

LONG, SHORT = 60, 3


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, bool]]:
    """The given-up slots: the answer's client, and whether its prompt was still being processed."""
    seen: list[tuple[object, bool]] = []
    set_aside = Batcher._set_aside

    def noted(self: Batcher, answer: RunningJob) -> None:
        seen.append((answer.job.client, answer.is_reading))
        set_aside(self, answer)

    monkeypatch.setattr(Batcher, "_set_aside", noted)
    return seen


@pytest.mark.parametrize("budget", [64 << 20, 0])
@pytest.mark.parametrize("family", ["jamba", "mamba2", "llama"])
def test_setting_answers_aside_changes_nothing(
    family: str, budget: int, random_model: Callable[..., Path], left: list[tuple[object, bool]]
) -> None:
    """Neither tokens, output nor counts change, whatever the cache has dropped meanwhile."""
    path, rng = random_model(SHAPES[family], FileType.Q8_0), np.random.default_rng(11)
    prompts = [tokens(int(rng.integers(20, 200)), 40 + i) for i in range(20)]
    lengths = [int(n) for n in rng.integers(5, 50, 20)]

    def asked(model: LoadedModel, i: int) -> Asked:
        return Asked(
            model,
            prompts[i],
            lengths[i],
            remember=True,
            client=i * (i % 3 == 0),
            speculate=i % 2 == 0,
            use_cache=i % 4 != 3,
        )

    with LoadedModel.load(path, n_ctx=256, n_ubatch=16, n_threads=2) as model:
        alone = [asked(model, i) for i in range(20)]
        for one in alone:
            answer_all(model, [one.job], 1)
    with LoadedModel.load(path, n_ctx=256, n_ubatch=16, n_threads=2, n_seq_max=3, checkpoint_budget=budget) as model:
        batcher, those = Batcher(model.runner, 3), [asked(model, i) for i in range(20)]
        later = list(those)
        while not all(one.job.done for one in those):
            if later and rng.random() < 0.3:
                batcher.submit(later.pop(0).job)
            one = those[rng.integers(20)].job
            if one.result.ids or rng.random() < 0.1:
                batcher.pause(one, paused=bool(rng.random() < 0.5))
            if not batcher.busy and not later:
                batcher.pause(one, paused=False)
            if model.cache is not None and rng.random() < 0.05:
                model.cache.clear()
            batcher.step()
        for one, want in zip(those, alone, strict=True):
            assert one.pieces == want.pieces and one.job.result.ids == want.job.result.ids
            assert one.job.result.reason == want.job.result.reason == "length"
            assert one.job.result.prompt_tokens + one.job.n_known == len(one.job.ids)
            assert [n for n, _ in one.read] == sorted({n for n, _ in one.read}), "each is told once"
            assert one.read[-1] == (len(one.job.ids), len(one.job.ids))
        print(f"{family}: {len(left)} places given up, {sum(reading for _, reading in left)} of them by prompts")
        assert len(left) > 5 and (any(reading for _, reading in left) or not budget)
        assert model.n_free == 3
        if model.cache is not None:
            model.cache.clear()
        assert model.memory.recurrent.pool.used == model.memory.attention.pool.used == 0


@pytest.fixture
def path(random_model: Callable[..., Path]) -> Path:
    return random_model(SHAPES["jamba"], FileType.Q8_0)


def clients(batcher: Batcher) -> list[object]:
    return sorted(job.client for job in batcher.running)  # type: ignore[type-var]


def test_every_client_has_its_places(path: Path, left: list[tuple[object, bool]]) -> None:
    """One client's long answers make room for another's, up to its fair share, and continue after those."""
    with LoadedModel.load(path, n_ctx=256, n_seq_max=4, checkpoint_budget=64 << 20) as model:
        batcher = Batcher(model.runner, 4)
        long = [Asked(model, tokens(9, i), LONG, remember=True, client="a").job for i in range(4)]
        for job in long:
            batcher.submit(job)
        for _ in range(5):
            batcher.step()
        short = Asked(model, tokens(9, 90), SHORT, remember=True, client="b").job
        batcher.submit(short)
        batcher.step()
        assert clients(batcher) == ["a", "a", "a", "b"] and short.result.ids and left == [("a", False)]
        while not short.done:
            batcher.step()
        batcher.step()
        assert clients(batcher) == ["a"] * 4 and [len(job.result.ids) for job in long] == [6, 9, 9, 9]
        more = [Asked(model, tokens(9, 91 + i), 20, remember=True, client="b").job for i in range(4)]
        for job in more:
            batcher.submit(job)
        for _ in range(10):
            batcher.step()
            assert clients(batcher) == ["a", "a", "b", "b"]
        assert len(left) == 3, "nobody takes a place in turn"
        for _ in batcher.run():
            pass
        assert {len(job.result.ids) for job in long} == {LONG} and model.n_free == 4


def test_prompts_that_are_read_make_room_too(path: Path, left: list[tuple[object, bool]]) -> None:
    with LoadedModel.load(path, n_ctx=1024, n_ubatch=16, n_seq_max=2, checkpoint_budget=64 << 20) as model:
        batcher = Batcher(model.runner, 2)
        long = [Asked(model, tokens(900, i), 1, remember=True, client="a") for i in range(2)]
        for one in long:
            batcher.submit(one.job)
        batcher.step()
        short = Asked(model, tokens(9, 90), SHORT, remember=True, client="b").job
        batcher.submit(short)
        while not short.done:
            batcher.step()
        assert left == [("a", True)] and batcher.n_steps <= 3 + SHORT, "the long prompt took half of the room"
        for _ in batcher.run():
            pass
        assert [one.job.result.prompt_tokens for one in long] == [900, 900], "nothing was read twice"


def test_a_turn_comes_when_a_text_was_read_again(path: Path) -> None:
    """An answer whose text was dropped gives up its slot again as soon as it has continued, not at its end."""
    with LoadedModel.load(path, n_ctx=512, n_seq_max=2, checkpoint_budget=64 << 20) as model:
        batcher = Batcher(model.runner, 2)
        long = [Asked(model, tokens(100 + i, i), LONG, remember=True, client="a").job for i in range(2)]
        short = [Asked(model, tokens(9, 9 + i), SHORT, remember=True, client="b").job for i in range(3)]
        for job in long:
            batcher.submit(job)
        while not all(job.result.ids for job in long):
            batcher.step()
        for job in long:
            batcher.pause(job, paused=True)
        for job in short[:2]:
            batcher.submit(job)
        assert len([*batcher.run()]) == 2 and model.cache is not None
        model.cache.clear()
        for job in long:
            batcher.pause(job, paused=False)
        batcher.step()
        batcher.submit(short[2])
        assert next(batcher.run()) is short[2] and max(len(job.result.ids) for job in long) < LONG // 2
        batcher.close()


def test_what_nobody_reads_is_not_drawn(path: Path, left: list[tuple[object, bool]]) -> None:
    """It keeps its slot while nobody wants it, and nobody waits for it."""
    with LoadedModel.load(path, n_ctx=256, n_seq_max=1, checkpoint_budget=64 << 20) as model:
        want = [Asked(model, tokens(9, i), 20, remember=True).job for i in range(3)]
        answer_all(model, want, 1)
        assert model.cache is not None
        model.cache.clear()
        batcher, jobs = Batcher(model.runner, 1), [Asked(model, tokens(9, i), 20, remember=True).job for i in range(3)]
        unread, other, gone = jobs
        batcher.submit(unread)
        for _ in range(5):
            batcher.step()
        batcher.pause(unread, paused=True)
        n_steps = batcher.n_steps
        assert not batcher.busy and batcher.step() == [] and batcher.n_steps == n_steps
        batcher.pause(unread, paused=False)
        batcher.step()
        assert len(unread.result.ids) == 6 and not left
        batcher.pause(unread, paused=True)
        batcher.submit(gone)
        for _ in range(5):
            batcher.step()
        batcher.pause(gone, paused=True)
        batcher.submit(other)
        assert [*batcher.run()] == [other] and len(left) == 2, "all of one client"
        assert not batcher.busy and not unread.done and not gone.done and model.n_free == 1
        gone.cancel()
        assert batcher.busy and batcher.step() == [gone] and gone.result.ids == want[2].result.ids[:5]
        batcher.pause(unread, paused=False)
        assert [*batcher.run()] == [unread]
        assert [job.result.ids for job in (unread, other)] == [job.result.ids for job in want[:2]]


def test_what_cannot_be_set_aside_is_drawn_on(path: Path, left: list[tuple[object, bool]]) -> None:
    """After a context shift no text restores an answer; nor without a stored text."""
    with LoadedModel.load(path, n_ctx=96, n_seq_max=1, checkpoint_budget=64 << 20) as model:
        for more, n in (({"keep": 5, "remember": True}, 150), ({"remember": False}, 20)):
            batcher, job = Batcher(model.runner, 1), Asked(model, tokens(60), n, **more).job
            batcher.submit(job)
            while len(job.result.ids) < n // 2:
                batcher.step()
            batcher.pause(job, paused=True)
            other = Asked(model, tokens(9), 2, remember=True, client="b").job
            batcher.submit(other)
            assert [*batcher.run()] == [job, other] and len(job.result.ids) == n and not left


class Followed:
    """A text that a guesser follows."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids, self.ended = list(ids), False

    def extend(self, ids: Sequence[int]) -> None:
        assert not self.ended
        self.ids += ids

    def end(self) -> None:
        self.ended = True


class Follower:
    """Guesses nothing."""

    rests = False

    def __init__(self) -> None:
        self.tracks: list[Followed] = []

    def begin(self, ids: Sequence[int], place: object) -> Followed:
        self.tracks.append(Followed(ids))
        return self.tracks[-1]

    def guesses(self, asked: Sequence[object], value: object) -> list[Guess]:
        return [NO_GUESS] * len(asked)

    def passed(self, cost: float) -> None: ...
    def close(self) -> None: ...


def test_who_guesses_follows_the_text_anew(path: Path) -> None:
    with LoadedModel.load(path, n_ctx=256, n_seq_max=1, checkpoint_budget=64 << 20) as model:
        model.runner.guessers.ngrams, model.runner.guessers.helper = False, (helper := Follower())  # type: ignore[assignment]
        batcher = Batcher(model.runner, 1)
        job, other = (Asked(model, tokens(9, i), 90 - 87 * i, remember=True, speculate=i == 0).job for i in range(2))
        batcher.submit(job)
        while not helper.tracks or len(job.result.ids) < 40:
            batcher.step()
        batcher.pause(job, paused=True)
        batcher.submit(other)
        assert [*batcher.run()] == [other] and [track.ended for track in helper.tracks] == [True]
        batcher.pause(job, paused=False)
        assert [*batcher.run()] == [job] and [track.ended for track in helper.tracks] == [True] * 2
        text = [*job.ids, *job.result.ids]
        for track in helper.tracks:
            assert len(track.ids) > 40 and track.ids == text[: len(track.ids)]
