"""The plug-in for `llm` through llm's Python API: conversations, streams, schemas, tools, embeddings."""

import asyncio
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import llm
import numpy as np
import pytest
from click.testing import CliRunner
from llm.parts import StreamEvent
from llm.plugins import load_plugins, pm
from pydantic import BaseModel, ValidationError
from scripted_chat import CALL, SECOND, WITH_THOUGHTS, Script
from seeing_models import pixels, png, seeing_model

import hybrid
from hybrid import llm_plugin
from hybrid.infer.loading.options import KVTypeName
from hybrid.quant import set_value
from hybrid.quant.ggml.errors import HybridError

pytestmark = pytest.mark.exhaustive

HERE = llm_plugin.here
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Registered as by its entry point, with a user folder and models of the test's own."""
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path / "llm"))
    (tmp_path / "llm").mkdir()
    monkeypatch.setattr("hybrid.llm_plugin.here", list)
    monkeypatch.setattr(sys, "argv", ["llm"])
    load_plugins()
    ours = not pm.has_plugin("hybrid")
    if ours:
        pm.register(llm_plugin, "hybrid")
    yield
    if ours:
        pm.unregister(name="hybrid")


@pytest.fixture(scope="module", autouse=True)
def _unloaded() -> Iterator[None]:
    yield
    llm_plugin.unload()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, gguf: Path) -> str:
    """The id of the bundled model's file."""
    monkeypatch.setattr(sys, "argv", ["llm", "-m", f"hybrid/{gguf}"])
    return f"hybrid/{gguf}"


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory, gguf: Path) -> Path:
    """A model whose template knows tools and thoughts."""
    path = tmp_path_factory.mktemp("thinker") / "thinker.gguf"
    shutil.copyfile(gguf, path)
    set_value(path, "tokenizer.chat_template", WITH_THOUGHTS)
    return path


@pytest.fixture
def thinking(monkeypatch: pytest.MonkeyPatch, thinker: Path) -> llm.Model:
    monkeypatch.setattr(sys, "argv", ["llm", f"--model=hybrid/{thinker}"])
    return llm.get_model(f"hybrid/{thinker}")


