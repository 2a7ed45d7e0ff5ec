"""llama-perplexity's protocol against a plain loop."""

import json
import math
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from fake_model import N_VOCAB, FakeModel, log_probs

from hybrid.infer.evaluate.perplexity import PerplexityResult, perplexity
from hybrid.infer.evaluate.windows import Window, score_windows
from hybrid.quant.ggml.errors import FormatError, UsageError

TOKENS: list[int] = np.random.default_rng(3).integers(N_VOCAB, size=103).tolist()


def measure(model: Any, text: Any, **options: Any) -> PerplexityResult:
    return perplexity(model, text, **options)


def reference(tokens: list[int], n_ctx: int, bos: int | None, n_chunks: int) -> list[list[float]]:
    """Negative log-likelihoods per chunk: the second half of each chunk, by definition."""
    scores = []
    for i in range(n_chunks):
        seen: list[int] = []
        nlls = []
        for position in range(n_ctx - 1):
            token = tokens[i * n_ctx + position]
            seen.append(bos if position == 0 and bos is not None else token)
            if position >= n_ctx // 2:
                nlls.append(-log_probs(seen)[tokens[i * n_ctx + position + 1]])
        assert len(nlls) == n_ctx - n_ctx // 2 - 1
        scores.append(nlls)
    return scores


@pytest.mark.parametrize("n_ctx", [8, 9, 16, 17, 51])
@pytest.mark.parametrize("bos", [1, None])
def test_protocol(n_ctx: int, bos: int | None) -> None:
    scores = reference(TOKENS, n_ctx, bos, len(TOKENS) // n_ctx)
    flat = np.concatenate(scores)
    result = measure(FakeModel(add_bos=bos is not None), TOKENS, n_ctx=n_ctx)
    assert result.n_chunks == len(scores)
    assert result.n_scored == flat.size
    assert result.n_tokens == len(TOKENS)
    assert result.mean_nll == pytest.approx(flat.mean(), rel=1e-12)
    assert result.ppl == pytest.approx(math.exp(flat.mean()), rel=1e-12)
    # numpy's variance divides by n, and so does llama-perplexity's before it divides by n - 1
    assert result.stderr == pytest.approx(math.exp(flat.mean()) * math.sqrt(flat.var() / (flat.size - 1)), rel=1e-9)
    expected = [math.exp(np.concatenate(scores[: i + 1]).mean()) for i in range(len(scores))]
    assert result.running == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("n_seq_max", "n_batch", "groups"), [
    (1, None, [1] * 6), (4, None, [4, 2]), (8, None, [6]), (4, 47, [2, 2, 2]), (4, 15, [1] * 6), (2, 64, [2, 2, 2]),
])  # fmt: skip
def test_chunks_together_change_nothing(n_seq_max: int, n_batch: int | None, groups: list[int]) -> None:
    alone = measure(FakeModel(), TOKENS, n_ctx=16)
    model = FakeModel(n_seq_max=n_seq_max)
    together = measure(model, TOKENS, n_ctx=16, n_batch=n_batch)
    assert model.batches == groups
    assert together.n_parallel == groups[0]
    assert together.running == alone.running
    assert model.open == 0


def test_text_is_tokenized_once_with_bos() -> None:
    text = "The quick brown fox jumps over the lazy dog."
    from_text = measure(FakeModel(), text, n_ctx=8)
    tokens = [1] + [ord(c) % N_VOCAB for c in text]
    assert from_text.n_tokens == 45
    assert from_text.running == measure(FakeModel(), tokens, n_ctx=8).running
    without = measure(FakeModel(add_bos=False), text, n_ctx=8)
    assert without.n_tokens == 44
    assert without.ppl != from_text.ppl


