"""Log-probabilities of drawn tokens against float64 and a full sort."""

import numpy as np
import pytest

from hybrid.infer.answers.drawing.drawing import Drawing, token_logprobs
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.quant.ggml.errors import UsageError


@pytest.mark.parametrize("n_top", [0, 1, 5, 37])
def test_logprobs_of_a_token(n_top: int) -> None:
    logits = np.random.default_rng(3).normal(0, 4, 37).astype(np.float32)
    logits[[5, 11, 30]] = logits.max()  # equal ones, also at the edge of the best
    wide = logits.astype(np.float64)
    want = wide - np.log(np.exp(wide).sum())
    logprobs = token_logprobs(logits, 7, n_top)
    assert logprobs.logprob == pytest.approx(want[7], rel=1e-12)
    order = sorted(range(37), key=lambda i: (-want[i], i))[:n_top]
    assert [token for token, _ in logprobs.top] == order
    assert [ln_p for _, ln_p in logprobs.top] == pytest.approx([want[i] for i in order], rel=1e-12)


def test_more_than_there_are_is_refused() -> None:
    sampler = Sampler(SamplingParams(), 37)
    with pytest.raises(UsageError, match="n_top = 38, expected a number of tokens from 0 to 37"):
        Drawing(sampler, None, 1, (), n_top=38)  # type: ignore[arg-type]
