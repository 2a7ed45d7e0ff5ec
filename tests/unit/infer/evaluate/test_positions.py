"""Perplexity by position against the definition: all tokens of all chunks but the first, by position."""

import math
from typing import Any

import numpy as np
import pytest
from fake_model import N_VOCAB, FakeModel, log_probs

from hybrid.infer.evaluate.perplexity import perplexity
from hybrid.quant.ggml.errors import UsageError

TOKENS: list[int] = np.random.default_rng(7).integers(N_VOCAB, size=95).tolist()


def measure(model: Any, **options: Any) -> Any:
    return perplexity(model, TOKENS, **options)


@pytest.mark.parametrize(("n_ctx", "n_buckets"), [(9, 1), (16, 4), (16, 15), (17, 5), (30, 7)])
def test_buckets_are_means_over_places(n_ctx: int, n_buckets: int) -> None:
    by_place: dict[int, list[float]] = {}
    for begin in range(0, len(TOKENS) // n_ctx * n_ctx, n_ctx):
        ids = [1, *TOKENS[begin + 1 : begin + n_ctx]]
        for n_before in range(1, n_ctx):
            by_place.setdefault(n_before, []).append(-log_probs(ids[:n_before])[ids[n_before]])
    buckets = measure(FakeModel(n_seq_max=2), n_ctx=n_ctx, n_buckets=n_buckets).by_position
    assert len(buckets) == n_buckets
    assert [b.first for b in buckets[1:]] == [b.end for b in buckets[:-1]]
    assert buckets[0].first == 1 and buckets[-1].end == n_ctx
    widths = {b.end - b.first for b in buckets}
    assert max(widths) - min(widths) <= 1 and min(widths) > 0
    for b in buckets:
        scores = np.concatenate([by_place[place] for place in range(b.first, b.end)])
        assert b.n_scored == scores.size
        assert b.mean_nll == pytest.approx(scores.mean(), rel=1e-12)
        assert b.ppl == pytest.approx(math.exp(scores.mean()), rel=1e-12)
        assert b.stderr == pytest.approx(b.ppl * math.sqrt(scores.var() / (scores.size - 1)), rel=1e-9)


def test_the_estimate_of_the_text_stays() -> None:
    with_buckets = measure(FakeModel(n_seq_max=2), n_ctx=16, n_buckets=4, chunks=3)
    plain = measure(FakeModel(n_seq_max=2), n_ctx=16, chunks=3)
    assert plain.by_position == () and with_buckets.by_position
    assert (with_buckets.running, with_buckets.stderr, with_buckets.n_scored) == (
        plain.running,
        plain.stderr,
        plain.n_scored,
    )


def test_refused() -> None:
    with pytest.raises(UsageError, match=r"16 buckets: chunks of 16 tokens can have 1 to 15\."):
        measure(FakeModel(), n_ctx=16, n_buckets=16)
    with pytest.raises(UsageError, match="-1 buckets"):
        measure(FakeModel(), n_ctx=16, n_buckets=-1)
    with pytest.raises(UsageError, match="figures by position need adjacent chunks: leave out the stride"):
        measure(FakeModel(), n_ctx=16, n_buckets=2, stride=4)
