"""Requests to a hub, through huggingface_hub's session, which handles HF_ENDPOINT, HF_TOKEN, proxies and timeouts.

Every failure is a `HybridError` of one line.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from hybrid.quant.ggml.errors import HybridError, Remedy, UsageError, shown

from . import folders
from .names import MAIN
from .nearby import near
from .repository import Listing, from_hub

MOST_ANSWER = 64 << 20  # bytes of a list of files
LIST_SECONDS = 30  # time limit: a hub looks up the hashes of all files


class TransientError(HybridError):
    """A failure that a retry may mend: no answer, a lost connection, an error of the server."""


def endpoint() -> str:
    from huggingface_hub import constants

    return str(constants.ENDPOINT)


def page(repository: str) -> str:
    return f"{endpoint()}/{repository}"


def listing(repository: str, revision: str = MAIN) -> Listing:
    """The contents of a repository now."""
    from huggingface_hub import constants
    from huggingface_hub.utils import build_hf_headers, get_session

    url = f"{endpoint()}/api/models/{repository}/revision/{quote(revision, safe='')}"
    with said(repository, revision):
        patience = max(LIST_SECONDS, constants.HF_HUB_ETAG_TIMEOUT)
        response = get_session().get(url, params={"blobs": "true"}, headers=build_hf_headers(), timeout=patience)
        _check(response)
        if len(response.content) > MOST_ANSWER:
            raise HybridError(f"{repository}: the hub's list of files is larger than 64 MiB. Is it a model?")
        try:
            answer = response.json()
        except ValueError:
            answer = None
    return from_hub(repository, answer)


@contextmanager
def stream(repository: str, commit: str, path: str, start: int) -> Iterator[Any]:
    """The bytes of a file from offset `start`: an httpx response, with `status_code` 206 if it starts there."""
    from huggingface_hub import constants
    from huggingface_hub.utils import build_hf_headers, get_session

    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    url = f"{endpoint()}/{repository}/resolve/{commit}/{quote(path)}"
    with (
        said(repository, commit, path),
        get_session().stream("GET", url, headers=headers, timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT) as response,
    ):
        if not start or response.status_code != 416:  # 416: nothing after `start`; the caller decides
            _check(response)
        yield response


def _check(response: Any) -> None:
    from huggingface_hub.utils import hf_raise_for_status

    hf_raise_for_status(response)


@contextmanager
def said(repository: str, revision: str, path: str = "") -> Iterator[None]:
    """Turns errors of huggingface_hub and its HTTP client into one line each."""
    from huggingface_hub import errors
    from huggingface_hub.utils import get_session

    failing = _failing(get_session())
    try:
        yield
    except errors.OfflineModeIsEnabled:
        raise offline(repository) from None
    except errors.GatedRepoError:
        raise HybridError(_gated(repository)) from None
    except errors.RepositoryNotFoundError:
        raise UsageError(_missing(repository)) from None
    except errors.RevisionNotFoundError:
        raise UsageError(f"{repository} has no revision {shown(revision)}. {page(repository)} lists them.") from None
    except errors.EntryNotFoundError:
        raise HybridError(f"{repository} does not have {shown(path)} any more. Run it again.") from None
    except errors.HfHubHTTPError as err:
        raise _status(repository, err.response) from None
    except failing as err:
        host = endpoint().partition("://")[2] or endpoint()
        why = " ".join(str(err).split()) or type(err).__name__
        raise TransientError(
            f"{repository}: {shown(host)} cannot be reached ({shown(why)}). Check the network",
            remedy=Remedy.WITHOUT_NETWORK,
        ) from None


def _failing(session: Any) -> tuple[type[Exception], ...]:
    """Exceptions of this huggingface_hub's HTTP client (httpx or its successor) for a request without an answer."""
    client = sys.modules[type(session).__module__.split(".")[0]]
    return client.RequestError, client.InvalidURL


def offline(repository: str) -> HybridError:
    return UsageError(
        f"{repository}: it is not in the cache, and HF_HUB_OFFLINE forbids downloads. Unset it",
        remedy=Remedy.DOWNLOADED,
    )


def _has_token() -> bool:
    from huggingface_hub import get_token

    return get_token() is not None


def _gated(repository: str) -> str:
    if _has_token():
        return f"{repository} is gated, and the owner of your token has no access. Ask for it at {page(repository)}"
    return (
        f"{repository} is gated: accept its terms at {page(repository)}, then set HF_TOKEN to your token "
        f"({endpoint()}/settings/tokens)."
    )


def _missing(repository: str) -> str:
    private = "" if _has_token() else ", or it is private and HF_TOKEN is not set"
    here = near(repository, folders.repositories())
    return f"{repository} is neither a path here nor a repository at {endpoint()}{private}.{here}"


def _status(repository: str, response: Any) -> HybridError:
    status = int(response.status_code)
    message = shown(" ".join(str(response.headers.get("X-Error-Message") or response.reason_phrase).split()))
    said = f"{repository}: the hub answered {status} ({message})"
    if status in (401, 403):
        return HybridError(f"{said}. Check HF_TOKEN, and the access it has at {page(repository)}")
    if status == 429:
        return TransientError(f"{said}: too many requests. Wait some minutes; with HF_TOKEN more are allowed.")
    if status >= 500 or status == 408:
        return TransientError(f"{said}. The fault is at the hub: try again later.")
    return HybridError(f"{said}.")
