"""POST /slots/{id}?action=save|restore|erase: the last text of a slot as a file in the server's folder.

Files have the format of `hybrid` or, with "format": "llama.cpp", of llama-server; restoring recognizes both. A restored
text is known to every slot. Texts and files of another owner do not exist for a client (client.py).
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from hybrid.infer.answers.batch.places import PlaceBusyError, Places
from hybrid.infer.memory.cache_store import CacheStore
from hybrid.quant.ggml.byte_sizes import size_text
from hybrid.quant.ggml.errors import StateError

from .. import errors
from ..client import SALT
from ..endpoint import Endpoint, json_of
from ..errors import RequestError
from ..fields import Strict
from ..served import Served

BUSY_SECONDS = 0.05  # between two checks of a slot in use
LONGEST_NAME = 128  # characters; the name of the temporary file is longer and must fit also
_RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{i}" for port in ("com", "lpt") for i in range(10))}
Result = TypeVar("Result")


class SlotFile(Strict):
    """The file to save to or restore from."""

    filename: str
    format: Literal["hybrid", "llama.cpp"] = "hybrid"


async def act(served: Served, request: Request) -> Response:
    """Saves, restores or erases the text of a slot."""
    if served.store is None:
        return errors.response(501, "this server keeps no states. Start it with --state-dir")
    place = _place(served, request.path_params["id"])
    action = request.query_params.get("action")
    whose = served.client(request)
    owner = whose.text_owner
    places, begin = Places(served.answers, owner, whose.applied), time.perf_counter()
    if action == "erase":
        n = await _when_idle(lambda: places.erase(place))
        return JSONResponse({"id_slot": place, "n_erased": n})
    if action not in ("save", "restore"):
        raise RequestError(f"action: expected save, restore or erase, found {action!r:.40}", param="action")
    file = SlotFile.model_validate(await json_of(request))
    path = file_path(served.store.folder.slots, file.filename, owner)
    about = {"id_slot": place, "filename": file.filename}
    if action == "save":
        _check_room(served.store)
        done = await _when_idle(
            lambda: _named(path, file.filename, lambda: places.save(place, path, llama=file.format != "hybrid"))
        )
        return JSONResponse(
            {**about, "n_saved": done.n_tokens, "n_written": done.nbytes, "timings": {"save_ms": _since(begin)}}
        )
    if not path.is_file():
        raise RequestError(f"filename: there is no file {file.filename!r}", param="filename")
    done = await _when_idle(lambda: _named(path, file.filename, lambda: places.restore(place, path)))
    return JSONResponse(
        {**about, "n_restored": done.n_tokens, "n_read": done.nbytes, "timings": {"restore_ms": _since(begin)}}
    )


async def _when_idle(call: Callable[[], Result]) -> Result:
    """The result of `call`, run in a thread once no answer uses its slot."""
    while True:
        try:
            return await run_in_threadpool(call)
        except PlaceBusyError:
            await asyncio.sleep(BUSY_SECONDS)


def _named(path: Path, name: str, call: Callable[[], Result]) -> Result:
    """The result of `call`; errors name the file as the client does, without its folder."""
    try:
        return call()
    except StateError as error:
        told = str(error).replace(str(path), name).replace(path.name, name)
        raise RequestError(told, param="filename") from error
    except OSError as error:
        raise RequestError(f"{name}: {error.strerror or error}", param="filename") from error


def _place(served: Served, given: str) -> int:
    n = served.answers.batcher.n_parallel
    if not (given.isascii() and given.isdigit() and len(given) < 10 and int(given) < n):
        raise RequestError(f"there is no slot {given[:40]!r}, only 0 to {n - 1}", param="id_slot")
    return int(given)


def file_path(folder: Path, name: str, owner: bytes = b"") -> Path:
    """The path in `folder`; its name contains the owner. RequestError: `name` is not a plain file name."""
    bad = (
        not 0 < len(name) <= LONGEST_NAME
        or not name.isprintable()
        or not name.isascii()
        or any(c in name for c in '/\\:*?"<>|')
        or name[0] in ".~-"
        or name[-1] in ". "
        or name.split(".")[0].strip().lower() in _RESERVED
    )
    if bad:
        raise RequestError(
            f"filename: expected a plain name of up to {LONGEST_NAME} characters without folders, found "
            f"{ascii(name)[:80]}",
            param="filename",
        )
    path = folder / (f"~{owner.hex()}~{name}" if owner else name)
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise RequestError(f"filename: {name!r} is not a regular file", param="filename")
    return path


def _check_room(store: CacheStore) -> None:
    """RequestError: saved slots take as much of the disk as the server's prompt cache may."""
    used = sum(path.stat().st_size for path in store.folder.slots.iterdir() if path.is_file())
    if used >= store.files.budget:
        raise RequestError(
            f"the saved slots take {size_text(used)}, this server allows {size_text(store.files.budget)}", status=507
        )


def _since(begin: float) -> float:
    return round(1000 * (time.perf_counter() - begin), 3)


_ACTION = {"required": True, "schema": {"enum": ["save", "restore", "erase"]}}
ENDPOINTS = [
    Endpoint(
        ("/slots/{id}",),
        act,
        method="POST",
        query={"action": _ACTION, **SALT},
        reads=SlotFile,
        failures=(408, 413, 429, 501, 507),
    )
]
