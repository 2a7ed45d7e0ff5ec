"""A running `hybrid serve`, asked by other commands: its address, its key, its answers."""

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Annotated, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

import typer

from hybrid.quant.ggml.errors import HybridError, UsageError, shown

from .server_options import Address, read_keys

SECONDS = 5.0
MOST_ANSWER = 4 << 20  # bytes
DEFAULT_URL = f"http://{Address().host}:{Address().port}"
_CHECK = "Is it a server of `hybrid serve`?"


@dataclass(frozen=True, eq=False, repr=False)
class RunningServer:
    """The address and the key of a running server."""

    url: Annotated[str, typer.Option(help="Address of a running `hybrid serve`.")] = DEFAULT_URL
    api_key_file: Annotated[Path | None, typer.Option(help="File with a key of the server; its first line counts.")] = (
        None
    )

    @property
    def address(self) -> str:
        """See `server_url`."""
        return server_url(self.url)

    def key(self) -> str | None:
        """The key; None: the server asks for none. UsageError: the file cannot be read, or has no key."""
        keys = read_keys(self.api_key_file)
        return keys[0] if keys else None


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


def answer_of(
    url: str, path: str, key: str | None, body: Mapping[str, Any] | None = None, seconds: float | None = None
) -> Any:
    """The JSON value that the server at `url` answers; None: the answer is no JSON. body: of a POST; None: a GET.

    HybridError: no server answers there, it wants another key, or it refuses the request.
    """
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    data = None if body is None else json.dumps(body).encode()
    opener = build_opener(ProxyHandler({})) if _is_here(url) else build_opener()
    try:
        with opener.open(Request(f"{url}{path}", data, headers), timeout=seconds or SECONDS) as response:
            return json.loads(response.read(MOST_ANSWER))
    except HTTPError as error:
        with error:
            raise _refusal(url, path, key, error) from None
    except (URLError, TimeoutError, OSError, HTTPException) as error:
        why = getattr(error, "reason", error)
        said = "no answer in time" if isinstance(why, TimeoutError) else getattr(why, "strerror", None) or str(why)
        port = urlsplit(url).port
        start = f"hybrid serve MODEL{f' --port {port}' if port is not None else ''}"
        raise HybridError(f"no server answers at {url} ({said}). Start one: `{start}`.") from None
    except ValueError:
        return None


def _refusal(url: str, path: str, key: str | None, error: HTTPError) -> HybridError:
    """What an answer with an error status says."""
    if error.code in (401, 403):
        wants = "does not take this key" if key else "asks for a key"
        return HybridError(f"{url} {wants}. Give a file with its key (--api-key-file).")
    try:
        told = json.loads(error.read(MOST_ANSWER))["error"]["message"]
        return HybridError(shown(str(told), 400))
    except (OSError, HTTPException, ValueError, LookupError, TypeError):
        return HybridError(f"{url}{path}: status {error.code}. {_CHECK}")


def listed(url: str, key: str | None) -> list[Mapping[str, Any]]:
    """The server's models, as GET /v1/models lists them; at least one. HybridError: see `answer_of`."""
    answer = answer_of(url, "/v1/models", key)
    models = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(models, list) or not models or not all(isinstance(one, dict) and "id" in one for one in models):
        raise HybridError(f"{url}/v1/models: expected a list of models, found something else. {_CHECK}")
    return models


def _is_here(url: str) -> bool:
    """Whether a URL names this machine, which no proxy reaches."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
