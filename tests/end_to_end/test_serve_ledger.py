"""Answers that clients send back as text continue from their own state, whatever their sampled tokens."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chat_script import QUESTIONS as CHAT
from chat_script import Known
from http_server import Server, until

from hybrid.infer import LoadedModel
from hybrid.infer.text.encode import rendered_ids

pytestmark = pytest.mark.exhaustive

SYSTEM = {"role": "system", "content": "You keep what you have read, and you say it in as few words as you can find."}
QUESTIONS = ("What is a state space model?", "And what does it forget?", "Is that always so? Say why.")
# such samples are hardly ever the tokens that an encoder would choose for the text
SAMPLED = {"temperature": 2.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 11}


def ask(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def told(content: str) -> dict[str, str]:
    return {"role": "assistant", "content": content}


@pytest.fixture
def server(files: dict[str, Path]) -> Iterator[Server]:
    with LoadedModel.load(files["q8_0"], n_ctx=1024, n_seq_max=4, checkpoint_budget=64 << 20) as model:
        server = Server(model)
        yield server
        server.close()


def chat(server: Server, messages: list[dict[str, str]], **more: Any) -> Any:
    body = {"messages": messages, **SAMPLED, "max_tokens": 24, **more}
    response = server.http.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def cached(answer: Any) -> int:
    n: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return n


def rendering(server: Server, messages: list[dict[str, str]]) -> str:
    template = server.model.chat_template
    assert template is not None
    return template.render(messages)


@pytest.mark.parametrize("trimmed", [False, True])
def test_a_conversation_that_comes_back_is_not_read_again(trimmed: bool, server: Server) -> None:
    messages, before, canonical = [SYSTEM], None, []
    for question in QUESTIONS:
        messages.append(ask(question))
        answer = chat(server, messages)
        if before is not None:
            # the last sampled token is processed when something follows it
            held = before["usage"]["total_tokens"] - (before["choices"][0]["finish_reason"] == "length")
            assert cached(answer) == held
            text = rendering(server, messages)
            drawn = server.served.maker.ledger.encode(text)
            assert answer["usage"]["prompt_tokens"] == len(drawn)
            canonical.append(rendered_ids(server.model.tokenizer, text)[:held] == drawn[:held])
        content = answer["choices"][0]["message"]["content"]
        messages.append(told(content.strip() if trimmed else content))
        before = answer
    assert not any(canonical), "encoded again, the answers are other tokens"


def test_the_same_bits_as_from_its_tokens_on_a_cold_server(server: Server, files: dict[str, Path]) -> None:
    messages = [SYSTEM, ask(QUESTIONS[0])]
    messages += [told(chat(server, messages)["choices"][0]["message"]["content"]), ask(QUESTIONS[1])]
    ids = server.served.maker.ledger.encode(rendering(server, messages))
    warm = chat(server, messages, logprobs=True)
    assert cached(warm) > 0
    with LoadedModel.load(files["q8_0"], n_ctx=1024, n_seq_max=4) as model:
        cold = Server(model)
        try:
            body = {"prompt": ids, **SAMPLED, "max_tokens": 24, "logprobs": 0}
            answer = cold.http.post("/v1/completions", json=body).json()
        finally:
            cold.close()
    assert cached(answer) == 0 and answer["usage"]["prompt_tokens"] == len(ids) == warm["usage"]["prompt_tokens"]
    choice, same = answer["choices"][0], warm["choices"][0]
    assert choice["text"] == same["message"]["content"]
    assert choice["logprobs"]["token_logprobs"] == [token["logprob"] for token in same["logprobs"]["content"]]


def test_the_same_request_the_same_answer_as_on_a_fresh_server(server: Server, files: dict[str, Path]) -> None:
    """If the request asks for it. Otherwise the sampled tokens are kept, and the usage says so."""
    asked = [ask(QUESTIONS[0])]
    asked += [told(chat(server, asked)["choices"][0]["message"]["content"]), ask(QUESTIONS[1])]
    prompt = "State space models"
    prompt += server.http.post("/v1/completions", json={"prompt": prompt, **SAMPLED}).json()["choices"][0]["text"]

    def both(server: Server, **more: Any) -> list[tuple[Any, int]]:
        body = {"prompt": prompt, **SAMPLED, "max_tokens": 24, **more}
        answers = chat(server, asked, **more), server.http.post("/v1/completions", json=body).json()
        texts = [answer["choices"][0].get("message", answer["choices"][0]) for answer in answers]
        kept = [text.get("content", text.get("text")) for text in texts]
        return [(text, answer["usage"]["cache"]["drawn"]) for text, answer in zip(kept, answers, strict=True)]

    with LoadedModel.load(files["q8_0"], n_ctx=1024, n_seq_max=4) as model:
        cold = Server(model)
        try:
            fresh = both(cold)
        finally:
            cold.close()
    assert [drawn for _, drawn in fresh] == [0, 0]
    assert both(server, cache_prompt=False) == fresh == both(server, cache={"drawn": False})
    warm = both(server)
    assert all(drawn > 0 for _, drawn in warm) and warm[0][0] != fresh[0][0], "other tokens, other words"


def test_a_completion_goes_on(server: Server) -> None:
    asked: dict[str, Any] = {"prompt": "State space models", **SAMPLED, "temperature": 4.0, "max_tokens": 20}
    first = server.http.post("/v1/completions", json=asked).json()
    text = asked["prompt"] + first["choices"][0]["text"]
    drawn = server.served.maker.ledger.encode(text)
    assert server.model.tokenizer.encode(text)[: len(drawn) - 1] != drawn[:-1], "encoded again, it is other tokens"
    more = server.http.post("/v1/completions", json={**asked, "prompt": text}).json()
    assert more["usage"]["prompt_tokens"] == first["usage"]["total_tokens"] == cached(more) + 1
    # two halves equal the whole
    whole = server.http.post("/v1/completions", json={**asked, "max_tokens": 40, "temperature": 0}).json()
    half = server.http.post("/v1/completions", json={**asked, "max_tokens": 20, "temperature": 0}).json()
    text = half["choices"][0]["text"]
    rest = server.http.post("/v1/completions", json={**asked, "prompt": asked["prompt"] + text, "temperature": 0})
    assert text + rest.json()["choices"][0]["text"] == whole["choices"][0]["text"]


def test_an_answer_whose_client_left_is_known_as_far_as_it_was_drawn(server: Server) -> None:
    messages = [SYSTEM, ask(QUESTIONS[0])]
    body = {"messages": messages, **SAMPLED, "max_tokens": 800, "ignore_eos": True, "stream": True}
    with server.http.stream("POST", "/v1/chat/completions", json=body) as response:
        lines = response.iter_lines()
        for _ in range(30):
            next(lines)
    ledger = server.served.maker.ledger
    until(lambda: len(ledger))
    ((_, _, said, _),) = ledger.entries()["answers"]
    messages += [told(said), ask("Go on.")]
    known = ledger.find(rendering(server, messages)).known
    assert len(known) > len(rendered_ids(server.model.tokenizer, rendering(server, messages[:2]))) + 10
    assert cached(chat(server, messages)) >= len(known) - 1


def test_an_edit_of_the_last_message_costs_its_own_tokens(server: Server) -> None:
    """A complete conversation from elsewhere: reading it sets checkpoints at the ends of its messages."""
    said = [
        "It is a recurrence with a state of a fixed size, which is read and written once for each token.",
        "It forgets what the state has no room for.",
    ]
    messages = [SYSTEM, ask(QUESTIONS[0]), told(said[0]), ask(QUESTIONS[1]), told(said[1])]
    whole = chat(server, [*messages, ask(QUESTIONS[2])])
    assert cached(whole) == 0
    edited = chat(server, [*messages, ask("Which of them is faster, then?")])
    tok, text = server.model.tokenizer, rendering(server, messages).removesuffix("<|bom|><|assistant|>")
    assert cached(edited) == len(rendered_ids(tok, text))
    other = chat(server, [SYSTEM, ask("Something else.")])
    assert cached(other) == len(rendered_ids(tok, rendering(server, [SYSTEM]).removesuffix("<|bom|><|assistant|>")))


class Stateless:
    """A client that keeps messages only, and compares the processed tokens of its requests with the minimum."""

    def __init__(self, server: Server) -> None:
        self.server, self.known = server, Known()
        self.steps: list[tuple[str, int, int]] = []

    def ask(self, name: str, messages: list[dict[str, str]], question: str, seed: int = 11) -> list[dict[str, str]]:
        """Ask a question; return the conversation with the answer."""
        messages = [*messages, ask(question)]
        prompt = self.server.served.maker.ledger.encode(rendering(self.server, messages))
        answer = chat(self.server, messages, seed=seed)
        least, processed = self.known.least(prompt), answer["usage"]["prompt_tokens"] - cached(answer)
        self.steps.append((name, least, processed))
        choice = answer["choices"][0]
        messages = [*messages, told(choice["message"]["content"])]
        drawn = self.server.served.maker.ledger.find(rendering(self.server, [*messages, ask("?")])).known
        assert drawn[: len(prompt)] == prompt and len(drawn) == answer["usage"]["total_tokens"]
        self.known.add(prompt, drawn[len(prompt) :], complete=choice["finish_reason"] != "length")
        return messages


def test_a_scripted_chat_over_http_processes_hardly_more_than_it_must(server: Server) -> None:
    """The script of benchmarks/chat_script.py, for a client that sends all messages every time."""
    client = Stateless(server)
    turns = [[SYSTEM]]
    for i, question in enumerate(CHAT):
        turns.append(client.ask(f"turn {i + 1}", turns[-1], question))
    client.ask("regenerate", turns[-2], CHAT[-1], seed=12)
    end = client.ask("undo, and another question", turns[-2], "Goodbye, then.")
    edited = client.ask("edit of turn 3", turns[2], "Which of them is faster?")
    end = client.ask("back to the end", end, "Still there?")
    client.ask("fork at turn 6", turns[6], "Why not?")
    client.ask("the edited branch", edited, "Go on.")
    client.ask("edit of the last message", edited, "Go on, please.")
    least, processed = (sum(step[i] for step in client.steps) for i in (1, 2))
    print(least, processed, *client.steps, sep="\n")
    assert processed <= 1.1 * least, "\n".join(map(str, client.steps))
    assert {name: cost for name, _, cost in client.steps}["regenerate"] == 0
