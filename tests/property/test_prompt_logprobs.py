"""Logprobs of prompts in a batch: they come from the logits after each token, whatever runs beside them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from test_batch_guessing import Asked, Letters, outcome
from test_conformance import MODELS, SHAPES, tokens

from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.batcher import Batcher, Job, answer_all
from hybrid.infer.answers.drawing import prompt_logprobs
from hybrid.infer.answers.drawing.drawing import Drawing, token_logprobs
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.runner import Result, Work
from hybrid.quant.ggml.errors import HybridError, UsageError
from hybrid.quant.ggml.types import FileType


def job(model: LoadedModel, ids: list[int], n: int = 5, n_top: int | None = 2, **more: object) -> Job:
    sampler = Sampler(SamplingParams(temp=0.9, seed=1), model.n_vocab)
    return Job(ids, Drawing(sampler, Letters(), n, ()), prompt_top=n_top, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("family", ["jamba", "mamba2", "llama", "lfm2moe"])
def test_they_are_those_of_all_logits(
    family: str, random_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, prompts = random_model(MODELS[family], FileType.Q8_0), [tokens(n, n) for n in (90, 1, 37, 90)]
    prompts[3] = prompts[0][:50] + prompts[3][50:]
    with LoadedModel.load(path, n_ctx=128, n_ubatch=64) as model:
        want, plain = [], [outcome(Asked(1, ids, 5).alone(model)) for ids in prompts]
        for ids in prompts:
            seq = model.sequence()
            rows = seq.logits_of(ids)
            want.append([None, *(token_logprobs(row, t, 2) for row, t in zip(rows, ids[1:], strict=False))])
            shifted = rows.astype(np.float64) - rows.max(axis=1, keepdims=True)
            ln_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
            for known, row, token in zip(want[-1][1:], ln_p, ids[1:], strict=False):
                assert known is not None and abs(known.logprob - row[token]) < 1e-9
                assert [i for i, _ in known.top] == np.argsort(-row, kind="stable")[:2].tolist()
            seq.close()
    for budget, n_rows in ((8 << 20, 10), (0, 1000)):
        with LoadedModel.load(path, n_ctx=128, n_ubatch=64, n_seq_max=4, checkpoint_budget=budget) as model:
            monkeypatch.setattr(prompt_logprobs, "MOST_BYTES", 4 * model.n_vocab * n_rows)
            most, evaluate = 0, model.runner.eval

            def counted(works: list[Work]) -> list[Result]:
                nonlocal most
                results = evaluate(works)  # noqa: B023
                most = max(most, sum(len(w.outputs()) for w in works if w.output == "all"))
                return results

            monkeypatch.setattr(model.runner, "eval", counted)
            for _ in range(2):  # the second time the prompts are cached, but without logits: they are processed again
                jobs = [job(model, ids, speculate=True) for ids in prompts]
                beside = Asked(1, tokens(30, 7), 40).job(model)
                answer_all(model, [beside, *jobs], 4)
                assert [j.prompt_logprobs for j in jobs] == want
                assert [j.n_known for j in jobs] == [0] * 4 and [j.result.prompt_tokens for j in jobs] == [
                    90,
                    1,
                    37,
                    90,
                ]
                assert beside.prompt_logprobs == []
            assert most <= n_rows, "in slices whose logits fit"
            answers = [Asked(1, ids, 5).job(model) for ids in prompts]
            assert [outcome(r) for r in answer_all(model, answers, 4)] == plain
            if budget:
                assert [j.n_known for j in answers] == [90, 1, 37, 90], "checkpoints were left nevertheless"


def test_they_are_read_whatever_the_answer_is(random_model: Callable[..., Path]) -> None:
    with LoadedModel.load(random_model(SHAPES["jamba"], FileType.Q8_0), n_ctx=64, n_ubatch=16, n_seq_max=2) as model:
        nothing, only = job(model, tokens(40), 0), job(model, tokens(1), 0, 0)
        full = job(model, tokens(64), 3)
        answer_all(model, [nothing, only, full], 2)
        assert nothing.result.reason == "length" and nothing.result.ids == [] and len(nothing.prompt_logprobs) == 40
        assert only.prompt_logprobs == [None] and len(full.prompt_logprobs) == 64
        assert full.result.reason in ("context", "eos")
        without = job(model, tokens(40), 0, None)
        answer_all(model, [without], 1)
        assert without.result.reason == "length" and without.result.prompt_tokens == 0, "nothing was asked for"
        cancelled = job(model, tokens(40))
        batcher = Batcher(model.runner, 1)
        batcher.submit(cancelled)
        batcher.step()
        cancelled.cancel()
        assert batcher.step() == [cancelled] and len(cancelled.prompt_logprobs) == 16 + 1
        with pytest.raises(UsageError, match="prompt_top = 321, expected a number of tokens from 0 to 320"):
            batcher.submit(job(model, tokens(4), n_top=321))


def test_logits_that_hold_nan_are_said(random_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    with LoadedModel.load(random_model(SHAPES["mamba"], FileType.Q8_0), n_ctx=64, n_ubatch=16, n_seq_max=2) as model:
        run = model.engine.run

        def broken(segments: object, **more: bool) -> np.ndarray | None:
            values = run(segments, **more)  # type: ignore[arg-type]
            if values is not None:
                values[0, 5] = np.nan
            return values

        monkeypatch.setattr(model.engine, "run", broken)
        with pytest.raises(HybridError, match="the logits of the prompt hold NaN"):
            answer_all(model, [job(model, tokens(40))], 1)
