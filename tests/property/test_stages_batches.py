"""Answers generated together by a model in stages: several passes are in flight, each with some of the answers.

Each answer equals the whole model's answer alone.
"""

from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from staged_models import JAMBA, OPTIONS, RandomModel, tokens
from test_batch_guessing import Asked, Foreseen, outcome
from test_batching import alone, job
from test_lost_stages import lost_at

from hybrid.infer import Interrupted, LoadedModel
from hybrid.infer.answers.batch.batcher import Batcher, Job
from hybrid.infer.stages.line import LineHere
from hybrid.infer.stages.loading import load_staged
from hybrid.quant.ggml.errors import LostStageError
from hybrid.quant.ggml.types import FileType

pytestmark = pytest.mark.exhaustive

BATCHED = replace(OPTIONS, n_ctx=256, n_seq_max=6, n_ubatch=64)


@pytest.fixture(scope="module")
def jamba(random_model: RandomModel) -> Path:
    return random_model(JAMBA, FileType.Q8_0)


@pytest.fixture(scope="module")
def want(jamba: Path) -> list[tuple[list[int], str]]:
    """The answers of the whole model, one after the other."""
    with LoadedModel.load(jamba, BATCHED) as model:
        return [alone(model, ids, i, n) for i, (ids, n) in enumerate(asked())]


def asked() -> list[tuple[list[int], int]]:
    """Prompts, some with a shared prefix, and the maximum lengths of their answers."""
    rng, stem = np.random.default_rng(5), tokens(60)
    return [
        (stem[: int(rng.integers(0, 2)) * 60] + tokens(int(rng.integers(1, 90)), 50 + i), int(rng.integers(0, 25)))
        for i in range(16)
    ]


def jobs_of(model: LoadedModel) -> list[Job]:
    return [job(model, ids, i, n) for i, (ids, n) in enumerate(asked())]


def outcomes(jobs: list[Job]) -> list[tuple[list[int], str | None]]:
    return [(one.result.ids, one.result.reason) for one in jobs]


def check_nothing_is_left(model: LoadedModel) -> None:
    assert model.n_free == BATCHED.n_seq_max
    if model.cache is not None:
        model.cache.clear()
    assert model.memory.recurrent.pool.used == model.memory.attention.pool.used == 0


@pytest.mark.parametrize(("n_stages", "n_parallel", "budget"), [(2, 5, 1 << 20), (3, 6, 0), (5, 3, 1 << 20), (1, 4, 0)])
def test_each_is_what_it_is_alone(
    n_stages: int, n_parallel: int, budget: int, jamba: Path, want: list[tuple[list[int], str]]
) -> None:
    """Whatever joins, leaves and is cancelled in between."""
    options, rng = replace(BATCHED, checkpoint_budget=budget), np.random.default_rng(n_stages)
    with load_staged(jamba, options, n_stages, LineHere, print) as model:
        batcher, jobs, most = Batcher(model.runner, n_parallel), jobs_of(model), 0
        given_up = [job(model, tokens(80, 98), 98, 60), job(model, tokens(200, 99), 99, 60)]
        later = list(jobs)
        for one in given_up:
            batcher.submit(one)
        while later or batcher.busy:
            for _ in range(int(rng.integers(0, 4))):
                if later:
                    batcher.submit(later.pop(0))
            batcher.step()
            most = max(most, len({id(begun) for begun in model.runner.begun}))  # type: ignore[attr-defined]
            if batcher.n_steps in (4, 9):
                batcher.cancel(given_up[batcher.n_steps > 4])
        assert outcomes(jobs) == want
        assert {one.result.reason for one in given_up} <= {"interrupt", "eos"}
        assert most == min(n_stages, n_parallel) - 1, "so many are under way when a step has the results of one"
        assert not any(answer.held for answer in batcher._running)
        check_nothing_is_left(model)


