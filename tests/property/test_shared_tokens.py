"""Tokens shared by several sequences: computed once, with the logits of each sequence alone."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_conformance import FAMILIES, MODELS, SHAPES, same, tokens

from hybrid.infer import LoadedModel, Work
from hybrid.infer.engine.engine import Engine
from hybrid.infer.evaluate.shared import SharedToken, eval_shared, eval_shared_tokens, score_endings
from hybrid.quant.ggml.errors import UsageError
from hybrid.quant.ggml.types import FileType


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The number of tokens of every pass through the layers."""
    counts: list[int] = []
    run = Engine.run

    def counted(self: Engine, segments: Any, **more: Any) -> Any:
        counts.append(sum(len(s.tokens) for s in segments))
        return run(self, segments, **more)

    monkeypatch.setattr(Engine, "run", counted)
    yield counts


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_prefix_of_8_over_4_sequences(
    family: str, separate: bool, random_model: Callable[..., Path], computed: list[int]
) -> None:
    """The last token of the prefix gives four rows; tails of 3, 0, 5 and 3 tokens, two of which share a token."""
    prefix, tails = tokens(8), [tokens(3, 1), [], tokens(5, 2), [tokens(3, 1)[0], 300, 301]]
    with LoadedModel.load(random_model(MODELS[family], FileType.Q8_0), n_ctx=64, n_seq_max=5) as model:
        want = []
        for tail in tails:
            seq = model.sequence()
            want.append(seq.logits_of(prefix + tail))
            seq.close()
        seqs = [model.sequence() for _ in tails]
        entries = []
        for i, token in enumerate(prefix):
            owners = [[s] for s in seqs] if separate else [seqs]
            entries += [SharedToken(token, group, i == 7) for group in owners]
        n_prefix = len(entries)
        owner = [(s, n, t) for s, tail in enumerate(tails) for n, t in enumerate(tail)]
        entries += [SharedToken(t, [seqs[s]], True) for s, _, t in owner]
        computed.clear()
        got = eval_shared_tokens(model, entries)
        assert sum(computed) == 8 + 1 + 2 + 2 + 5, "each token once"
        assert computed[0] == 8
        assert len(got) == 4 + 11
        for s, seq in enumerate(seqs):
            last = n_prefix - 4 + s if separate else n_prefix - 1
            assert same(got[last, seq.id], want[s][7]), s
            assert seq.tokens == prefix + tails[s] and seq.n_past == len(seq.tokens)
        for place, (s, n, _) in enumerate(owner):
            assert same(got[n_prefix + place, seqs[s].id], want[s][8 + n])
        # they diverge
        after = [seq.decode(261) for seq in seqs]
        for s, tail in enumerate(tails):
            seq = model.sequence()
            assert same(after[s], seq.logits_of([*prefix, *tail, 261])[-1]), s
            seq.close()


def test_histories_that_have_become_the_same_share_memory_again(
    random_model: Callable[..., Path], computed: list[int]
) -> None:
    with LoadedModel.load(random_model(SHAPES["jamba"], FileType.Q8_0), n_ctx=256, n_seq_max=2) as model:
        a, b = model.sequence(), model.sequence()
        ids = tokens(130)
        a.prefill(ids)
        for cut in (ids[:50], ids[50:]):
            b.prefill(cut)
        pages = model.memory.attention.pool
        assert pages.used == 6
        computed.clear()
        results = eval_shared(model, [Work(a, [261]), Work(b, [261])])
        assert computed == [1] and pages.used == 3
        assert results[0].logits is not None and results[1].logits is not None
        assert same(results[0].logits, results[1].logits)


@pytest.mark.parametrize("family", ["mamba", "jamba", "llama"])
def test_endings_are_scored_as_one_by_one(family: str, random_model: Callable[..., Path], computed: list[int]) -> None:
    context, endings = tokens(40), [tokens(6, 1), tokens(3, 2), tokens(9, 3), tokens(6, 1)[:4] + tokens(2, 4)]
    with LoadedModel.load(random_model(SHAPES[family], FileType.F32), n_ctx=64, n_seq_max=3) as model:
        want = []
        for ending in endings:
            seq = model.sequence()
            x = seq.logits_of(context + ending[:-1])[39:].astype(np.float64)
            want.append((x[range(len(ending)), ending] - np.log(np.exp(x).sum(1))).sum())
            seq.close()
        computed.clear()
        np.testing.assert_allclose(score_endings(model, context, endings), want, rtol=1e-12)
        assert sum(computed) == 2 * 40 + 5 + 2 + 8 + 5, "the context once for each three sequences"


def test_wrong_entries_are_named(random_model: Callable[..., Path]) -> None:
    with LoadedModel.load(random_model(SHAPES["mamba"], FileType.F32), n_ctx=16, n_seq_max=2) as model:
        a, b = model.sequence(), model.sequence()
        a.prefill(tokens(15))
        for entries, says in (
            ([SharedToken(320, [a])], "entry 0: token 320 of sequence 0 is outside this model's vocabulary of 320"),
            ([SharedToken(261, [b]), SharedToken(261, [a, b, b])], "entry 1: token 261 of sequence 1 is given twice"),
            (
                [SharedToken(261, [a]), SharedToken(262, [a])],
                "entry 1: token 262 of sequence 0 does not fit the context of 16",
            ),
            ([SharedToken(261, [])], "entry 0: token 261 belongs to no sequence"),
        ):
            with pytest.raises(UsageError, match=says):
                eval_shared_tokens(model, entries)
        assert a.n_past == 15 and b.n_past == 0
        with pytest.raises(UsageError, match="leave out targets"):
            eval_shared(model, [Work(b, [261], "all", [262])])
        with pytest.raises(UsageError, match="at least one token"):
            score_endings(model, [], [[261]])
