"""A smaller model guesses: the bits are the model's own without it, whatever the draft says."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from test_batch_guessing import BUDGET, Asked, outcome
from test_conformance import SHAPES, tokens
from test_speculation import Plain

from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.batcher import Batcher
from hybrid.infer.answers.batch.generate import generate
from hybrid.infer.answers.guessing import draft as drafts
from hybrid.infer.answers.guessing import foretelling
from hybrid.infer.answers.guessing.draft import Draft
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.engine.pictures import Picture
from hybrid.infer.step_costs import StepCosts, _Width
from hybrid.quant.ggml.types import FileType


class Steps(StepCosts):
    """Steps with guesses cost as much as plain ones; the costs are known from the beginning."""

    def __init__(self) -> None:
        super().__init__()
        self._widths = {n: _Width(2, 1.0) for n in range(1, 99)}

    def plain_seconds(self, n_answers: int) -> float:
        return 1.0

    def seconds(self, n_answers: int, most: int) -> np.ndarray:
        return np.ones(most)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guess as much as possible: these models are too small for guesses to pay."""
    monkeypatch.setattr(drafts, "may_pay", lambda *_: True)
    monkeypatch.setattr(foretelling, "best_rate", lambda chances, value, spent: (float(len(chances)), len(chances)))
    monkeypatch.setattr(foretelling, "LEAST_CHANCE", 0.0)
    monkeypatch.setattr(Draft, "rests", False)


@contextmanager
def with_draft(main: Path, draft: Path, n_texts: int = 1, n_ctx: int = 256, **options: object) -> Iterator[LoadedModel]:
    """A model with a draft model."""
    with LoadedModel.load(main, n_ctx=n_ctx, n_ubatch=64, n_seq_max=n_texts, **options) as model:  # type: ignore[arg-type]
        model.runner.costs = Steps()
        small = LoadedModel.load(draft, n_ctx=n_ctx, n_ubatch=64, n_seq_max=2 * n_texts)
        helper = model.runner.guessers.helper = Draft(small, model)
        model.runner.guessers.ngrams = False
        try:
            yield model
        finally:
            helper.close()


def answer(model: LoadedModel, prompt: Sequence[int], n: int, *, temp: float = 0.0, guess: bool = True) -> tuple:
    """The sampled tokens, the final bits, and counts of the guesses."""
    seq, sampler = model.sequence(), Sampler(SamplingParams(temp=temp, seed=3), model.n_vocab)
    run = generate(seq, prompt, sampler, max_tokens=n, tokenizer=Plain(), speculate=guess)  # type: ignore[arg-type]
    for _ in run:
        pass
    assert seq.logits is not None
    left = run.result.ids, run.result.reason, seq.tokens, seq.logits.tobytes(), sampler.state()
    seq.close()
    return left, run.result


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("family", list(SHAPES))
def test_a_draft_that_is_the_model_itself(family: str, random_model: Callable[..., Path]) -> None:
    """Over nine tenths of its guesses are right, so about a quarter of the passes suffices."""
    path = random_model(SHAPES[family], FileType.Q8_0)
    with with_draft(path, path) as model:
        want, plain = answer(model, tokens(40), 60, guess=False)
        got, guessed = answer(model, tokens(40), 60)
        assert got == want
        assert plain.passes == 59
        assert guessed.accepted > 0.9 * guessed.guessed and guessed.passes < 15
        assert guessed.passes + guessed.accepted == 59


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("temp", [0.0, 0.9])
@pytest.mark.parametrize(("main", "draft"), [("jamba", "llama"), ("llama", "mamba2"), ("mamba", "granite")])
def test_a_draft_that_is_mostly_wrong(main: str, draft: str, temp: float, random_model: Callable[..., Path]) -> None:
    paths = [random_model(SHAPES[name], FileType.Q8_0) for name in (main, draft)]
    with with_draft(*paths) as model:
        for seed in range(3):
            prompt = tokens(20 + seed, seed)
            want, _ = answer(model, prompt, 50, temp=temp, guess=False)
            got, guessed = answer(model, prompt, 50, temp=temp)
            assert got == want and guessed.guessed > 40
            assert guessed.passes + guessed.accepted == 49
        print(f"{main} with {draft}: {guessed.accepted} of {guessed.guessed}")


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(("main", "draft"), [("jamba", "jamba"), ("llama", "llama"), ("mamba2", "llama")])
def test_answers_of_a_batch(main: str, draft: str, random_model: Callable[..., Path]) -> None:
    """Beside prompts and answers without guesses; some answers have no sequence of the draft."""
    paths = [random_model(SHAPES[name], FileType.Q8_0) for name in (main, draft)]
    asked = [Asked(i, tokens(20 + 7 * i, i), 30 + i, temp=(0.0, 0.9)[i % 2], remember=i == 3) for i in range(7)]
    for i, one in enumerate(asked):  # without the bias, which a draft does not know
        one.params = SamplingParams(temp=(0.0, 0.5)[i % 2], seed=i)
    with LoadedModel.load(paths[0], n_ctx=128, n_ubatch=64) as model:
        want = [outcome(one.alone(model)) for one in asked]
    with with_draft(*paths, n_texts=4, n_ctx=128, checkpoint_budget=BUDGET) as model:
        batcher = Batcher(model.runner, 4)
        batcher.plans.guessing.costs = Steps()
        jobs = [one.job(model, speculate=i != 5) for i, one in enumerate(asked)]
        for job in jobs:
            batcher.submit(job)
        for _ in batcher.run():
            pass
        assert [outcome(job.result) for job in jobs] == want
        right, all_of_them = (sum(getattr(j.result, name) for j in jobs) for name in ("accepted", "guessed"))
        print(f"{main} with {draft}: {right} of {all_of_them} in {batcher.n_steps} steps")
        assert (main != draft or right > 50) and right <= all_of_them > 100 and jobs[5].result.guessed == 0
        for result in (job.result for job in jobs):
            assert result.gen_tokens == result.passes + result.accepted
        helper = model.runner.guessers.helper
        assert isinstance(helper, Draft) and all(lane.is_free for lane in helper._lanes)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("family", ["jamba", "llama"])
