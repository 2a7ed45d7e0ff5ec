"""Answers generated together: each is as alone, whoever joins or leaves; a shared prefix is processed once."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from test_conformance import LAYERED, MODELS, SHAPES, tokens
from test_speculation import Plain

from hybrid.infer import Interrupted, LoadedModel
from hybrid.infer.answers.batch.batcher import Batcher, Job, answer_all
from hybrid.infer.answers.batch.generate import generate
from hybrid.infer.answers.batch.slices import Slices
from hybrid.infer.answers.drawing.drawing import Drawing
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.runner import Result, Work
from hybrid.quant.ggml.errors import UsageError
from hybrid.quant.ggml.types import FileType

BUDGET = 16 << 20


class Ending(Plain):
    """Some tokens end an answer."""

    eog = frozenset(range(0, 2024, 12))

    def is_eog(self, token: int) -> bool:
        return token in self.eog


def job(model: LoadedModel, ids: list[int], seed: int, max_tokens: int = 20) -> Job:
    sampler = Sampler(SamplingParams(temp=0.9, seed=seed), model.n_vocab)
    return Job(ids, Drawing(sampler, Ending(), max_tokens, ()), seed)  # type: ignore[arg-type]


def alone(model: LoadedModel, ids: list[int], seed: int, max_tokens: int = 20) -> tuple[list[int], str]:
    seq = model.sequence()
    sampler = Sampler(SamplingParams(temp=0.9, seed=seed), model.n_vocab)
    run = generate(seq, ids, sampler, max_tokens=max_tokens, tokenizer=Ending())  # type: ignore[arg-type]
    for _ in run:
        pass
    seq.close()
    return run.result.ids, run.result.reason


@pytest.mark.parametrize("family", [*SHAPES, *(pytest.param(name, marks=pytest.mark.matrix) for name in LAYERED)])
def test_joining_and_leaving_changes_nothing(family: str, random_model: Callable[..., Path]) -> None:
    """test_batch_guessing.py covers other families."""
    path, rng = random_model(MODELS[family], FileType.Q8_0), np.random.default_rng(2)
    stem = tokens(40)
    prompts = [stem[: rng.integers(0, 41)] + tokens(int(rng.integers(1, 60)), 50 + i) for i in range(14)]
    lengths = [int(n) for n in rng.integers(0, 25, 14)]
    with LoadedModel.load(path, n_ctx=128, n_ubatch=64, n_threads=2) as model:
        want = [alone(model, ids, i, n) for i, (ids, n) in enumerate(zip(prompts, lengths, strict=True))]
    assert {reason for _, reason in want} == {"eos", "length"}
    for budget, n_parallel in ((BUDGET, 5), (0, 3)):
        with LoadedModel.load(
            path, n_ctx=128, n_ubatch=64, n_threads=1 + n_parallel % 3, n_seq_max=5, checkpoint_budget=budget
        ) as model:
            batcher = Batcher(model.runner, n_parallel)
            jobs = [job(model, ids, i, n) for i, (ids, n) in enumerate(zip(prompts, lengths, strict=True))]
            later, cancelled = list(jobs), job(model, tokens(50, 99), 99, 60)
            batcher.submit(cancelled)
            done: list[Job] = []
            while later or batcher.busy:
                for _ in range(int(rng.integers(0, 4))):
                    if later:
                        batcher.submit(later.pop(0))
                done += batcher.step()
                if batcher.n_steps == 4:
                    cancelled.cancel()
            assert sorted(j.key for j in done) == [*range(14), 99]  # type: ignore[type-var]
            assert [(j.result.ids, j.result.reason) for j in jobs] == want
            assert cancelled.result.reason in ("interrupt", "eos")
            assert model.n_free == 5
            if budget:
                assert model.cache is not None
                model.cache.clear()
            assert model.memory.recurrent.pool.used == model.memory.attention.pool.used == 0


@pytest.mark.parametrize("family", ["jamba", "mamba2", "llama"])
def test_what_prompts_share_is_processed_once(family: str, random_model: Callable[..., Path]) -> None:
    path = random_model(SHAPES[family], FileType.Q8_0)
    stem = tokens(60)
    prompts = [stem + tokens(9, i) for i in range(6)]
    with LoadedModel.load(path, n_ctx=256, n_ubatch=128, n_seq_max=4, checkpoint_budget=BUDGET) as model:
        jobs = [job(model, ids, 10 * i + s, 5) for i, ids in enumerate(prompts) for s in range(3)]
        results = answer_all(model, jobs, 4)
        processed = sum(r.prompt_tokens for r in results)
        least = 60 + 6 * 9
        print(f"{family}: {processed} of {sum(len(j.ids) for j in jobs)} prompt tokens, {least} are new")
        assert processed <= least + 6, "prompts may part some tokens later than the stem by chance"
        assert len({tuple(r.ids) for r in results[:3]}) > 1, "samples differ"


def test_what_waits_for_a_beginning_joins_when_it_is_read(random_model: Callable[..., Path]) -> None:
    """Not only when the answer that processed the prefix has ended."""
    path = random_model(SHAPES["jamba"], FileType.Q8_0)
    with LoadedModel.load(path, n_ctx=256, n_ubatch=128, n_seq_max=3, checkpoint_budget=BUDGET) as model:
        batcher, jobs = Batcher(model.runner, 3), [job(model, tokens(60), seed, 40) for seed in range(3)]
        for one in jobs:
            one.drawing._tokenizer = Plain()  # type: ignore[assignment]
            batcher.submit(one)
        for _ in range(3):
            batcher.step()
        assert [len(one.result.ids) for one in jobs] == [3, 3, 3]
        assert [one.n_known for one in jobs] == [0, 60, 60]
        batcher.close()


def test_a_long_prompt_does_not_hold_answers_up(
    random_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with LoadedModel.load(random_model(SHAPES["mamba"], FileType.Q8_0), n_ctx=1024, n_seq_max=2) as model:
        batcher = Batcher(model.runner, 2)
        monkeypatch.setattr(Slices, "beside_answers", 128)
        first, long = job(model, tokens(5), 1, 40), job(model, tokens(900), 2, 3)
        first.drawing.tokenizer = Plain()  # type: ignore[assignment]
        batcher.submit(first)
        batcher.step()
        batcher.submit(long)
        for n in range(2, 6):
            batcher.step()
            assert len(first.result.ids) == n
            assert long.result.prompt_tokens == 128 * (n - 1)
        batcher.close()
        assert first.done and long.done and not batcher.busy


def test_a_cancelled_job_ends_the_pass(random_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass is stopped and repeated without the job; other reasons for a stop are not swallowed."""
    with LoadedModel.load(random_model(SHAPES["jamba"], FileType.Q8_0), n_ctx=1024, n_seq_max=2) as model:
        want = alone(model, tokens(300), 1, 5)
        batcher = Batcher(model.runner, 2)
        first, second = job(model, tokens(300), 1, 5), job(model, tokens(400, 7), 2, 5)
        batcher.submit(first)
        batcher.submit(second)
        late = job(model, tokens(9), 3)  # ended, or never joined: cancelled too late
        evaluate, hooks = model.runner.eval, [lambda: batcher.cancel(late), lambda: batcher.cancel(second), model.stop]

        def interrupted(works: list[Work]) -> list[Result]:
            if hooks:
                hooks.pop(0)()
            return evaluate(works)

        monkeypatch.setattr(model.runner, "eval", interrupted)
        for _ in range(2):
            assert batcher.step() == [] and batcher.n_steps == 0 and first.result.prompt_tokens == 0
        with pytest.raises(Interrupted):
            batcher.step()  # cancels the second, then stops the model
        assert second.done and second.result.reason == "interrupt" and second.result.prompt_tokens == 0
        for _ in batcher.run():
            pass
        assert (first.result.ids, first.result.reason) == want and model.n_free == 2


