"""A server of several models in a thread, for tests."""

import asyncio
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
from http_server import WAIT

from hybrid.cli.options.guess_options import GuessOptions
from hybrid.cli.options.server_options import Capacity, Keeping
from hybrid.cli.serve.app import create_app
from hybrid.cli.serve.listening import listen
from hybrid.cli.serve.models.given import GivenModels
from hybrid.cli.serve.models.router import ModelRouter
from hybrid.cli.serve.opening import ModelSetup
from hybrid.cli.serve.running import Server as Listening
from hybrid.cli.serve.server_settings import ServerSettings
from hybrid.reporting import SILENT

PROMPT = "A recurrent model keeps a state of fixed size, and an attention layer keeps keys and values. " * 4
ASKED = {"prompt": PROMPT, "max_tokens": 6, "temperature": 0}


class Household:
    """A server of several models in a thread. more: options of `ModelRouter`."""

    def __init__(self, given: GivenModels, memory: int | None = None, **more: Any) -> None:
        self.told: list[str] = []
        self.router = ModelRouter(
            given.entries(), given.settings, memory=memory, rescan=given.rescan, tell=self.told.append, **more
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
    """Serves the models NAME=FILE and those of a folder; more: `keeping`, `tables`, `most`, `autoload`, fields of
    `ServerSettings`."""
    setup = ModelSetup(None, GuessOptions(), Capacity(parallel=2, queue=4), more.pop("keeping", Keeping()))
    setup = replace(setup, loading=replace(setup.loading, n_ctx=more.pop("n_ctx", 512)), **more.pop("options", {}))
    tables = more.pop("tables", ())
    routing = {name: more.pop(name) for name in ("most", "autoload") if name in more}
    given = GivenModels(names, folder, False, tables, setup, ServerSettings(**more), None, SILENT)
    return Household(given, memory, **routing)
