"""Right and wrong guesses in a batch: each answer has the tokens and bits that it has alone without guesses."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from test_conformance import FAMILIES, MODELS, SHAPES, tokens

from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch import planning
from hybrid.infer.answers.batch.batcher import Batcher, Job, answer_all
from hybrid.infer.answers.batch.generate import generate
from hybrid.infer.answers.batch.guesses import AnswerText, BatchGuesses
from hybrid.infer.answers.drawing.drawing import Drawing, GenerationResult
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.runner import Result, Work
from hybrid.infer.step_costs import StepCosts
from hybrid.quant.ggml.types import FileType

pytestmark = pytest.mark.exhaustive

BUDGET = 16 << 20
BIAS = dict.fromkeys(tokens(5), 3.0)  # makes a model repeat itself, as when it quotes


class Letters:
    """A tokenizer whose tokens are single letters; some end an answer."""

    eog = frozenset(range(0, 2024, 40))
    bos: int | None = None

    def piece(self, token: int) -> bytes:
        return bytes([97 + token % 26])

    def is_control(self, token: int) -> bool:
        return False

    def is_eog(self, token: int) -> bool:
        return token in self.eog

    def stream(self, skip_special: bool = False, shown: object = ()) -> object:
        class Stream:
            def push(self, token: int) -> str:
                return chr(97 + token % 26)

            def flush(self) -> str:
                return ""

        return Stream()


class Foreseen(BatchGuesses):
    """Guesses some of the answers' next tokens, followed by wrong ones, however little that pays."""

    def __init__(self, answers: dict[tuple[int, ...], list[int]], rng: np.random.Generator) -> None:
        super().__init__(StepCosts(), 32)
        self.answers, self.rng = answers, rng

    def guesses(
        self, texts: Sequence[tuple[AnswerText, int]], n_answers: int, room: int, token_seconds: float | None = None
    ) -> list[list[int]]:
        room, made = min(room, self.most), []
        for text, most in texts:
            rest = self.answers[tuple(text._prompt)][len(text._drawn) :]
            guess = rest[: self.rng.integers(0, 6)] + tokens(int(self.rng.integers(0, 3)), len(text._drawn))
            guess = guess[: max(0, min(most, room))] if self.rng.random() < 0.8 else []
            room -= len(guess)
            made.append(guess)
        return made


class Free(StepCosts):
    """Guesses every predicted token, and looks for one in every step."""

    def plain_seconds(self, n_answers: int) -> float:
        return 1.0

    def may_guess(self, n_answers: int) -> bool:
        return True

    def may_pay(self, n_answers: int, most: int, token_seconds: float | None = None) -> bool:
        return most > 0

    def worth(self, n_answers: int, chances: np.ndarray, token_seconds: float | None = None) -> int:
        return len(chances)


class Asked:
    """One answer: generated alone, or as a job."""

    def __init__(self, i: int, ids: list[int], n: int, temp: float = 0.9, stop: Sequence[str] = (), **more: object):
        self.ids, self.n, self.stop, self.more = ids, n, stop, more
        self.params = SamplingParams(temp=temp, seed=i, logit_bias=BIAS)

    def alone(self, model: LoadedModel) -> GenerationResult:
        seq, sampler = model.sequence(), Sampler(self.params, model.n_vocab)
        keep = self.more.get("keep")
        run = generate(seq, self.ids, sampler, max_tokens=self.n, stop=self.stop, tokenizer=Letters(), keep=keep)  # type: ignore[arg-type]
        for _ in run:
            pass
        seq.close(remember=False)
        return run.result

    def job(self, model: LoadedModel, *, speculate: bool = True) -> Job:
        draw = Drawing(Sampler(self.params, model.n_vocab), Letters(), self.n, self.stop, n_top=2)  # type: ignore[arg-type]
        self.logprobs: list[object] = []
        return Job(
            self.ids, draw, speculate=speculate, on_text=lambda piece: self.logprobs.append(piece.logprobs), **self.more
        )  # type: ignore[arg-type]


def outcome(result: GenerationResult) -> tuple[object, ...]:
    return result.ids, result.reason, result.text, result.eog, result.stop, result.pending, result.discarded


