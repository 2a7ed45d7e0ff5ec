"""A conversation of 8 turns with 3 pictures over HTTP, with edits and a branch: each picture is encoded once, and only
new tokens are read."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from http_server import Server
from seeing_models import pixels, png, seeing_model, tower_of

from hybrid.cli.serve.client import Client
from hybrid.cli.serve.conversations import chat_of
from hybrid.cli.serve.jobs import Maker
from hybrid.cli.serve.openai.chat import ChatRequest
from hybrid.cli.serve.pictures.sight import Sight
from hybrid.infer import LoadedModel
from hybrid.infer.answers.asking.eyes import Eyes
from hybrid.infer.memory.prefix_tree import common_beginning

pytestmark = pytest.mark.exhaustive

N_ANSWER = 20


class Talk:
    """One client, which sends the whole conversation with each question.

    read, least  tokens read in each turn; tokens that no earlier prompt or answer begins with
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.read, self.least = list[int](), list[int]()
        self._known = list[list[int]]()

    def ids(self, messages: list[Any]) -> list[int]:
        """The tokens of a prompt; nothing is read for it."""
        body = ChatRequest.model_validate({"messages": messages})
        return chat_of(self.server.served.maker, body, Client()).peek()

    def ask(self, messages: list[Any]) -> list[Any]:
        """The conversation with the answer."""
        body = {"messages": messages, "max_tokens": N_ANSWER, "temperature": 0, "ignore_eos": True}
        response = self.server.http.post("/v1/chat/completions", json=body)
        assert response.status_code == 200, response.text
        answer = response.json()
        usage, text = answer["usage"], answer["choices"][0]["message"]["content"]
        ids = self.ids(messages)
        assert usage["prompt_tokens"] == len(ids) and usage["completion_tokens"] == N_ANSWER
        assert usage["cache"]["reused"] + usage["cache"]["processed"] == len(ids)
        self.read.append(usage["cache"]["processed"])
        known = max((common_beginning(ids, text) for text in self._known), default=0)
        self.least.append(len(ids) - min(known, len(ids) - 1))
        answered = [*messages, {"role": "assistant", "content": text}]
        # the last sampled token was never read
        whole = self.ids([*answered, user("Go on.")])[: len(ids) + N_ANSWER - 1]
        assert whole[: len(ids)] == ids
        self._known.append(whole)
        return answered


def user(*parts: str | bytes) -> dict[str, Any]:
    def part(given: str | bytes) -> dict[str, Any]:
        if isinstance(given, str):
            return {"type": "text", "text": given}
        url = f"data:image/png;base64,{base64.b64encode(given).decode()}"
        return {"type": "image_url", "image_url": {"url": url}}

    return {"role": "user", "content": [part(given) for given in parts]}


@pytest.fixture(scope="module")
def served(data_dir: Path) -> Iterator[tuple[Server, Eyes]]:
    path = seeing_model(data_dir)
    with LoadedModel.load(path, n_ctx=2048, n_seq_max=5, checkpoint_budget=64 << 20) as model:
        eyes = Eyes.open(tower_of(path), model)
        server = Server(model, maker=Maker(model, model.chat_template, 6, sight=Sight(eyes)))
        yield server, eyes
        server.close()
        eyes.close()


def test_a_talk_about_three_pictures(served: tuple[Server, Eyes]) -> None:
    server, eyes = served
    talk = Talk(server)
    one, two, three = (png(pixels(seed, 108, 126)) for seed in (7, 8, 9))  # 42 tokens each
    begun = talk.ask([user(one, "What does this picture show, and what is unusual about it?")])
    after_two = talk.ask([*begun, user("Tell me more about its upper left corner, please.")])
    after_three = talk.ask([*after_two, user("Compare it with this one: ", two, " Which is brighter?")])
    # turn 4: the question of turn 3 in other words
    edited = talk.ask([*after_two, user("Compare it with this one: ", two, " Which of them has more colours?")])
    assert talk.read[-1] < 42, "the picture before the words is not read again"
    after_five = talk.ask([*edited, user("And here is a last one.", three)])
    after_six = talk.ask([*after_five, user("Which of all of them would you put on a wall?")])
    # turn 7: a branch from turn 3, with a picture that another branch has also
    branch = talk.ask([*after_three, user("What about this?", three)])
    # turn 8: back on the first branch, with a picture that was sent before
    talk.ask([*after_six, user("Look at the first again: ", one, " Why not that one?")])
    assert len(branch) == 8 and len(talk.read) == 8
    assert eyes.n_encoded == 3, "each picture once"
    metrics = server.http.get("/metrics").text
    assert "\nhybrid:pictures_total 3\n" in metrics and f"\nhybrid:picture_bytes {eyes.nbytes}\n" in metrics
    print(f"read {talk.read}, least {talk.least}")
    assert sum(talk.read) <= 1.1 * sum(talk.least), (talk.read, talk.least)
    listed = server.http.get("/v1/conversations").json()["data"]
    assert any("<__media__>" in entry["beginning"] for entry in listed), listed


def test_the_reason_names_another_picture(served: tuple[Server, Eyes]) -> None:
    server, _ = served
    talk = Talk(server)
    talk.ask([user("Here is something: ", png(pixels(20, 108, 126)), " What is it?")])
    body = {"messages": [user("Here is something: ", png(pixels(21, 108, 126)), " What is it?")], "max_tokens": 2}
    usage = server.http.post("/v1/chat/completions", json=body).json()["usage"]
    assert "another picture" in usage["cache"]["reason"], usage
