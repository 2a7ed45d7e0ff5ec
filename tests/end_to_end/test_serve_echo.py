"""`echo` of completions: prompts returned with their answers, and with the logprobs that evaluations need."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from http_server import WAIT, Server

from hybrid.cli.main import run
from hybrid.cli.serve.client import Client
from hybrid.cli.serve.jobs import Maker
from hybrid.cli.serve.openai.completions import CompletionRequest, TokenLists, completion_jobs
from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.batcher import Job
from hybrid.infer.answers.drawing.drawing import Drawing, TokenLogprobs
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.evaluate.windows import log_softmax

pytestmark = pytest.mark.exhaustive

PATH = "/v1/completions"
PROMPT = "State space models keep what they have read, größer ☃ 日本"
OTHER = "Memory of a machine"


@pytest.fixture(scope="module", params=[0, 32 << 20])
def server(files: dict[str, Path], request: pytest.FixtureRequest) -> Iterator[Server]:
    with LoadedModel.load(files["q8_0"], n_ctx=512, n_seq_max=4, checkpoint_budget=request.param) as model:
        server = Server(model)
        yield server
        server.close()
        assert model.n_free == 4


def asked(server: Server, **body: Any) -> list[dict[str, Any]]:
    """The choices."""
    response = server.http.post(PATH, json={"temperature": 0.9, "seed": 5, "max_tokens": 6, **body})
    assert response.status_code == 200, response.text
    choices: list[dict[str, Any]] = response.json()["choices"]
    assert [choice["index"] for choice in choices] == list(range(len(choices)))
    return choices


def streamed(server: Server, **body: Any) -> list[dict[str, Any]]:
    """The choices, assembled from the chunks of a stream."""
    choices: dict[int, dict[str, Any]] = {}
    body = {"temperature": 0.9, "seed": 5, "max_tokens": 6, **body, "stream": True}
    with server.http.stream("POST", PATH, json=body) as response:
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    for line in lines:
        for chunk in json.loads(line)["choices"]:
            whole = choices.setdefault(
                chunk["index"], {"text": "", "index": chunk["index"], "logprobs": None, "finish_reason": None}
            )
            assert whole["finish_reason"] is None, "nothing comes after the end"
            whole["text"] += chunk["text"]
            whole["finish_reason"] = chunk["finish_reason"]
            if chunk["logprobs"] is not None and whole["logprobs"] is None:
                whole["logprobs"] = chunk["logprobs"]
            elif chunk["logprobs"] is not None:
                whole["logprobs"] = {name: whole["logprobs"][name] + more for name, more in chunk["logprobs"].items()}
    return [choices[i] for i in range(len(choices))]


def rows_of(server: Server, ids: list[int]) -> np.ndarray:
    """ln p of the next token after each token of a text, f64 [n, n_vocab]."""

    def read() -> np.ndarray:
        seq = server.model.sequence()
        rows = seq.logits_of(ids)
        seq.close(remember=False)
        return log_softmax(rows.astype(np.float64))

    return server.service.call(read).result(WAIT)


def test_a_prompt_comes_back_with_its_answer(server: Server) -> None:
    plain = asked(server, prompt=PROMPT)
    echoed = asked(server, prompt=PROMPT, echo=True)
    assert echoed == [{**plain[0], "text": PROMPT + plain[0]["text"]}] and echoed[0]["logprobs"] is None
    assert streamed(server, prompt=PROMPT, echo=True) == echoed
    ids = server.model.tokenizer.encode(PROMPT)
    assert asked(server, prompt=ids, echo=True) == echoed and asked(server, prompt=[ids], echo=True) == echoed


@pytest.mark.parametrize("n_top", [0, 1, 3])
def test_logprobs_of_prompt_and_answer(server: Server, n_top: int) -> None:
    """They come from the logits after each token, and are listed with the tokens' offsets in the text."""
    tokenizer = server.model.tokenizer
    [choice] = asked(server, prompt=PROMPT, echo=True, logprobs=n_top)
    [plain] = asked(server, prompt=PROMPT, logprobs=n_top)
    listed = choice["logprobs"]
    prompt = tokenizer.encode(PROMPT)
    assert choice["text"] == PROMPT + plain["text"]
    for name in ("tokens", "token_logprobs", "top_logprobs"):
        assert listed[name][len(prompt) :] == plain["logprobs"][name], "the answer is the same"
    assert listed["text_offset"][len(prompt) :] == [len(PROMPT) + at for at in plain["logprobs"]["text_offset"]]
    rows = rows_of(server, prompt)
    assert listed["token_logprobs"][0] is None and listed["top_logprobs"][0] is None
    for i, token in enumerate(prompt[1:]):
        assert listed["token_logprobs"][i + 1] == rows[i, token]
        best = np.argsort(-rows[i], kind="stable")[:n_top]
        top = listed["top_logprobs"][i + 1]
        assert sorted(top.values()) == sorted({*rows[i, best].tolist(), rows[i, token]})
        assert top[listed["tokens"][i + 1]] == rows[i, token]
    # each token begins where the text before it ends
    stream, at = tokenizer.stream(skip_special=True, at_start=True), 0
    for token, offset in zip(prompt, listed["text_offset"], strict=False):
        assert offset == at
        at += len(stream.push(token))
    assert at == len(PROMPT)
    assert streamed(server, prompt=PROMPT, echo=True, logprobs=n_top) == [choice]


