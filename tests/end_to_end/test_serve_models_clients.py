"""Other people's clients, unmodified, that choose between two models of one server."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from http_server import WAIT
from several_models import Household, household

pytestmark = pytest.mark.exhaustive

NAMES = ("big", "small")
HELLO: list[Any] = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def both(files: dict[str, Path], small: dict[str, Path]) -> Iterator[Household]:
    server = household([f"big={files['q8_0']}", f"small={small['q8_0']}"])
    yield server
    server.close()


@pytest.fixture(scope="module")
def texts(both: Household) -> dict[str, str]:
    """The models' greedy answers to HELLO, which differ."""
    asked = {"messages": HELLO, "max_tokens": 8, "temperature": 0}
    found = {}
    for name in NAMES:
        answer = both.post("/v1/chat/completions", model=name, **asked)
        assert answer["model"] == name
        found[name] = answer["choices"][0]["message"]["content"]
    assert found["big"] != found["small"]
    return found


def test_openais_client(both: Household, texts: dict[str, str]) -> None:
    import openai

    with openai.OpenAI(api_key="none", base_url=f"{both.url}/v1", max_retries=0) as client:
        assert [model.id for model in client.models.list()] == [*NAMES]
        for name in (*NAMES, "big"):
            assert client.models.retrieve(name).id == name
            asked: dict[str, Any] = {"model": name, "messages": HELLO, "max_tokens": 8, "temperature": 0}
            answer = client.chat.completions.create(**asked)
            assert (answer.model, answer.choices[0].message.content) == (name, texts[name])
            parts = list(client.chat.completions.create(**asked, stream=True))
            assert {part.model for part in parts} == {name}
            assert "".join(part.choices[0].delta.content or "" for part in parts if part.choices) == texts[name]
            response = client.responses.create(model=name, input=HELLO, max_output_tokens=8, temperature=0)
            assert (response.model, response.output_text) == (name, texts[name])
            assert client.responses.retrieve(response.id).model == name
            said: dict[str, Any] = {"model": name, "instructions": "Be brief.", "input": HELLO}
            counted = client.responses.input_tokens.count(**said).input_tokens
            told = client.responses.create(**said, max_output_tokens=1).usage
            assert told is not None and told.input_tokens == counted
            more = client.responses.input_tokens.count(
                model=name, input="And you?", previous_response_id=response.id
            ).input_tokens
            assert more > counted, "with the responses before"
            assert client.responses.input_tokens.count(model=name, input="word " * 600).input_tokens > 600
        with pytest.raises(openai.NotFoundError, match="there is no huge here") as missing:
            client.chat.completions.create(model="huge", messages=HELLO)
        assert missing.value.param == "model"
        with pytest.raises(openai.NotFoundError, match="there is no huge here"):
            client.models.retrieve("huge")


@pytest.mark.matrix
def test_langchain(both: Household, texts: dict[str, str]) -> None:
    from langchain_core.messages import HumanMessage
    from langchain_openai import ChatOpenAI

    talk = [HumanMessage("Hello")]
    common: dict[str, Any] = {"base_url": f"{both.url}/v1", "api_key": "none", "max_retries": 0}
    chats = {name: ChatOpenAI(**common, model=name, temperature=0, max_tokens=8) for name in NAMES}
    for name, chat in (*chats.items(), ("big", chats["big"])):
        answer = chat.invoke(talk)
        assert answer.content == texts[name] and answer.response_metadata["model_name"] == name
        assert "".join(str(part.content) for part in chat.stream(talk)) == texts[name]
        assert [each.content for each in chat.batch([talk] * 3)] == [texts[name]] * 3
    # one chat object whose calls choose the model
    assert [chats["big"].bind(model=name).invoke(talk).content for name in NAMES] == [texts[name] for name in NAMES]


@pytest.mark.matrix
def test_llm(both: Household, texts: dict[str, str], tmp_path: Path) -> None:
    """Simon Willison's `llm`, in processes of its own: both models in its file of servers."""
    models = [f"- model_id: our-{name}\n  model_name: {name}\n  api_base: {both.url}/v1\n" for name in NAMES]
    (tmp_path / "extra-openai-models.yaml").write_text("".join(models))
    env = {**os.environ, "LLM_USER_PATH": str(tmp_path)}
    for name in NAMES:
        command = [sys.executable, "-m", "llm", "-m", f"our-{name}", "--key", "none", "--no-log"]
        command += ["-o", "temperature", "0", "-o", "max_tokens", "8", "Hello"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=WAIT)
        assert done.returncode == 0, done.stderr
        assert done.stdout.rstrip("\n") == texts[name].rstrip("\n")
