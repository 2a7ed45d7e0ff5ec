"""`hybrid serve` with clients, in a thread of the tests' process or in a process of its own."""

import asyncio
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

import httpx

from hybrid.cli.serve.app import create_app
from hybrid.cli.serve.jobs import Maker
from hybrid.cli.serve.listening import listen, own_hosts
from hybrid.cli.serve.models.router import ModelRouter
from hybrid.cli.serve.running import Server as Listening
from hybrid.cli.serve.served import Served
from hybrid.cli.serve.server_settings import ServerSettings
from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.job import Job
from hybrid.infer.answers.batch.service import Service

if TYPE_CHECKING:
    import openai  # loading it would cost each process that collects tests a second

WAIT = 240


class Server:
    """Serves a model loaded for 4 sequences: 4 answers at a time, 2 more may wait. A fifth sequence allows embeddings.

    maker    replaces the default; service also, for an encoder; more: fields of `Served` and of `ServerSettings`
    """

    def __init__(
        self, model: LoadedModel, service: Service | None = None, maker: Maker | None = None, **more: object
    ) -> None:
        self.model = model
        self.service = service or Service(model, 4, most_waiting=2, store=more.get("store"))  # type: ignore[arg-type]
        self.listener = listen("127.0.0.1", 0, None)
        own = {name: more.pop(name) for name in ("store", "pooling", "names") if name in more}
        settings = ServerSettings(**{"hosts": own_hosts(self.listener, "127.0.0.1"), **more})  # type: ignore[arg-type]
        maker = maker or Maker(model, model.chat_template, 6)
        self.served = Served(self.service, maker, "tiny", settings, **own)  # type: ignore[arg-type]
        self.router = ModelRouter.of(self.served)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.server = Listening(create_app(self.router), settings.bounds)
        self.thread = threading.Thread(target=lambda: asyncio.run(self.server.serve(sockets=[self.listener])))
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)
        self.http = httpx.Client(base_url=self.url, timeout=WAIT)

    @cached_property
    def openai(self) -> "openai.OpenAI":
        """OpenAI's client, connected to this server."""
        import openai

        return openai.OpenAI(api_key="none", base_url=f"{self.url}/v1", timeout=WAIT, max_retries=0)

    def close(self) -> None:
        self.http.close()
        if "openai" in vars(self):
            self.openai.close()
        self.server.should_exit = True
        self.thread.join(WAIT)
        self.service.close()
        self.listener.close()

    def error(self, status: int, path: str, body: object, **headers: str) -> dict[str, object]:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        response = self.http.post(path, content=content, headers=headers)
        assert response.status_code == status, response.text
        error: dict[str, object] = response.json()["error"]
        assert error["code"] == status and error["type"] and "Traceback" not in response.text
        return error


@contextmanager
def serving(model: LoadedModel, **more: object) -> Iterator[Server]:
    """A server for one test."""
    server = Server(model, **more)
    try:
        yield server
    finally:
        server.close()


@contextmanager
def started(command: Sequence[object], **variables: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a server in a process; yields it and its output until it answers. A failing test shows all output.
    variables: added to the environment."""
    env = {**os.environ, **variables}
    process = subprocess.Popen([*map(str, command)], stderr=subprocess.PIPE, text=True, env=env)
    said = ""
    try:
        assert process.stderr is not None
        for line in process.stderr:
            said += line
            if "/v1, " in line:
                break
        yield process, said
    finally:
        process.kill()
        print(said, process.communicate()[1], sep="")


@contextmanager
def drawing_held(server: Server, n_answers: int = 1, n_tokens: int = 5) -> Iterator[None]:
    """Sample no token within the context once `n_answers` answers have `n_tokens` tokens each."""
    batcher, go = server.service.batcher, threading.Event()
    draw = batcher.step

    def step() -> list[Job]:
        if sum(len(job.result.ids) >= n_tokens for job in server.service.running) >= n_answers:
            go.wait(WAIT)
        return draw()

    batcher.step = step  # type: ignore[method-assign]
    try:
        yield
    finally:
        go.set()
        del batcher.step


def until(happens: Callable[[], object]) -> None:
    """Wait until `happens()` is true."""
    deadline = time.monotonic() + WAIT
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.005)