def test_several_prompts_and_answers(server: Server) -> None:
    """Answers to one prompt share its processing; an answer that ends before the prompt's logprobs are known waits."""
    long = " ".join([OTHER] * 30)
    asked(server, prompt=long, max_tokens=1)  # in the cache: other answers need not wait for the first
    for logprobs in (None, 2):
        body = {"prompt": [long, PROMPT], "n": 3, "echo": True, "logprobs": logprobs, "temperature": 0.9}
        many = asked(server, **body)
        assert len(many) == 6
        for i, choice in enumerate(many):
            prompt = (long, PROMPT)[i // 3]
            single = asked(server, prompt=prompt, echo=True, logprobs=logprobs, seed=5 + i % 3)[0]
            assert choice == {**single, "index": i} and choice["text"].startswith(prompt)
        assert streamed(server, **body) == many


def test_no_answer_is_asked_for(server: Server) -> None:
    n_prompt = len(server.model.tokenizer.encode(PROMPT))
    for choices in (asked, streamed):
        [nothing] = choices(server, prompt=PROMPT, max_tokens=0)
        assert nothing == {"text": "", "index": 0, "logprobs": None, "finish_reason": "length"}
        [only] = choices(server, prompt=PROMPT, max_tokens=0, echo=True)
        assert only == {"text": PROMPT, "index": 0, "logprobs": None, "finish_reason": "length"}
        [known] = choices(server, prompt=PROMPT, max_tokens=0, echo=True, logprobs=1)
        assert known["text"] == PROMPT and known["finish_reason"] == "length"
        assert len(known["logprobs"]["tokens"]) == n_prompt
    body = {"prompt": PROMPT, "max_tokens": 0, "echo": True, "logprobs": 1}
    usage = server.http.post(PATH, json=body).json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (n_prompt, 0)


def test_as_evaluations_ask(server: Server) -> None:
    """Token ids, and one sampled token that is dropped: lm-evaluation-harness takes token_logprobs[n_context:-1]."""
    tokenizer = server.model.tokenizer
    context, continuation = tokenizer.encode(OTHER), tokenizer.encode(" keeps", continues=True)
    ids = context + continuation
    rows = rows_of(server, ids)
    want = sum(rows[len(context) + i - 1, token] for i, token in enumerate(continuation))
    body = {"prompt": [ids], "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True}
    [choice] = asked(server, **body)
    assert sum(choice["logprobs"]["token_logprobs"][len(context) : -1]) == want
    # also if the sampled token ends the answer
    eos = next(iter(tokenizer.eog))
    [ended] = asked(server, **body, logit_bias={str(eos): 1e9})
    assert ended["finish_reason"] == "stop" and ended["text"] == choice["text"][: len(ended["text"])]
    assert ended["logprobs"]["token_logprobs"][:-1] == choice["logprobs"]["token_logprobs"][:-1]
    assert len(ended["logprobs"]["tokens"]) == len(ids) + 1
    assert ended["logprobs"]["token_logprobs"][-1] == rows[-1, eos]
    assert streamed(server, **body, logit_bias={str(eos): 1e9}) == [ended]


def test_characters_in_several_tokens(server: Server) -> None:
    """A token that is part of a character is written as bytes; its offset is the character's."""
    tokenizer = server.model.tokenizer
    snow = tokenizer.encode("☃", continues=True)
    assert [tokenizer.piece(token) for token in snow] == [b"\xe2", b"\x98", b"\x83"]
    prompt = [*tokenizer.encode("a"), *snow, *tokenizer.encode("b", continues=True)]
    [choice] = asked(server, prompt=prompt, max_tokens=0, echo=True, logprobs=0)
    assert choice["text"] == "a☃b"
    assert choice["logprobs"]["tokens"][-4:] == ["bytes:\\xe2", "bytes:\\x98", "bytes:\\x83", "b"]
    assert choice["logprobs"]["text_offset"][-4:] == [1, 1, 1, 2]
    # of an answer, in pieces
    lists, drawing = TokenLists(tokenizer), Drawing(Sampler(SamplingParams(), server.model.n_vocab), tokenizer, 1, ())
    known = TokenLogprobs(-1.0, ())
    lists.prompt(Job(prompt[:-1], drawing), [known] * (len(prompt) - 1))
    offsets = [lists.answer([(token, known)])["text_offset"] for token in [*snow, prompt[-1]]]  # type: ignore[index]
    assert offsets == [[2], [2], [2], [3]]


def test_what_is_refused_is_named(server: Server) -> None:
    for body, param, says in (
        ({"best_of": 3}, "best_of", "best_of = 3: this server gives all answers that it samples, n = 1"),
        ({"suffix": "end"}, "suffix", "suffix: this model fills in no gaps: its vocabulary has no token for"),
        ({"echo": "yes"}, "echo", "echo: Input should be a valid boolean"),
        ({"logprobs": 21, "echo": True}, "logprobs", "less than or equal to 20"),
    ):
        error = server.error(400, PATH, {"prompt": "a", **body})
        assert error["param"] == param and says in str(error["message"])
    assert asked(server, prompt=OTHER, n=2, best_of=2, suffix=None) == asked(server, prompt=OTHER, n=2)


def test_guesses_can_be_refused(server: Server) -> None:
    """The answers are the same."""
    text = " ".join([OTHER] * 9)
    answers = [asked(server, prompt=text, max_tokens=40, **more) for more in ({}, {"speculate": False})]
    assert answers[0] == answers[1] == asked(server, prompt=text, max_tokens=40, speculate=True)


def test_who_decides_about_guesses(server: Server, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The request decides; otherwise the server's option."""
    template, given = server.model.chat_template, []
    for option in (True, False):
        maker = Maker(server.model, template, 6, option)
        bodies = [{"prompt": "a", **more} for more in ({}, {"speculate": True}, {"speculate": False})]
        given += [completion_jobs(maker, CompletionRequest(**body), Client())[0].speculate for body in bodies]
    assert given == [True, True, False, False, True, False]
    taken: list[object] = []
    monkeypatch.setattr(
        "hybrid.cli.commands.serve._run", lambda router, *_: taken.append(router.default.served.maker.speculate)
    )
    for arguments in ([], ["--spec", "none"], ["--spec", "ngram"]):
        assert run(["serve", str(files["q8_0"]), "--port", "0", "-c", "64", *arguments]) == 0
    assert taken == [True, False, True]
