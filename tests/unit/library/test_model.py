"""Methods of a model in a notebook."""

import math
import threading
from pathlib import Path

import numpy as np
import pytest
from pydantic import BaseModel

import hybrid
from hybrid.infer import LoadedModel as Inner
from hybrid.infer.answers.batch.generate import generate
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.evaluate.embed import Embedder
from hybrid.infer.evaluate.windows import log_softmax
from hybrid.quant.ggml.errors import HybridError

PROMPT = "A state-space model keeps"


def test_a_completion_is_that_of_the_inner_library(model: hybrid.Model, gguf: Path) -> None:
    with Inner.load(gguf, n_threads=1) as inner:
        sampler = Sampler(SamplingParams(seed=3), inner.n_vocab)
        drawn = generate(inner.sequence(), inner.tokenizer.encode(PROMPT), sampler, max_tokens=24)
        text = "".join(piece.text for piece in drawn)
    answer = model.complete(PROMPT, tokens=24, seed=3)
    assert str(answer) == answer.text == text and answer.finish == "length" and answer.seed == 3
    assert answer.tokens == drawn.result.ids and answer.timings.tokens == 24
    streamed = model.complete(PROMPT, tokens=24, seed=3, stream=True)
    pieces = list(streamed)
    assert len(pieces) > 5 and "".join(pieces) == text and list(streamed) == pieces, "it can be iterated again"
    assert streamed.timings.reused_tokens == streamed.timings.prompt_tokens > 0, "nothing is read twice"


def test_many_threads_share_it(model: hybrid.Model) -> None:
    prompts = [f"{PROMPT} {i} things" for i in range(12)]
    alone = [str(model.complete(prompt, tokens=12, seed=1)) for prompt in prompts]
    together: dict[int, str] = {}
    threads = [
        threading.Thread(target=lambda i=i: together.update({i: str(model.complete(prompts[i], tokens=12, seed=1))}))
        for i in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[i] for i in range(12)] == alone
    streams = [model.complete(prompt, tokens=12, seed=1, stream=True) for prompt in prompts]
    assert [str(stream.wait()) for stream in streams] == alone


class Digits(BaseModel):
    first: int
    second: bool


def test_forms(model: hybrid.Model) -> None:
    found = model.complete("Digits: ", schema=Digits, tokens=200, seed=1)
    assert isinstance(found.data, Digits) and found.finish == "stop"
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    assert model.complete("A: ", schema=schema, tokens=100).data["a"] in (1, 2)
    assert model.complete("A: ", schema=schema, tokens=2).data is None, "it is cut off"
    assert model.complete("A: ", regex="[0-9]{4}").text.isdigit()
    assert model.complete("A: ", choices=("yes", "no")).text in ("yes", "no")
    assert model.complete("A: ", grammar='root ::= "x" "y"').text == "xy"
    assert model.complete("A: ").data is None


def test_stop_texts_and_logprobs(model: hybrid.Model) -> None:
    whole = model.complete(PROMPT, tokens=20, temperature=0, logprobs=2)
    assert len(whole.logprobs) == 20 and all(one.logprob == one.top[0][1] for one in whole.logprobs)
    word = whole.text.split()[2]
    assert model.complete(PROMPT, tokens=20, temperature=0, stop=word).text == whole.text.split(word)[0]
    assert model.complete(PROMPT, tokens=20, temperature=0, stop=[word]).finish == "stop"


def test_tokens(model: hybrid.Model) -> None:
    ids = model.tokenize(PROMPT)
    assert model.detokenize(ids).strip().endswith(PROMPT)
    assert str(model.complete(ids, tokens=8, temperature=0)) == str(model.complete(PROMPT, tokens=8, temperature=0))
    assert len(model.tokenize("<|eom|>", special=True)) < len(model.tokenize("<|eom|>"))


def test_scores_are_those_of_the_logits(model: hybrid.Model, gguf: Path) -> None:
    with Inner.load(gguf, n_threads=1) as inner:
        ids = inner.tokenizer.encode(f"{PROMPT} a state")
        seq = inner.sequence()
        rows = [seq.prefill([i]).copy() for i in ids]
    ln_p = [float(log_softmax(row[None].astype(np.float64))[0][i]) for row, i in zip(rows, ids[1:], strict=False)]
    whole = model.score(f"{PROMPT} a state")
    assert whole.tokens == tuple(ids[1:]) and whole.logprobs == pytest.approx(ln_p)
    assert whole.total == pytest.approx(sum(ln_p)) and whole.perplexity == pytest.approx(math.exp(-np.mean(ln_p)))
    behind = model.score(" a state", given=PROMPT)
    n = len(behind)
    assert 0 < n < len(whole) and behind.logprobs == pytest.approx(ln_p[-n:]) and "".join(behind.pieces) == " a state"


