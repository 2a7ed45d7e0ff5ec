"""`hybrid serve` with a model that sees, and requests with pictures."""

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from http_server import Server
from seeing_models import pixels, png

from hybrid.cli.serve.jobs import Maker
from hybrid.cli.serve.pictures.sight import Sight
from hybrid.infer import LoadedModel
from hybrid.infer.answers.asking.eyes import Eyes

N_PICTURE = 12  # tokens of a file of `picture`


def picture(seed: int, width: int = 54, height: int = 72) -> bytes:
    return png(pixels(seed, height, width))


def data_url(data: bytes, declared: str = "image/png") -> str:
    return f"data:{declared};base64,{base64.b64encode(data).decode()}"


FIRST, SECOND = picture(0), picture(1)
TEXT = {"type": "text", "text": "What is this?"}


class Seeing(Server):
    """A server with eyes of its own. lines: of its log, as JSON."""

    def __init__(self, model: LoadedModel, tower: Path, sight: dict[str, Any] | None = None, **more: Any) -> None:
        self.eyes = Eyes.open(tower, model, **(sight or {}).pop("eyes", {}))
        maker = Maker(model, model.chat_template, 6, sight=Sight(self.eyes, **(sight or {})))
        super().__init__(model, maker=maker, **more)

    def close(self) -> None:
        super().close()
        self.eyes.close()

    def ask(self, messages: list[Any], n: int = 6, **more: Any) -> dict[str, Any]:
        body = {"messages": messages, "max_tokens": n, "temperature": 0, **more}
        response = self.http.post("/v1/chat/completions", json=body)
        assert response.status_code == 200, response.text
        value: dict[str, Any] = response.json()
        return value


def image(data: bytes = FIRST) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": data_url(data)}}


@contextmanager
def tower_held(eyes: Eyes) -> Iterator[threading.Event]:
    """Within the context the tower reads no picture. The event: it was asked to."""
    begun, go, see = threading.Event(), threading.Event(), eyes.tower.see

    def held(*given: Any, **named: Any) -> Any:
        begun.set()
        while not go.wait(0.01):
            if (stop := named["stop"]) is not None:
                stop.check()
        return see(*given, **named)

    eyes.tower.see = held  # type: ignore[method-assign]
    try:
        yield begun
    finally:
        go.set()


def user(*parts: dict[str, Any] | str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": p} if isinstance(p, str) else p for p in parts]}


def text_of(answer: dict[str, Any]) -> str:
    text: str = answer["choices"][0]["message"]["content"]
    assert text
    return text
