"""Requests to ollama's API of a server, and the greedy answer that they should get."""

import json
from typing import Any

from http_server import Server

TALK: list[Any] = [
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi."},
    {"role": "user", "content": "State space models"},
]
GREEDY: dict[str, Any] = {"temperature": 0, "num_predict": 12}


def asked(server: Server, path: str, **body: Any) -> Any:
    response = server.http.post(path, json={"stream": False, **body})
    assert response.status_code == 200, response.text
    return response.json()


def lines(server: Server, path: str, **body: Any) -> list[Any]:
    response = server.http.post(path, json=body)
    assert response.headers["content-type"].startswith("application/x-ndjson")
    return [json.loads(line) for line in response.text.splitlines()]


def refused(server: Server, status: int, path: str, method: str = "POST", **body: Any) -> str:
    """The text of an error in ollama's shape."""
    response = server.http.request(method, path, json=body)
    assert response.status_code == status, response.text
    (text,) = response.json().values()
    assert list(response.json()) == ["error"] and isinstance(text, str)
    return text


def wanted(server: Server, messages: list[Any]) -> str:
    """The answer of OpenAI's route to the same conversation."""
    body = {"messages": messages, "max_tokens": 12, "temperature": 0}
    text: str = server.http.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
    assert text
    return text
