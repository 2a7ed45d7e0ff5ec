"""Several models at one address: names, states, memory, texts that come back from disk, and `hybrid ps` and `stop`."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from http_server import until
from random_rerankers import encoder
from several_models import ASKED, PROMPT, Household, household

from hybrid.cli.main import run
from hybrid.cli.options.server_options import Keeping
from hybrid.cli.serve.models.settings_file import ModelTable
from hybrid.infer import LoadedModel

TIGHT = 1  # bytes of memory: each model makes room for the next


@pytest.fixture(scope="module")
def alone(files: dict[str, Path], small: dict[str, Path]) -> dict[str, str]:
    """What each model says to ASKED by itself."""
    texts = {}
    for name, path in (("big", files["q8_0"]), ("small", small["q8_0"])):
        with LoadedModel.load(path, n_ctx=512) as model:
            seq, ids = model.sequence(), list[int]()
            logits = seq.prefill(model.tokenizer.encode(PROMPT))
            for _ in range(6):
                ids.append(int(logits.argmax()))
                logits = seq.decode(ids[-1])
            texts[name] = model.tokenizer.decode(ids)
    return texts


@pytest.fixture
def named(files: dict[str, Path], small: dict[str, Path]) -> list[str]:
    return [f"big={files['q8_0']}", f"small={small['q8_0']}"]


@pytest.fixture
def both(named: list[str]) -> Iterator[Household]:
    server = household(named)
    yield server
    server.close()


def test_a_request_chooses(both: Household, alone: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert both.states() == {"big": "asleep", "small": "asleep"}
    assert both.get("/health") == {"status": "ok"}
    answer = both.post("/v1/completions", model="small", **ASKED)
    assert answer["model"] == "small" and answer["choices"][0]["text"].strip() == alone["small"].strip()
    assert both.states() == {"big": "asleep", "small": "loaded"}
    assert both.text("").strip() == alone["big"].strip()  # no name: the first one
    assert both.text("small:latest").strip() == alone["small"].strip()
    for path, error in (
        ("/v1/completions", lambda body: body["error"]),
        ("/v1/messages", lambda body: body["error"]),
        ("/api/generate", lambda body: {"message": body["error"]}),
    ):
        asked = {"prompt": "a", "messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
        refused = both.http.post(path, json={"model": "smal", **asked})
        assert refused.status_code == 404
        assert error(refused.json())["message"] == "model: there is no smal here. Near names: small."
    metrics = both.http.get("/metrics").text
    assert 'llamacpp:n_decode_total{model="big"} ' in metrics and "hybrid:models_loaded 2" in metrics
    assert metrics.count("# TYPE llamacpp:n_decode_total") == 1
    assert [one["name"] for one in both.get("/api/tags")["models"]] == ["big:latest", "small:latest"]
    assert both.get("/props?model=small")["model_alias"] == "small" and both.get("/props")["model_alias"] == "big"
    assert run(["stop", "small", "--url", both.url]) == 0
    assert both.states() == {"big": "loaded", "small": "asleep"}
    assert [one["name"] for one in both.get("/api/ps")["models"]] == ["big:latest"]
    capsys.readouterr()
    assert run(["ps", "--url", both.url]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["NAME", "STATE", "FILE", "MEMORY", "CONTEXT", "REQUESTS"]
    assert lines[1].split()[:2] == ["big", "loaded"] and lines[2].split()[:2] == ["small", "asleep"]
    assert run(["ps", "--url", both.url, "--json"]) == 0
    assert [one["id"] for one in json.loads(capsys.readouterr().out)] == ["big", "small"]
    assert run(["stop", "smal", "--url", both.url]) == 1
    assert capsys.readouterr().err == "error: model: there is no smal here. Near names: small.\n"
    assert both.post("/models/load", model="small")["success"]
    until(lambda: both.states()["small"] == "loaded")
    assert sum("loaded in" in line for line in both.told) == 3 and "small sleeps" in both.told


def test_questions_about_a_model_that_sleeps(both: Household) -> None:
    """They load nothing. Its costs are unknown; a route that needs the model refuses, if the query says so."""
    body = {"model": "small", "conversations": [{"messages": [{"role": "user", "content": "a"}]}] * 2}
    assert both.post("/page/costs", **body)["costs"] == [{"unknown": "asleep", "on_disk": False}] * 2
    for path in ("/props", "/slots", "/v1/conversations"):
        for no in ("false", "0"):
            refused = both.http.get(f"{path}?model=small&autoload={no}")
            assert refused.status_code == 400
            assert refused.json()["error"]["message"] == "small is asleep, and this request loads no model"
    refused = both.http.post("/v1/completions?autoload=false", json={"model": "small", **ASKED})
    assert refused.status_code == 400 and both.states() == {"big": "asleep", "small": "asleep"}
    assert both.http.post("/page/costs", json={**body, "model": "smal"}).status_code == 404
    assert both.get("/slots?model=small&autoload=true")[0]["id"] == 0
    used = both.router.find("small").last_used
    assert both.get("/props?model=small")["model_alias"] == "small"
    assert both.router.find("small").last_used == used, "a GET does not keep a model awake"
    assert both.text("small")
    until(lambda: both.router.find("small").last_used > used)  # the request ends after its answer has gone out
    assert both.get("/slots?model=small&autoload=false")[0]["id"] == 0
    told = {one["id"]: one for one in both.get("/v1/models")["data"]}
    assert told["small"]["chat_template"] is True and "chat_template" not in told["big"]


def test_models_at_the_same_time(both: Household, alone: dict[str, str]) -> None:
    with ThreadPoolExecutor(4) as threads:
        said = list(threads.map(both.text, ["big", "small"] * 4))
    assert [text.strip() for text in said] == [alone["big"].strip(), alone["small"].strip()] * 4


def test_props_of_the_server_and_of_a_sleeping_model(named: list[str]) -> None:
    server = household(named, most=1, autoload=False)
    try:
        props = server.get("/props")
        router = {"role": "router", "max_instances": 1, "models_autoload": False}
        assert {**props, **router, "model_alias": "big", "is_sleeping": True} == props
        assert server.http.get("/props?model=small").status_code == 400, "it was never loaded"
        assert server.http.get("/props?model=smal").status_code == 404
        server.post("/models/load", model="small")
        until(lambda: server.states()["small"] == "loaded")
        awake = server.get("/props?model=small")
        assert awake["chat_template"] and not awake["is_sleeping"] and "role" not in awake
        server.post("/models/unload", model="small")
        assert server.get("/props?model=small") == {**awake, "is_sleeping": True}
        assert server.states() == {"big": "asleep", "small": "asleep"}, "asking has loaded no model"
    finally:
        server.close()


def test_props_where_the_first_model_is_an_encoder(named: list[str], tmp_path: Path, data_dir: Path) -> None:
    server = household([f"ranks={encoder(tmp_path, data_dir, 'LABEL_0')}", *named])
    try:
        told = server.get("/props")
        assert (told["role"], told["max_instances"], told["model_alias"]) == ("router", 0, "ranks")
        assert told["models_autoload"] and told["is_sleeping"] and set(server.states().values()) == {"asleep"}
        assert server.http.get("/props?model=ranks").status_code == 400
    finally:
        server.close()


def test_texts_come_back_from_disk(named: list[str], tmp_path: Path) -> None:
    """A model that made room reads nothing again when it comes back; its answer has the same bits."""
    server = household(named, memory=TIGHT, keeping=Keeping(state_dir=tmp_path))
    try:
        first = {}
        for name in ("big", "small", "big", "small"):
            answer = server.post("/v1/completions", model=name, **ASKED)
            usage = answer["usage"]
            text, read = (
                answer["choices"][0]["text"],
                usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"],
            )
            if name in first:
                assert text == first[name] and read == 0, (name, usage)
            first[name] = text
        assert server.states() == {"big": "asleep", "small": "loaded"}
        kept = [path for path in tmp_path.iterdir() if path.name.startswith("cache-")]
        assert len(kept) == 2
    finally:
        server.close()


def test_a_folder_with_a_broken_file(files: dict[str, Path], small: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "good.gguf").symlink_to(small["q8_0"])
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(100))
    table = ModelTable("good", None, ("claude-*",), True, None, {"n-predict": 3}, "x.toml [good]")
    server = household([], tmp_path, tables=(table,))
    try:
        until(lambda: server.states() == {"broken": "failed", "good": "loaded"})  # the pinned one, at the start
        refused = server.http.post("/v1/completions", json={"model": "broken", "prompt": "a"})
        assert refused.status_code == 400
        message = refused.json()["error"]["message"]
        assert message.startswith("broken does not load: broken.gguf") and str(tmp_path) not in message
        answer = server.post("/v1/completions", model="claude-sonnet-4-5", prompt="a", temperature=0, ignore_eos=True)
        assert answer["model"] == "good" and answer["usage"]["completion_tokens"] == 3
        (tmp_path / "later.gguf").symlink_to(files["q8_0"])
        assert server.text("later")
        assert server.states() == {"broken": "failed", "good": "loaded", "later": "loaded"}
    finally:
        server.close()


def test_what_is_refused(small: dict[str, Path], tmp_path: Path, refused: Callable[..., str]) -> None:
    model, settings = small["q8_0"], tmp_path / "m.toml"
    settings.write_text(f'[one]\nmodel = "{model}"\nctxx = 5\n')
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / model.name).symlink_to(model)
    for arguments, says in (
        ((model, tmp_path / "other" / model.name), f"are both named {model.stem}. Name one of them: NAME="),
        ((model, tmp_path / "none.gguf"), "none.gguf: no such file or folder"),
        (("--models-dir", tmp_path / "none"), "none cannot be read: No such file or directory"),
        (("--models-file", tmp_path / "none.toml"), "none.toml"),
        (("--models-file", settings), "m.toml [one]: ctxx is not known. Did you mean ctx?"),
        ((model, f"b={model}", "--alias", "c"), "--alias is about one model, and several are served"),
        ((model, f"b={model}", "--lora", model), "--lora is about one model"),
        ((model, "--memory", "much"), "--memory much: expected a size"),
        ((model, "--idle", "soon"), "--idle soon: expected a time like 90s, 10m or 2h"),
    ):
        assert says in refused("serve", *arguments, "--port", 0, code=2), arguments