def test_names(tmp_path: Path, gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {m.model_id for m in llm.get_models() if m.model_id.startswith("hybrid/")} == {"hybrid/bundled"}
    monkeypatch.chdir(gguf.parent)
    monkeypatch.setattr(sys, "argv", ["llm", "-m", "hybrid/model.gguf"])
    assert llm.get_model("hybrid/model.gguf").model_id == f"hybrid/{gguf}", "it is found again from any folder"
    assert llm.get_async_model("hybrid/model.gguf").model_id == f"hybrid/{gguf}"
    monkeypatch.setattr(sys, "argv", ["llm", "aliases", "set", "small", "hybrid/org/name:Q8_0"])
    assert llm.get_model("hybrid/org/name:Q8_0").model_id == "hybrid/org/name:Q8_0"
    llm.set_alias("small", "hybrid/org/name:Q8_0")
    monkeypatch.setattr(sys, "argv", ["llm", "-m", "small"])
    assert llm.get_model("small").model_id == "hybrid/org/name:Q8_0"
    llm.set_default_model("hybrid/org/other")
    assert llm.get_model().model_id == "hybrid/org/other"


@pytest.mark.slow
def test_the_module_imports_nothing_of_ours() -> None:
    code = "import sys, llm, hybrid.llm_plugin; print(sorted(m for m in sys.modules if m.startswith('hybrid')))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "['hybrid', 'hybrid.llm_plugin']\n"


def test_prompts_are_answers_of_the_library(asked: str, gguf: Path) -> None:
    response = llm.get_model(asked).prompt("Hello", system="Be brief.", max_tokens=12, seed=4, stream=False)
    with hybrid.load(gguf, threads=1) as model:
        expected = model.chat("Be brief.", tokens=12, seed=4).say("Hello")
    assert response.text() == str(expected)
    usage = response.usage()
    assert (usage.input, usage.output) == (expected.timings.prompt_tokens, 12)
    assert response.response_json is not None
    assert response.response_json["finish"] == "length" and response.response_json["seed"] == 4


def test_a_conversation_reads_what_is_new(asked: str) -> None:
    conversation = llm.get_model(asked).conversation()
    first = conversation.prompt("One", max_tokens=10)
    text, loaded = first.text(), [*llm_plugin._loaded.values()]
    second = conversation.prompt("Two", max_tokens=10)
    assert second.text() and text
    details = second.usage().details
    assert details is not None and details["reused_tokens"] >= first.usage().input + 9
    assert [*llm_plugin._loaded.values()] == loaded, "the model stays loaded"


def test_streams(asked: str) -> None:
    response = llm.get_model(asked).prompt("Hello", max_tokens=10, seed=1)
    pieces = list(response)
    assert len(pieces) > 3 and "".join(pieces) == response.text()


def test_async(asked: str) -> None:
    async def both() -> tuple[str, str, "int | None"]:
        model = llm.get_async_model(asked)
        pieces = [piece async for piece in model.prompt("Hello", max_tokens=10, seed=1)]
        response = model.prompt("Hello", max_tokens=10, seed=1)
        return "".join(pieces), await response.text(), (await response.usage()).output

    streamed, whole, n = asyncio.run(both())
    assert streamed == whole == llm.get_model(asked).prompt("Hello", max_tokens=10, seed=1).text() and n == 10


class Digits(BaseModel):
    first: int


def test_schemas(asked: str) -> None:
    model = llm.get_model(asked)
    assert Digits.model_validate_json(model.prompt("Digits", schema=Digits, max_tokens=200, seed=2).text())
    schema = llm.schema_dsl("a bool")
    assert '"a"' in model.prompt("?", schema={**schema, "additionalProperties": False}, max_tokens=100).text()
    assert model.prompt("?", regex="[0-9]{3}").text().isdigit()


def test_options(asked: str) -> None:
    model = llm.get_model(asked)
    with pytest.raises(ValidationError):
        model.prompt("?", temprature=1)
    with pytest.raises(ValidationError):
        model.prompt("?", keys_values="f64")
    with pytest.raises(HybridError, match="top_p = 2"):
        model.prompt("?", top_p=2).text()
    with pytest.raises(HybridError, match="context"):
        model.prompt("word " * 200, context=64).text()
    assert model.prompt("?", context=64, max_tokens=2).text() is not None
    assert {"temperature", "seed", "max_tokens"} <= set(model.Options.model_fields)
    assert all(field.description for field in model.Options.model_fields.values())
    types = get_args(get_args(model.Options.model_fields["keys_values"].annotation)[0])
    assert types == get_args(KVTypeName)


def test_a_model_that_is_not_there() -> None:
    model = llm_plugin.LlmChat("/nowhere/none.gguf")
    with pytest.raises(HybridError, match=r"none\.gguf: no such file or folder"):
        model.prompt("?").text()


def test_tools_and_thoughts(thinking: llm.Model, script: Script) -> None:
    calls: list[tuple[int, bool]] = []

    def add(a: int, b: bool) -> str:
        "Adds."
        calls.append((a, b))
        return "6"

    def look(what: str) -> str:
        "Looks."
        raise LookupError("nowhere")

    script.say(f"So.\n</think>\n\nI add. {CALL}", f"\n</think>\n\n{SECOND}", "Done.\n</think>\n\nIt is 6.")
    chain = thinking.chain("5 and one?", tools=[add, look])
    assert chain.text() == "I add. It is 6." and calls == [(5, True)]
    first, second, last = chain._responses
    assert [(call.name, call.arguments) for call in first.tool_calls()] == [("add", {"a": 5, "b": True})]
    (made,) = first.messages()
    assert [part.to_dict()["type"] for part in made.parts] == ["reasoning", "text", "tool_call"]
    results = [
        part for message in last.prompt.messages for part in message.parts if part.to_dict()["type"] == "tool_result"
    ]
    assert [result.output for result in results[:1]] == [
        "6"
    ] and "nowhere" in f"{results[1].output}{results[1].exception}"
    assert second.usage().details and last.text() == "It is 6."


def test_events(thinking: llm.Model, script: Script) -> None:
    script.say("So.\n</think>\n\nYes.")
    events = list(thinking.prompt("?").stream_events())
    assert all(isinstance(event, StreamEvent) for event in events)
    told = {kind: "".join(event.chunk for event in events if event.type == kind) for kind in ("reasoning", "text")}
    assert told == {"reasoning": "So.", "text": "Yes."}


def test_thoughts_are_switched_off(thinking: llm.Model, script: Script) -> None:
    script.say("Yes.")
    assert thinking.prompt("?", think=False).text() == "Yes."


def test_other_attachments_are_refused(asked: str) -> None:
    with pytest.raises(ValueError, match="does not support attachments"):
        llm.get_model(asked).prompt("?", attachments=[llm.Attachment(type="audio/wav", content=b"x")])


def test_a_model_that_reads_no_pictures(asked: str) -> None:
    picture = llm.Attachment(type="image/png", content=png(pixels(1)))
    with pytest.raises(HybridError, match="reads no pictures: no file with a vision tower"):
        llm.get_model(asked).prompt("?", attachments=[picture]).text()


def test_pictures(data_dir: Path, tmp_path: Path) -> None:
    model, path = llm_plugin.LlmChat(str(seeing_model(data_dir))), tmp_path / "a.png"
    path.write_bytes(png(pixels(1)))
    given = {"max_tokens": 4, "temperature": 0, "context": 256}
    first = model.prompt("What?", attachments=[llm.Attachment(path=str(path))], **given)
    same = model.prompt("What?", attachments=[llm.Attachment(type="image/png", content=path.read_bytes())], **given)
    assert first.text() == same.text()
    used = first.usage().input
    assert used == model.prompt("What?", **given).usage().input + 8
    assert same.usage().details["reused_tokens"] >= used - 1
    llm_plugin.unload()


def test_a_model_without_a_template_goes_on(bundled: Path, tmp_path: Path) -> None:
    shutil.copytree(bundled, tmp_path / "checkpoint")
    config = json.loads((tmp_path / "checkpoint" / "tokenizer_config.json").read_text())
    del config["chat_template"]
    (tmp_path / "checkpoint" / "tokenizer_config.json").write_text(json.dumps(config))
    path = hybrid.to_gguf(tmp_path / "checkpoint", tmp_path / "plain.gguf").output
    text = llm_plugin.LlmChat(str(path)).prompt("A state-space model", max_tokens=8, temperature=0).text()
    with hybrid.load(path) as model:
        assert text == str(model.complete("A state-space model", tokens=8, temperature=0))


def test_embeddings(asked: str, gguf: Path, bert: Path) -> None:
    texts = ["one text", "another"]
    with hybrid.load(gguf, threads=1) as model:
        expected = model.embed(texts)
    assert np.allclose(list(llm.get_embedding_model(asked).embed_multi(texts)), expected)
    encoder = llm_plugin.LlmEmbedding(str(bert))
    assert len(encoder.embed("hello")) > 8
    with pytest.raises(HybridError, match="is an encoder"):
        llm_plugin.LlmChat(str(bert)).prompt("?").text()


@pytest.mark.slow
def test_the_page_of_documentation(
    gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The page's commands, in order, in one folder."""
    from llm.cli import cli  # loads OpenAI's client, which would delay every process that collects tests

    monkeypatch.chdir(tmp_path)
    shutil.copyfile(gguf, tmp_path / "model.gguf")
    monkeypatch.setattr(llm_plugin, "here", HERE)
    text = (ROOT / "docs" / "llm.md").read_text(encoding="utf-8")
    commands = [shlex.split(line)[1:] for line in re.findall(r"^\$ (llm .*)$", text, re.MULTILINE)]
    commands = [words for words in commands if words[0] != "install"]
    assert len(commands) > 8
    for words in commands:
        monkeypatch.setattr(sys, "argv", ["llm", *words])
        done = CliRunner().invoke(cli, words, input="Hello\nexit\n" if words[0] == "chat" else None)
        assert done.exit_code == 0, f"{words}: {done.output} {done.exception}"
        assert done.output or words[0] == "aliases"
        if "regex" in words:
            assert done.stdout.strip() in ("yes", "no") and "Token usage" in done.stderr
        if words[:2] == ["models", "list"]:
            assert f"hybrid/{tmp_path / 'model.gguf'}" in done.output


def test_few_models_stay_loaded(gguf: Path, tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.gguf" for i in range(llm_plugin.KEPT + 1)]
    for path in paths:
        path.symlink_to(gguf)
        llm_plugin.loaded(str(path), {"context": 64})
    assert [key[0] for key in llm_plugin._loaded] == [str(path) for path in paths[1:]]
    model = llm_plugin.loaded(str(paths[-1]), {"context": 128})
    assert model.context == 128 and len(llm_plugin._loaded) == llm_plugin.KEPT, "one of a name"
