"""Log-probabilities of sampled tokens against float64 and a full sort; the end of an answer."""

import json

import numpy as np
import pytest
from chat_vocabulary import NORMAL, chat_tokenizer

from hybrid.infer.answers.chat.format import CallFormat, ChatFormat, JsonCall
from hybrid.infer.answers.chat.reader import AnswerReader
from hybrid.infer.answers.chat.tools import tools_of
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


CALLS = '<tool_call>\n{"name": "f", "arguments": {"a": %d}}\n</tool_call>\n'


@pytest.mark.parametrize(
    ("wants", "numbers", "repeated"),
    [([1, 1, 1], [1, 1], True), ([1, 2, 2, 3], [1, 2, 2], True), ([1, 2], [1, 2], False)],
)
def test_a_repeated_call_ends_the_answer(wants: list[int], numbers: list[int], repeated: bool) -> None:
    tokenizer = chat_tokenizer(NORMAL)
    calls = CallFormat("<tool_call>", "", "", JsonCall("<tool_call>\n", "\n</tool_call>"), again="\n")
    reader = AnswerReader(
        ChatFormat(None, calls),
        tools_of([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]),
        drop_repeated=True,
    )
    sampler = Sampler(SamplingParams(temp=0), tokenizer.n_vocab)
    drawing = Drawing(sampler, tokenizer, -1, (), calls=reader)
    drawing.begin(())
    text = "".join(CALLS % number for number in wants)
    wanted = [*tokenizer.encode(text, add_special=False, continues=True), tokenizer.eos or 0]
    while drawing.ended is None:
        logits = np.zeros(tokenizer.n_vocab, np.float32)
        logits[wanted[len(drawing.result.ids)]] = 9
        drawing.draw(logits)
    assert drawing.ended == "eos"
    assert drawing.result.repeated == repeated
    assert (drawing.result.eog is None) == repeated
    assert drawing.result.text.count("tool_call>\n{") == len(numbers)
    assert json.loads(reader.calls[-1].arguments) == {"a": numbers[-1]}