def test_wrong_use_is_said(random_model: Callable[..., Path]) -> None:
    with LoadedModel.load(random_model(SHAPES["mamba"], FileType.Q8_0), n_ctx=32, n_seq_max=2) as model:
        with pytest.raises(UsageError, match="3 answers at a time: this model was loaded for 1 to 2"):
            Batcher(model.runner, 3)
        batcher = Batcher(model.runner, 2)
        with pytest.raises(UsageError, match="33 tokens, the context 32"):
            batcher.submit(job(model, tokens(33), 1))
        with pytest.raises(UsageError, match="prompt is empty"):
            batcher.submit(job(model, [], 1))
        full = job(model, tokens(32), 3)
        batcher.submit(full)
        assert list(batcher.run()) == [full] and full.result.reason in ("context", "eos")


@pytest.mark.parametrize("family", ["lfm2moe", pytest.param("qwen35moe", marks=pytest.mark.slow)])
def test_experts_in_batches_of_every_size(family: str, random_model: Callable[..., Path]) -> None:
    """Different kernels multiply few and many columns of an expert."""
    path = random_model(MODELS[family], FileType.Q8_0)
    ids = tokens(40)
    with LoadedModel.load(path, n_ctx=64, n_ubatch=96, n_threads=2, n_seq_max=40) as model:
        seq = model.sequence()
        want = [seq.decode(token).copy() for token in ids]
        seq.close()
        for n in (2, 9, 20, 40):
            seqs = [model.sequence() for _ in range(n)]
            got = [model.eval([Work(s, [token]) for s in seqs]) for token in ids[:3]]
            for step, results in enumerate(got):
                for result in results:
                    assert result.logits is not None
                    np.testing.assert_array_equal(result.logits.reshape(-1), want[step])
            for s in seqs:
                s.close()