def test_a_draft_of_a_shorter_context(family: str, random_model: Callable[..., Path]) -> None:
    """It starts again with the last half of the text, repeatedly."""
    path = random_model(SHAPES[family], FileType.Q8_0)
    with with_draft(path, path) as model:
        small = model.runner.guessers.helper
        assert isinstance(small, Draft)
        want, _ = answer(model, tokens(150), 90, guess=False)
        small.model.close()
        short = LoadedModel.load(path, n_ctx=48, n_ubatch=64, n_seq_max=2, n_threads=model.n_threads)
        model.runner.guessers.helper = draft = Draft(short, model)
        got, guessed = answer(model, tokens(150), 90)
        assert got == want and guessed.guessed > 20
        lane = draft._lanes[0]
        assert lane.n_skipped > 100 and len(lane._text.tokens) <= 48


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("family", ["jamba", "llama"])
def test_the_context_is_shifted(family: str, random_model: Callable[..., Path]) -> None:
    path = random_model(SHAPES[family], FileType.Q8_0)
    texts = []
    for guess in (False, True):
        with with_draft(path, path, n_ctx=64) as model:
            seq, sampler = model.sequence(), Sampler(SamplingParams(temp=0.5, seed=3), model.n_vocab)
            run = generate(
                seq,
                tokens(30),
                sampler,
                max_tokens=120,
                tokenizer=Plain(),
                speculate=guess,
                keep=4,  # type: ignore[arg-type]
            )
            for _ in run:
                pass
            texts.append((run.result.ids, run.result.discarded))
    assert texts[0] == texts[1] and texts[0][1] > 0


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("family", ["jamba", "llama"])
def test_an_interrupt_while_it_drafts(
    family: str, random_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in a pass of the draft ends the answer; sampled tokens stay, and the next answer is unaffected."""
    path = random_model(SHAPES[family], FileType.Q8_0)
    with with_draft(path, path) as model:
        draft = model.runner.guessers.helper
        assert isinstance(draft, Draft)
        want, _ = answer(model, tokens(30), 40, guess=False)
        run, n_runs = draft.model.engine._run, 0

        def interrupted(*args: object, **kwargs: object) -> None:
            nonlocal n_runs
            n_runs += 1
            if n_runs == 20:
                raise KeyboardInterrupt
            run(*args, **kwargs)  # type: ignore[arg-type]

        monkeypatch.setattr(draft.model.engine, "_run", interrupted)
        seq, sampler = model.sequence(), Sampler(SamplingParams(temp=0), model.n_vocab)
        first = generate(seq, tokens(30), sampler, max_tokens=40, tokenizer=Plain(), speculate=True)  # type: ignore[arg-type]
        for _ in first:
            pass
        assert first.result.reason == "interrupt" and 1 < len(first.result.ids) < 40
        assert first.result.ids == want[0][: len(first.result.ids)]
        assert seq.tokens == tokens(30) + first.result.ids[:-1] and first.result.pending == first.result.ids[-1:]
        seq.close()
        assert answer(model, tokens(30), 40)[0] == want


def test_threads_are_shared(random_model: Callable[..., Path]) -> None:
    path = random_model(SHAPES["llama"], FileType.Q8_0)
    with with_draft(path, path) as model:
        helper = model.runner.guessers.helper
        assert isinstance(helper, Draft)
        model.sequence().prefill(tokens(5))
        helper.model.sequence().prefill(tokens(5))
        assert helper.model.engine.pool is None and model.engine.pool is not None


@pytest.mark.usefixtures("eager")
def test_texts_with_pictures(random_model: Callable[..., Path]) -> None:
    """The draft has no rows of pictures: it reads other tokens in their places."""
    path = random_model(SHAPES["llama"], FileType.Q8_0)
    with with_draft(path, path) as model:
        rows = np.random.default_rng(5).standard_normal((6, model.hparams.n_embd)).astype(np.float32)
        picture, text = Picture(rows, (2, 3)), tokens(40)
        model.runner.pictures.add(picture)
        ids = [*text[:9], *picture.ids, *text[15:]]
        plain, _ = answer(model, ids, 24, guess=False)
        guessed, result = answer(model, ids, 24)
        assert plain == guessed and result.guessed > 0
