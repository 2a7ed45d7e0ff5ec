"""A shifted context continues as llama-completion's does (context_shift/README.md)."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.generate import generate
from hybrid.infer.answers.drawing.context_shift import kept_tokens
from hybrid.infer.answers.sampling import Sampler, SamplingParams

EXPECTED = json.loads((Path(__file__).with_name("context_shift") / "expected.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("speculate", [False, True])
@pytest.mark.parametrize("keep", sorted(EXPECTED["texts"]))
def test_the_text_behind_a_shift(keep: str, speculate: bool, converted: Callable[..., Path]) -> None:
    n_ctx, n = EXPECTED["context"], EXPECTED["n"]
    with LoadedModel.load(converted("llama-unigram-bin"), n_ctx=n_ctx, precision="exact") as model:
        seq = model.sequence()
        ids = model.tokenizer.encode(EXPECTED["prompt"])
        kept = kept_tokens(model, ids, int(keep))
        sampler = Sampler(SamplingParams(temp=0), model.n_vocab)
        run = generate(seq, ids, sampler, max_tokens=n, keep=kept, speculate=speculate)
        text = "".join(piece.text for piece in run)
        assert run.result.reason == "length" and run.result.discarded > 2 * (n_ctx // 2 - kept) > 0, "several shifts"
        assert text == EXPECTED["texts"][keep]