@pytest.mark.exhaustive
@pytest.mark.parametrize("family", FAMILIES)
def test_guesses_change_no_answer(family: str, random_model: Callable[..., Path]) -> None:
    """Right and wrong guesses, beside prompts, plain answers and other guesses; with stops, ends of the context,
    shifted contexts, cancelled neighbours."""
    path, rng = random_model(MODELS[family], FileType.Q8_0), np.random.default_rng(2)
    stem = tokens(40)
    with LoadedModel.load(path, n_ctx=96, n_ubatch=64, n_threads=2) as model:
        shifts = not model.memory.immovable
        asked = [
            Asked(
                i,
                stem[: rng.integers(0, 41)] + tokens(int(rng.integers(1, 50)), 50 + i),
                (-1, 30, 30, int(rng.integers(0, 20)))[i % 4] if i % 6 else 200,
                temp=(0.9, 0.0)[i % 2],
                stop=("ab", "qx")[: i % 3],
                remember=i % 3 == 0,
                **({"keep": 3} if i % 6 == 0 and shifts else {}),
            )
            for i in range(14)
        ]
        want = [outcome(one.alone(model)) for one in asked]
    print({reason: sum(w[1] == reason for w in want) for reason in {w[1] for w in want}})
    answers = {tuple(one.ids): w[0] for one, w in zip(asked, want, strict=True)}
    logprobs = []
    for budget, n_parallel in ((BUDGET, 5), (0, 3)):
        with LoadedModel.load(
            path, n_ctx=96, n_ubatch=64, n_threads=1 + n_parallel % 3, n_seq_max=5, checkpoint_budget=budget
        ) as model:
            batcher = Batcher(model.runner, n_parallel)
            cancelled = Asked(99, tokens(50, 99), 60)
            batcher.plans.guessing = Foreseen({**answers, tuple(cancelled.ids): tokens(60, 98)}, rng)  # type: ignore[dict-item]
            jobs = [one.job(model, speculate=i != 5) for i, one in enumerate(asked)]
            later, gone = list(jobs), cancelled.job(model)
            batcher.submit(gone)
            while later or batcher.busy:
                for _ in range(int(rng.integers(0, 4))):
                    if later:
                        batcher.submit(later.pop(0))
                batcher.step()
                if batcher.n_steps == 4:
                    gone.cancel()
            assert [outcome(job.result) for job in jobs] == want
            assert jobs[5].result.guessed == 0
            right, all_of_them = (sum(getattr(j.result, name) for j in jobs) for name in ("accepted", "guessed"))
            print(f"{family}: {right} of {all_of_them} guesses, {batcher.n_steps} steps")
            assert 20 < right < all_of_them
            for result in (job.result for job in jobs):
                assert result.gen_tokens == result.passes + result.accepted
            logprobs.append([one.logprobs for one in asked])
            assert model.n_free == 5
            if model.cache is not None:
                model.cache.clear()
            assert model.memory.recurrent.pool.used == model.memory.attention.pool.used == 0
    with LoadedModel.load(path, n_ctx=96, n_ubatch=64, n_seq_max=5) as model:
        answer_all(model, [one.job(model, speculate=False) for one in asked], 4)
        assert logprobs == [[one.logprobs for one in asked]] * 2


@pytest.mark.parametrize("family", ["jamba", "mamba2", "granite", "llama"])
@pytest.mark.parametrize("temp", [0.0, 0.9])
def test_what_repeats_takes_fewer_steps(family: str, temp: float, random_model: Callable[..., Path]) -> None:
    """With guesses from n-grams, for several answers at once."""
    asked = [Asked(i, tokens(12, i) * 4, 60, temp) for i in range(4)]
    with LoadedModel.load(random_model(SHAPES[family], FileType.Q8_0), n_ctx=256, n_ubatch=64, n_seq_max=4) as model:
        want = [outcome(one.alone(model)) for one in asked]
        batcher = Batcher(model.runner, 4)
        batcher.plans.guessing.costs = Free()
        jobs = [one.job(model) for one in asked]
        for job in jobs:
            batcher.submit(job)
        for _ in batcher.run():
            pass
        assert [outcome(job.result) for job in jobs] == want
        right, all_of_them = (sum(getattr(j.result, name) for j in jobs) for name in ("accepted", "guessed"))
        print(f"{family}: {batcher.n_steps} steps, {right} of {all_of_them} guesses")
        if temp == 0:
            assert right > 0 and batcher.n_steps < 60


