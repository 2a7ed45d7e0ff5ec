"""Several models at one address: names, states, memory, texts that come back from disk, and `hybrid ps` and `stop`."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from http_server import WAIT, until

from hybrid.cli.commands.serve import GuessingBeside
from hybrid.cli.main import run
from hybrid.cli.options.server_options import Capacity, Keeping
from hybrid.cli.serve.app import create_app
from hybrid.cli.serve.listening import listen
from hybrid.cli.serve.models.given import GivenModels
from hybrid.cli.serve.models.router import ModelRouter
from hybrid.cli.serve.models.settings_file import ModelTable
from hybrid.cli.serve.opening import ModelSetup
from hybrid.cli.serve.running import Server as Listening
from hybrid.cli.serve.server_settings import ServerSettings
from hybrid.infer import LoadedModel
from hybrid.reporting import SILENT

PROMPT = "A recurrent model keeps a state of fixed size, and an attention layer keeps keys and values. " * 4
ASKED = {"prompt": PROMPT, "max_tokens": 6, "temperature": 0}
TIGHT = 1  # bytes of memory: each model makes room for the next


class Household:
    """A server of several models in a thread."""

    def __init__(self, given: GivenModels, memory: int | None = None) -> None:
        self.told: list[str] = []
        self.router = ModelRouter(
            given.entries(), given.settings, memory=memory, rescan=given.rescan, tell=self.told.append
        )
        self.listener = listen("127.0.0.1", 0, None)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.server = Listening(create_app(self.router), given.settings.bounds)
        self.thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)
        self.http = httpx.Client(base_url=self.url, timeout=WAIT)

    async def _run(self) -> None:
        self.router.begin()
        await self.server.serve(sockets=[self.listener])
        await self.router.close()

    def close(self) -> None:
        self.http.close()
        self.server.should_exit = True
        self.thread.join(WAIT)
        self.router.unload_all()
        self.listener.close()

    def post(self, path: str, **body: Any) -> Any:
        response = self.http.post(path, json=body)
        assert response.status_code == 200, response.text
        return response.json()

    def get(self, path: str) -> Any:
        return self.http.get(path).json()

    def text(self, model: str) -> str:
        text: str = self.post("/v1/completions", model=model, **ASKED)["choices"][0]["text"]
        return text

    def states(self) -> dict[str, str]:
        return {one["id"]: one["state"] for one in self.get("/v1/models")["data"]}


def household(names: list[str], folder: Path | None = None, memory: int | None = None, **more: Any) -> Household:
    setup = ModelSetup(None, GuessingBeside(), Capacity(parallel=2, queue=4), more.pop("keeping", Keeping()))
    setup = replace(setup, loading=replace(setup.loading, n_ctx=512))
    tables = more.pop("tables", ())
    return Household(GivenModels(names, folder, False, tables, setup, ServerSettings(**more), None, SILENT), memory)


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
    assert run(["stop", "smal", "--url", both.url]) == 1
    assert capsys.readouterr().err == "error: model: there is no smal here. Near names: small.\n"
    assert both.post("/models/load", model="small")["success"]
    until(lambda: both.states()["small"] == "loaded")
    assert sum("loaded in" in line for line in both.told) == 3 and "small sleeps" in both.told


def test_models_at_the_same_time(both: Household, alone: dict[str, str]) -> None:
    with ThreadPoolExecutor(4) as threads:
        said = list(threads.map(both.text, ["big", "small"] * 4))
    assert [text.strip() for text in said] == [alone["big"].strip(), alone["small"].strip()] * 4


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
