"""Windows of a text, the pass over them, and the log-softmax, against plain loops."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_model import N_VOCAB, FakeModel, log_probs

from hybrid.infer.evaluate.windows import (
    Window,
    check_length,
    chunked,
    evaluated,
    exp_or_inf,
    group_logits,
    grouped,
    log_likelihood,
    log_softmax,
    log_sum_exp,
    score_logits,
    score_windows,
    strided,
)
from hybrid.infer.sequence import Work
from hybrid.quant.ggml.errors import FormatError, UsageError

TOKENS: list[int] = np.random.default_rng(4).integers(2, N_VOCAB, size=59).tolist()


def tokenizer(bos: int | None, add_bos: bool = True) -> Any:
    return SimpleNamespace(bos=bos, add_bos=add_bos)


@pytest.mark.parametrize(("bos", "add_bos"), [(1, True), (1, False), (None, True)])
def test_chunks_begin_as_every_text_of_the_model(bos: int | None, add_bos: bool) -> None:
    windows = list(chunked(tokenizer(bos, add_bos), TOKENS, 9))
    assert len(windows) == 6, "the last 5 tokens make no chunk"
    for i, window in enumerate(windows):
        expected = TOKENS[9 * i : 9 * i + 9]
        assert window.ids == ([1, *expected[1:]] if bos is not None and add_bos else expected)
        assert window.first == 4 and list(window.targets) == expected[5:]
        assert [window.ids[j + 1] for j in range(9)[window.scored]] == expected[5:]
    assert list(chunked(tokenizer(bos, add_bos), TOKENS, 9, 2, 4)) == windows[2:4]
    assert list(chunked(tokenizer(bos, add_bos), TOKENS, 9, 5, 99)) == windows[5:]


def test_the_tokens_of_a_text_stay_as_they_are() -> None:
    tokens = list(TOKENS)
    list(chunked(tokenizer(1), tokens, 7))
    assert tokens == TOKENS


def test_strided_windows_score_every_token_after_the_first_window_once() -> None:
    windows = list(strided(TOKENS, 10, 3))
    scored = [3 * i + 1 + j for i, w in enumerate(windows) for j in range(10)[w.scored]]
    assert scored == list(range(7, 7 + 3 * len(windows))) and len(windows) == 17


def test_a_group_is_over_before_its_results_are_handed_out() -> None:
    """The caller may use the model, outside of the context manager that surrounds a group."""
    model: Any = FakeModel(n_seq_max=4)
    events: list[str] = []

    @contextmanager
    def during() -> Iterator[None]:
        events.append("begin")
        yield
        events.append("end")

    windows = chunked(model.tokenizer, TOKENS, 8)
    for group in grouped(windows, model.n_seq_max):
        results = evaluated(model, group, lambda seq, w: Work(seq, w.ids), during)
        assert model.open == 0
        events.append(str(len(results)))
    assert events == ["begin", "end", "4", "begin", "end", "3"]
    assert model.batches == [4, 3]


@pytest.mark.parametrize("n_parallel", [None, 1, 2])
def test_logits_and_likelihoods_of_the_same_positions(n_parallel: int | None) -> None:
    windows = [*chunked(tokenizer(1), TOKENS, 8), Window(TOKENS[:5], 0)]
    model: Any = FakeModel(n_seq_max=3)
    logits = [x for g in grouped(windows, n_parallel or 3) for x in group_logits(model, g)]
    nlls = list(score_windows(model, windows, n_parallel))
    assert len(logits) == len(nlls) == len(windows)
    for window, rows, nll in zip(windows, logits, nlls, strict=True):
        expected = [log_probs(list(window.ids[: j + 1])) for j in range(window.first, len(window.ids) - 1)]
        np.testing.assert_array_equal(rows, expected)
        np.testing.assert_array_equal(nll, [-row[t] for row, t in zip(expected, window.targets, strict=True)])


@pytest.mark.parametrize("scores", [score_logits, score_windows])
def test_what_is_no_number_is_refused(scores: Any) -> None:
    model: Any = FakeModel(n_seq_max=2)
    model.broken = True
    says = r"^fake\.gguf: its logits in chunk 1 are not finite\. Convert or copy it again\.$"
    with pytest.raises(FormatError, match=says):
        next(scores(model, chunked(model.tokenizer, TOKENS, 8)))
    assert model.open == 0


def test_too_short_a_text() -> None:
    check_length(32, 16, 32)
    says = "the text has {} tokens, a context of 16 needs at least 32. Give a longer text{}."
    for n, largest, smaller in [(31, 15, " or a context of at most 15 tokens"), (31, 0, ""), (7, 3, "")]:
        with pytest.raises(UsageError) as caught:
            check_length(n, 16, 32, largest)
        assert str(caught.value) == says.format(n, smaller)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_log_softmax_keeps_its_type(dtype: type) -> None:
    logits = (np.random.default_rng(6).standard_normal((7, 33)) * 5 + 400).astype(dtype)
    logits[3] = 400  # a row of equal values
    ln_probs = log_softmax(logits)
    assert ln_probs.dtype == dtype
    for row, ln_p in zip(logits.astype(np.float64), ln_probs, strict=True):
        total = math.fsum(math.exp(x - 400) for x in row)
        expected = [x - 400 - math.log(total) for x in row]
        # values up to 500: rounding of the subtracted value, and of the result
        np.testing.assert_allclose(ln_p, expected, rtol=0, atol=2 * 512 * np.finfo(dtype).eps)


def test_the_sum_of_exponentials_is_taken_in_f64() -> None:
    """In f32 each small term would be lost next to the large one."""
    logits = np.full((1, 1 << 20), -16, np.float32)
    logits[0, 0] = 0
    largest, rest = log_sum_exp(logits)
    assert largest.dtype == rest.dtype == np.float32 and largest.shape == rest.shape == (1, 1)
    assert rest[0, 0] == np.float32(math.log(1 + ((1 << 20) - 1) * float(np.exp(np.float32(-16)))))


def test_log_likelihood() -> None:
    logits = (np.random.default_rng(7).standard_normal((5, 19)) * 30).astype(np.float32)
    ids = [3, 0, 18, 7, 7]
    totals = [math.log(math.fsum(map(math.exp, row.tolist()))) for row in logits]
    expected = [float(row[i]) - total for row, i, total in zip(logits, ids, totals, strict=True)]
    ln_probs = log_likelihood(logits, ids)
    assert ln_probs.dtype == np.float64
    np.testing.assert_allclose(ln_probs, expected, rtol=1e-13)


def test_perplexities_that_no_float_holds() -> None:
    assert exp_or_inf(1.0) == math.e and exp_or_inf(701.0) == math.inf