@pytest.mark.parametrize("family", ["jamba", "mamba2", "llama"])
def test_checkpoints_hold_what_was_drawn(
    family: str, random_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rungs of the ladder and ends of answers after wrong guesses: continuing from them gives the bits of a text
    processed at once."""
    for module in ("sequence", "answers.batch.job", "answers.batch.sharing"):
        monkeypatch.setattr(f"hybrid.infer.{module}.LADDER", 16)
    path, rng = random_model(SHAPES[family], FileType.Q8_0), np.random.default_rng(5)
    asked = [Asked(i, tokens(20 + i, i), 60, remember=i != 2) for i in range(3)]
    with LoadedModel.load(path, n_ctx=256, n_ubatch=64) as model:
        want = [one.alone(model) for one in asked]
    with LoadedModel.load(path, n_ctx=256, n_ubatch=64, n_seq_max=3, checkpoint_budget=64 << 20) as model:
        batcher = Batcher(model.runner, 3)
        batcher.plans.guessing = Foreseen({tuple(one.ids): w.ids for one, w in zip(asked, want, strict=True)}, rng)
        jobs = [one.job(model) for one in asked]
        for job in jobs:
            batcher.submit(job)
        for _ in batcher.run():
            pass
        assert model.cache is not None and sum(job.result.accepted for job in jobs) > 10
        fresh, seq, last = model.sequence(), model.sequence(), 0
        for i, job in enumerate(jobs):
            text = [*job.ids, *job.result.ids]
            held = sorted(set(checkpoints(model, text)))
            n_drawn = sum(p > len(job.ids) for p in held)
            print(family, len(job.ids), len(text), held)
            assert n_drawn > len(job.result.ids) // 24 if i != 2 else n_drawn == 0
            assert i == 2 or held[-1] == len(text) - len(job.result.pending)
            for position in held:
                more = [*text[:position], *tokens(3, 7)]
                fresh.truncate(0)
                rows = fresh.logits_of(more)
                known = seq.resume(more)
                assert known >= position
                assert seq.logits_of(more[known:]).tobytes() == rows[known:].tobytes(), (i, position)
                seq.truncate(0)
                last = max(last, position)
        assert last > 40


def checkpoints(model: LoadedModel, text: list[int]) -> Iterator[int]:
    assert model.cache is not None
    node, n = model.cache.tree.match(np.asarray(text, np.int32))
    for part in node.path():
        yield from (position for position in part.checkpoints if position <= n)


def test_prompts_are_read_beside_guesses(random_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Guesses take columns of a step from a prompt, not time, and never all columns."""
    with LoadedModel.load(random_model(SHAPES["mamba"], FileType.Q8_0), n_ctx=1024, n_ubatch=64, n_seq_max=2) as model:
        first, long = Asked(1, tokens(5) * 3, 60), Asked(2, tokens(900), 3)
        want = [outcome(one.alone(model)) for one in (first, long)]
        batcher = Batcher(model.runner, 2)
        monkeypatch.setattr(planning.Slices, "beside_answers", 24)
        batcher.plans.guessing = Foreseen({tuple(first.ids): want[0][0], tuple(long.ids): []}, np.random.default_rng(1))  # type: ignore[dict-item]
        jobs = [one.job(model) for one in (first, long)]
        batcher.submit(jobs[0])
        batcher.step()
        batcher.submit(jobs[1])
        batcher.step()
        assert batcher.plans.slices.token_seconds is not None and jobs[0].result.guessed == 0, "a first slice measures"
        while len(jobs[0].result.ids) < 40:
            before = jobs[1].result.prompt_tokens, jobs[0].result.guessed
            batcher.step()
            read, guessed = jobs[1].result.prompt_tokens - before[0], jobs[0].result.guessed - before[1]
            assert read + guessed == 24
        assert jobs[0].result.guessed > 10
        for _ in batcher.run():
            pass
        assert [outcome(job.result) for job in jobs] == want


def test_an_interrupted_step_is_done_again(random_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A step with guesses: no sequence keeps any of them."""
    with LoadedModel.load(random_model(SHAPES["jamba"], FileType.Q8_0), n_ctx=256, n_ubatch=64, n_seq_max=2) as model:
        asked = [Asked(i, tokens(30 + i, i), 40) for i in range(2)]
        want = [outcome(one.alone(model)) for one in asked]
        batcher, rng = Batcher(model.runner, 2), np.random.default_rng(3)
        batcher.plans.guessing = Foreseen({tuple(one.ids): w[0] for one, w in zip(asked, want, strict=True)}, rng)  # type: ignore[misc]
        jobs, late = [one.job(model) for one in asked], Asked(9, tokens(9), 3).job(model)
        for job in jobs:
            batcher.submit(job)
        run, n_runs = model.engine._run, 0

        def interrupted(*args: object, **kwargs: object) -> None:
            nonlocal n_runs
            n_runs += 1
            if n_runs % 3 == 0:
                batcher.cancel(late)
            run(*args, **kwargs)  # type: ignore[arg-type]

        monkeypatch.setattr(model.engine, "_run", interrupted)
        given_up = 0
        while batcher.busy:
            steps = batcher.n_steps
            batcher.step()
            given_up += batcher.n_steps == steps
        assert [outcome(job.result) for job in jobs] == want and given_up > 2
        assert sum(job.result.accepted for job in jobs) > 5 and model.n_free == 2


class Most(Foreseen):
    """As many guesses as fit a step: right ones, then wrong ones."""

    def guesses(
        self, texts: Sequence[tuple[AnswerText, int]], n_answers: int, room: int, token_seconds: float | None = None
    ) -> list[list[int]]:
        room, made = min(room, self.most), []
        for i, (text, most) in enumerate(texts):
            rest = self.answers[tuple(text._prompt)][len(text._drawn) :][: self.rng.integers(0, 9)]
            share = room // (len(texts) - i)
            made.append([*rest, *tokens(32, len(text._drawn))][: max(0, min(most, share))])
            room -= len(made[-1])
        return made


@pytest.mark.parametrize(("n_ubatch", "n_parallel"), [(64, 4), (64, 1), (6, 4), (4, 4)])
def test_as_many_guesses_as_fit(n_ubatch: int, n_parallel: int, random_model: Callable[..., Path]) -> None:
    """All columns of a ubatch, and all states that a step may keep, beside a full cache."""
    path = random_model(SHAPES["jamba"], FileType.Q8_0)
    asked = [Asked(i, tokens(30 + i, i), 50, remember=True) for i in range(6)]
    with LoadedModel.load(path, n_ctx=128, n_ubatch=64) as model:
        want = [outcome(one.alone(model)) for one in asked]
        state = model.memory.bytes_state_per_seq
    for budget in (0, 3 * state):
        with LoadedModel.load(
            path, n_ctx=128, n_ubatch=n_ubatch, n_seq_max=n_parallel, checkpoint_budget=budget
        ) as model:
            batcher, answers = Batcher(model.runner, n_parallel), {}
            for one, known in zip(asked, want, strict=True):
                answers[tuple(one.ids)] = known[0]
            batcher.plans.guessing = Most(answers, np.random.default_rng(1))  # type: ignore[arg-type]
            model.engine.expects_few = True  # as after guesses that have gained enough
            widest, evaluate = 0, model.runner.eval

            def counted(works: list[Work]) -> list[Result]:
                nonlocal widest
                widest = max(widest, sum(len(w.ids) for w in works if w.each))
                return evaluate(works)  # noqa: B023

            model.runner.eval = counted  # type: ignore[method-assign, assignment]
            jobs = [one.job(model) for one in asked]
            for job in jobs:
                batcher.submit(job)
            for _ in batcher.run():
                pass
            assert [outcome(job.result) for job in jobs] == want
            assert widest == {(64, 4): 36, (64, 1): 33, (6, 4): 6, (4, 4): 4}[n_ubatch, n_parallel]
            assert model.n_free == n_parallel
