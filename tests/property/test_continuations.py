"""Likelihoods of continuations: each as alone, whatever is processed beside it, and shared prefixes are processed
once."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from test_conformance import SHAPES, tokens

from hybrid.infer import LoadedModel
from hybrid.infer.evaluate import continuations
from hybrid.infer.evaluate.continuations import Likelihood, Pair, score, slots_for
from hybrid.quant.ggml.errors import FormatError, Remedy, UsageError
from hybrid.quant.ggml.types import FileType

FAMILIES = ["mamba", "jamba", "llama"]


def questions() -> list[Pair]:
    """9 questions with 4 answers after shared examples; questions without examples, with one-token answers and with
    contexts that extend or cut another's."""
    header, pairs = tokens(60), []
    for q in range(9):
        context = header + tokens(3 + 2 * q, 10 + q)
        pairs += [Pair(context, tokens(1 + (q + a) % 5, 100 * q + a)) for a in range(4)]
    for q in range(3):
        context = tokens(20, 40 + q)
        pairs += [Pair(context, [t]) for t in tokens(3, 50 + q)]
        pairs += [Pair(context + tokens(2, q), tokens(2, q + 1)), Pair(context[:10], context[10:15])]
    return [*pairs, pairs[0], Pair([7], [8])]


def alone(model: LoadedModel, pair: Pair) -> Likelihood:
    """Likelihood in float64, from the logits of the whole text."""
    seq = model.sequence()
    x = seq.logits_of([*pair.context, *pair.continuation[:-1]])[len(pair.context) - 1 :].astype(np.float64)
    seq.close(remember=False)
    ln_p = x[np.arange(len(x)), list(pair.continuation)] - np.log(np.exp(x).sum(1))
    return Likelihood(float(ln_p.sum()), x.argmax(1).tolist() == list(pair.continuation))


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_are_those_of_each_text_alone(
    family: str, random_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs, path = questions(), random_model(SHAPES[family], FileType.F32)
    told: list[tuple[int, int]] = []
    with LoadedModel.load(path, n_ctx=96, n_seq_max=12) as model:
        want = [alone(model, pair) for pair in pairs]
        likeliest = [Pair(p.context, [int(np.argmax(_last(model, p.context)))]) for p in pairs[:3]]
        assert all(result.greedy for result in score(model, likeliest).results)
        got = score(model, pairs, lambda done, total: told.append((done, total)))
        assert [r.ln_p for r in got.results] == pytest.approx([r.ln_p for r in want], rel=1e-12)
        assert [r.greedy for r in got.results] == [r.greedy for r in want]
        assert got.n_tokens == sum(len(p.context) + len(p.continuation) for p in pairs)
        assert told[-1] == (len(pairs), len(pairs)) and told == sorted(told)
        unshared = sum(len(p.context) + len(p.continuation) - 1 for p in pairs)
        assert 60 <= got.n_processed < unshared / 5, "the examples are read once, not for each of 5 parts"
        assert model.n_free == 12
        order = list(range(len(pairs)))
        random.Random(3).shuffle(order)
        shuffled = score(model, [pairs[i] for i in order]).results
        assert shuffled == [got.results[i] for i in order], "to the bit"
    for n_seq, rows in ((1, None), (slots_for(len(pairs)), 5)):
        with LoadedModel.load(path, n_ctx=96, n_seq_max=n_seq) as model:
            if rows:
                monkeypatch.setattr(continuations, "MOST_BYTES", 4 * model.n_vocab * rows)
            assert score(model, pairs).results == got.results, "to the bit"


def _last(model: LoadedModel, ids: object) -> np.ndarray:
    seq = model.sequence()
    logits = seq.prefill(ids)  # type: ignore[arg-type]
    seq.close(remember=False)
    return logits


def test_rows_of_a_pass_are_bounded(random_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A long text that is scored entirely never has more logits at a time than the limit."""
    from hybrid.infer.runner import Runner

    most: list[int] = []
    run = Runner.eval

    def counted(self: Runner, works: object, *more: object) -> object:
        results = run(self, works, *more)  # type: ignore[arg-type]
        most.append(sum(0 if r.logits is None else len(r.logits) for r in results))
        return results

    monkeypatch.setattr(Runner, "eval", counted)
    with LoadedModel.load(random_model(SHAPES["mamba"], FileType.F32), n_ctx=128, n_seq_max=6) as model:
        monkeypatch.setattr(continuations, "MOST_BYTES", 4 * model.n_vocab * 16)
        score(model, [Pair([1], tokens(90, i)) for i in range(4)])
    assert 4 * 90 / 16 <= len(most) < 60 and max(most) <= 16


def test_what_cannot_be_scored_is_named(random_model: Callable[..., Path]) -> None:
    with LoadedModel.load(random_model(SHAPES["llama"], FileType.F32), n_ctx=16, n_seq_max=2) as model:
        good = Pair([1], [2])
        for bad in (Pair([], [1]), Pair([1], [])):
            with pytest.raises(UsageError, match="pair 2: context and continuation need at least one token each"):
                score(model, [good, bad])
        score(model, [Pair(tokens(16), [5])])
        with pytest.raises(UsageError, match="pair 2: 17 tokens do not fit the context of 16") as refused:
            score(model, [good, Pair(tokens(16), [5, 6])])
        assert refused.value.remedy is Remedy.LARGER_CONTEXT
        assert score(model, []).results == []


def test_logits_that_are_not_finite_are_refused(
    random_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with LoadedModel.load(random_model(SHAPES["llama"], FileType.F32), n_ctx=16, n_seq_max=2) as model:
        monkeypatch.setattr(continuations, "row_log_likelihood", lambda row, ids: np.full(len(ids), np.nan))
        with pytest.raises(FormatError, match="its logits in pair 1 are not finite"):
            score(model, [Pair([1], [2])])
        assert model.n_free == 2