def test_chunk_limit_and_progress() -> None:
    seen: list[tuple[int, int, float]] = []
    model = FakeModel(n_seq_max=4)
    result = measure(model, TOKENS, n_ctx=8, chunks=5, progress=lambda *args: seen.append(args))
    assert result.n_chunks == 5
    assert model.batches == [4, 1]
    assert seen == [(i + 1, 5, ppl) for i, ppl in enumerate(result.running)]
    assert result.running == measure(FakeModel(), TOKENS, n_ctx=8).running[:5]
    assert measure(FakeModel(), TOKENS, n_ctx=8, chunks=-1).n_chunks == measure(FakeModel(), TOKENS, n_ctx=8).n_chunks
    assert measure(FakeModel(), TOKENS, n_ctx=8, chunks=99).n_chunks == 12


@pytest.mark.parametrize(("n_ctx", "stride"), [(16, 8), (16, 5), (12, 12), (8, 1)])
def test_stride(n_ctx: int, stride: int) -> None:
    window = n_ctx + stride // 2
    nlls: list[float] = []
    running = []
    for start in range(0, len(TOKENS) - window, stride):
        for position in range(window - stride - 1, window - 1):
            seen = TOKENS[start : start + position + 1]
            nlls.append(-log_probs(seen)[TOKENS[start + position + 1]])
        running.append(math.exp(np.mean(nlls)))
    result = measure(FakeModel(n_seq_max=3), TOKENS, n_ctx=n_ctx, stride=stride)
    # llama-perplexity's count of windows
    assert result.n_chunks == (len(TOKENS) - window + stride - 1) // stride
    assert result.n_scored == len(nlls)
    assert result.running == pytest.approx(running, rel=1e-12)


def test_whole_windows() -> None:
    """transformers' usual way: BOS and 7 tokens, all 7 scored."""
    windows = [Window([1, *TOKENS[i : i + 7]], 0) for i in range(0, 98, 7)]
    model: Any = FakeModel(n_seq_max=4)
    nlls = list(score_windows(model, windows, 4))
    assert [len(nll) for nll in nlls] == [7] * 14
    for window, nll in zip(windows, nlls, strict=True):
        expected = [-log_probs(list(window.ids[: j + 1]))[window.ids[j + 1]] for j in range(7)]
        np.testing.assert_allclose(nll, expected, rtol=1e-12)


def test_result_is_json() -> None:
    result = measure(FakeModel(), TOKENS, n_ctx=16)
    assert json.loads(json.dumps(asdict(result)))["n_chunks"] == 6
    assert result.tokens_per_second > 0


def test_equal_scores_have_no_error() -> None:
    """For one score, or equal ones, llama-perplexity has no +/- to print."""
    result = measure(FakeModel(), [5] * 8, n_ctx=4, chunks=1)
    assert result.n_scored == 1
    assert result.stderr == 0.0


def test_needs_two_contexts_of_text() -> None:
    assert measure(FakeModel(), TOKENS[:32], n_ctx=16).n_chunks == 2
    with pytest.raises(UsageError) as caught:
        measure(FakeModel(), TOKENS[:31], n_ctx=16)
    assert str(caught.value) == (
        "the text has 31 tokens, a context of 16 needs at least 32. "
        "Give a longer text or a context of at most 15 tokens."
    )
    with pytest.raises(UsageError, match=r"the text has 1 tokens, .* needs at least 32\. Give a longer text\.$"):
        measure(FakeModel(), "", n_ctx=16)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_ctx": 3}, "a context of 3 tokens: perplexity needs at least 4"),
        ({"n_ctx": 16, "stride": -1}, "stride = -1: expected 0 or a number below 32"),
        ({"n_ctx": 16, "stride": 32}, "stride = 32: expected 0 or a number below 32"),
        ({"n_ctx": 16, "chunks": 0}, "chunks = 0: at least 1 is needed"),
        ({"n_ctx": 66}, "a context of 66 tokens: a chunk has 66 tokens, the model was loaded for 64"),
    ],
)
def test_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        measure(FakeModel(), TOKENS * 4, **options)


def test_logits_that_are_no_numbers() -> None:
    model = FakeModel()
    model.broken = True
    with pytest.raises(FormatError, match=r"fake\.gguf: its logits in chunk 1 are not finite"):
        measure(model, TOKENS, n_ctx=16)
    assert model.open == 0