def test_answers_give_their_places_up(jamba: Path, want: list[tuple[list[int], str]]) -> None:
    """To other clients, or because they are not read; never during their pass."""
    rng = np.random.default_rng(4)
    with load_staged(jamba, replace(BATCHED, checkpoint_budget=1 << 20), 3, LineHere, print) as model:
        batcher, jobs = Batcher(model.runner, 4), jobs_of(model)
        for i, one in enumerate(jobs):
            one.remember, one.client = True, i * (i % 3 == 0)
        later = list(jobs)
        while not all(one.done for one in jobs):
            if later and rng.random() < 0.5:
                batcher.submit(later.pop(0))
            one = jobs[rng.integers(16)]
            batcher.pause(one, paused=bool(later and rng.random() < 0.4))
            batcher.step()
        n = sum(one.set_aside is not None for one in jobs)
        print(f"{n} of 16 were set aside")
        assert outcomes(jobs) == want and n > 2
        check_nothing_is_left(model)


@pytest.mark.parametrize("n_stages", [2, 3])
def test_guesses_beside_others(n_stages: int, jamba: Path) -> None:
    """Right and wrong guesses, whose states are settled while other passes are in flight."""
    asked = [Asked(i, tokens(20 + 7 * i, i), 40) for i in range(7)]
    with LoadedModel.load(jamba, BATCHED) as model:
        expected = [outcome(one.alone(model)) for one in asked]
    with load_staged(jamba, BATCHED, n_stages, LineHere, print) as model:
        batcher, jobs = Batcher(model.runner, 5), [one.job(model) for one in asked]
        answers = {tuple(one.ids): list(ids) for one, (ids, *_) in zip(asked, expected, strict=True)}  # type: ignore[misc]
        batcher.plans.guessing = Foreseen(answers, np.random.default_rng(3))
        for one in jobs:
            batcher.submit(one)
        for _ in batcher.run():
            pass
        assert [outcome(one.result) for one in jobs] == expected
        assert sum(one.result.accepted for one in jobs) > 20 < sum(one.result.guessed for one in jobs)
        check_nothing_is_left(model)


@pytest.mark.parametrize("at", [{0}, {1}, {7}, {20}, {9, 12}, {14, 15}])
def test_a_stage_is_lost_while_others_are_under_way(
    at: set[int], jamba: Path, want: list[tuple[list[int], str]]
) -> None:
    with lost_at(jamba, BATCHED) as (model, line, said):
        line.at = at
        batcher, jobs = Batcher(model.runner, 5), jobs_of(model)
        for one in jobs:
            batcher.submit(one)
        for _ in batcher.run():
            pass
        assert outcomes(jobs) == want
        assert line.opened == 1 + sum(text.endswith("Waiting for one in its place.") for text in said) > 1
        check_nothing_is_left(model)


@pytest.mark.parametrize("error", [Interrupted(), LostStageError("gone.")], ids=["stopped", "lost for good"])
def test_what_is_under_way_when_all_is_given_up(error: BaseException, jamba: Path) -> None:
    with lost_at(jamba, BATCHED) as (model, line, _):
        batcher, jobs = Batcher(model.runner, 5), jobs_of(model)
        for one in jobs:
            batcher.submit(one)
        for _ in range(9):
            batcher.step()
        line.error, line.at = error, set(range(line.n, line.n + 1000))
        with pytest.raises(type(error)):
            for _ in batcher.run():
                pass
        assert any(answer.held is not None for answer in batcher._running)
        batcher.close()
        check_nothing_is_left(model)


def test_an_answer_goes_on_after_a_stop(jamba: Path, want: list[tuple[list[int], str]]) -> None:
    with lost_at(jamba, BATCHED) as (model, line, _):
        batcher, jobs, stops = Batcher(model.runner, 5), jobs_of(model), 0
        for one in jobs:
            batcher.submit(one)
        line.error = Interrupted()
        for n in count():
            if not batcher.busy:
                break
            line.at = {line.n} if n % 5 == 4 else set()
            try:
                batcher.step()
            except Interrupted:
                stops += 1
        assert stops > 3 and outcomes(jobs) == want
        check_nothing_is_left(model)
