"""Asks a running server for its model, for `hybrid launch`."""

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from hybrid.quant.ggml.errors import HybridError, UsageError, shown

SECONDS = 5.0
MOST_ANSWER = 1 << 20  # bytes
NO_KEY = "none"  # clients insist on a key; a server without keys takes any


@dataclass(frozen=True)
class FoundServer:
    """A model of a running server.

    url      of the server, without a path
    context  tokens; None: the server does not say
    key      None: the server asks for none
    sees     whether the model takes pictures
    """

    url: str
    model: str
    context: int | None = None
    key: str | None = field(default=None, repr=False)
    sees: bool = False

    @property
    def openai(self) -> str:
        """The base URL of OpenAI's API."""
        return f"{self.url}/v1"

    @property
    def token(self) -> str:
        """The key, or a word in its place."""
        return self.key or NO_KEY


def server_url(text: str) -> str:
    """The URL of a server as its clients' settings need it: without a path. UsageError: it is not an http URL."""
    given = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(given)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_url = False
    if not is_url or parts.query or parts.fragment or parts.username or parts.path.rstrip("/") not in ("", "/v1"):
        raise UsageError(f"--url {shown(text)}: expected the address of a server, for example http://127.0.0.1:8080.")
    return f"{parts.scheme}://{parts.netloc}"


def found_server(url: str, model: str | None, key: str | None) -> FoundServer:
    """The model of the server at `url`. model: its name; None: the first in the server's list.

    HybridError: no server answers there, it wants another key, or it has no such model.
    """
    models = _models(url, key)
    names = [str(one.get("id")) for one in models]
    if model is not None and model not in names:
        raise HybridError(f"{url} has no model {shown(model)}. It has: {', '.join(map(shown, names))}.")
    chosen = models[0 if model is None else names.index(model)]
    if "embedding" in chosen.get("capabilities", ()) and "completion" not in chosen["capabilities"]:
        raise HybridError(f"{shown(chosen['id'])} makes embeddings only. Serve a model that answers.")
    meta = chosen.get("meta")
    context = meta.get("n_ctx") if isinstance(meta, dict) else None
    inputs = chosen.get("architecture")
    sees = isinstance(inputs, dict) and "image" in inputs.get("input_modalities", ())
    return FoundServer(url, str(chosen["id"]), context if isinstance(context, int) else None, key, sees)


def _models(url: str, key: str | None) -> list[Mapping[str, Any]]:
    """The server's list of models."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    opener = build_opener(ProxyHandler({})) if _is_here(url) else build_opener()
    try:
        with opener.open(Request(f"{url}/v1/models", headers=headers), timeout=SECONDS) as response:
            answer = json.loads(response.read(MOST_ANSWER))
    except HTTPError as error:
        error.close()
        if error.code in (401, 403):
            wants = "does not take this key" if key else "asks for a key"
            raise HybridError(f"{url} {wants}. Give a file with its key (--api-key-file).") from None
        raise HybridError(f"{url}/v1/models: status {error.code}, expected a list of models. {_CHECK}") from None
    except (URLError, TimeoutError, OSError, HTTPException) as error:
        why = getattr(error, "reason", error)
        said = "no answer in time" if isinstance(why, TimeoutError) else getattr(why, "strerror", None) or str(why)
        port = urlsplit(url).port
        start = f"hybrid serve MODEL{f' --port {port}' if port is not None else ''}"
        raise HybridError(f"no server answers at {url} ({shown(said)}). Start one: `{start}`.") from None
    except ValueError:
        answer = None
    models = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(models, list) or not models or not all(isinstance(one, dict) and "id" in one for one in models):
        raise HybridError(f"{url}/v1/models: expected a list of models, found something else. {_CHECK}")
    return models


_CHECK = "Is it a server of `hybrid serve`?"


def _is_here(url: str) -> bool:
    """Whether a URL names this machine, which no proxy reaches."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