def test_a_split_token_is_scored_where_it_is_split(model: hybrid.Model) -> None:
    """`sta` + `te`: the two are not encoded as one."""
    found = model.score("te", given=f"{PROMPT} a sta")
    assert model.detokenize(found.tokens).strip() == "te"


def test_embeddings_are_those_of_hybrid_embed(model: hybrid.Model, gguf: Path) -> None:
    texts = ["one text", PROMPT * 40]
    with Embedder(gguf, n_threads=1) as embedder:
        expected = embedder.embed(texts)
    stream = model.complete(PROMPT, tokens=60, stream=True)  # beside it
    assert np.array_equal(model.embed(texts), expected)
    assert np.array_equal(model.embed(texts[0]), expected[0]) and model.embed([]).shape == (0, 256)
    assert stream.wait().finish == "length"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda m: m.complete([]), "the prompt is empty"),
        (lambda m: m.complete(3), "the prompt is int, expected a text or tokens"),
        (lambda m: m.complete("a " * 3000), "the prompt has 3[0-9]+ tokens, the context 1024"),
        (lambda m: m.complete("a", top_p=2), "top_p = 2, expected a number above 0, at most 1"),
        (lambda m: m.complete("a", temperature="hot"), "a setting is of the wrong type"),
        (lambda m: m.complete("a", temprature=1), "there is no setting temprature. There are: tokens, "),
        (lambda m: m.complete("a", schema={}, regex="a"), "schema and regex are both given"),
        (lambda m: m.complete("a", schema=3), "schema: the schema is 3, expected an object"),
        (lambda m: m.complete("a", schema=int), "schema = int, expected a JSON schema or a pydantic class"),
        (lambda m: m.complete("a", regex="("), "expression"),
        (lambda m: m.complete("a", tokens="many"), "tokens = 'many', expected a number of tokens"),
        (lambda m: m.embed(["a", "b " * 3000]), "text 2 is too large"),
        (lambda m: m.embed(["a", b"\x89PNG"]), "embeddings are of texts, found a bytes"),  # type: ignore[list-item]
        (lambda m: m.embed(Path("a.png")), "No model here makes any of pictures"),  # type: ignore[arg-type]
        (lambda m: m.load_chat("none.state"), "none.state"),
        (lambda m: m.chat().say(3), "the text is int, expected a text"),
        (lambda m: m.chat(tools=[3]), "tools: 3 is neither a function nor the description of one"),
        (lambda m: m.chat(think=True), "the model has no thoughts"),
        (lambda m: m.chat().branch(2), "at = 2: the chat has 0 turns"),
        (lambda m: m.chat().tell(["a"]), "1 results for 0 calls"),
    ],
)
def test_what_cannot_be_is_one_line(model: hybrid.Model, call: object, says: str) -> None:
    with pytest.raises(HybridError, match=says) as caught:
        call(model)  # type: ignore[operator]
    assert "\n" not in str(caught.value)
    assert model.complete("a", tokens=2).finish == "length", "and the model goes on"


def test_what_helps_is_said_in_terms_of_python(model: hybrid.Model) -> None:
    with pytest.raises(HybridError) as caught:
        model.complete("a " * 3000)
    assert caught.value.__notes__ == ["Use a larger context: load(..., context=N)."]


def test_a_closed_model(gguf: Path) -> None:
    model = hybrid.load(gguf, context=256, threads=1)
    stream = model.complete(PROMPT, tokens=-1, stream=True)
    model.close()
    model.close()
    with pytest.raises(HybridError, match="the model was closed"):
        stream.wait()
    assert stream.finish == "stopped"
    with pytest.raises(HybridError, match="the model was closed"):
        model.complete(PROMPT)


def test_a_model_that_nobody_has_is_closed(gguf: Path) -> None:
    model = hybrid.load(gguf, context=256, threads=1)
    service = model.answering.service
    stream = model.complete(PROMPT, tokens=4, stream=True)
    del model
    assert service.is_open and stream.wait().finish == "length", "an answer needs it"
    del stream
    assert not service.is_open
