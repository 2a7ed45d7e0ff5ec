"""`hybrid serve`: a model over HTTP."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hybrid.quant.ggml.byte_sizes import UNITS, parse_size
from hybrid.quant.ggml.errors import UsageError, shown

from .. import console, texts
from ..chains import models
from ..guessing import GUESSES, Spec
from ..loading_options import CheckpointBudget, Context, Exact, KVTypeOption, Lora, Threads, load_options

if TYPE_CHECKING:
    from hybrid.infer import Model
    from hybrid.infer.memory.cache_store import CacheStore

    from ..serve.request_log import RequestLog

LOCAL = ("127.0.0.1", "localhost", "::1")


def serve(
    model: Annotated[
        Path | None,
        typer.Argument(metavar="MODEL", help="GGUF file or Hugging Face folder. Default: bundled model."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any that is free.")] = 8080,
    unix: Annotated[
        Path | None, typer.Option("--unix", help="Listen on this socket instead of an address.", show_default=False)
    ] = None,
    parallel: Annotated[int, typer.Option(min=1, max=256, help="Answers at a time.")] = 8,
    queue: Annotated[int, typer.Option(min=0, help="Requests that may wait; more are refused with status 429.")] = 64,
    api_key_file: Annotated[
        Path | None,
        typer.Option("--api-key-file", help="File of keys, one per line: requests need one.", show_default=False),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option("--cors", metavar="ORIGIN", help="Pages of this origin may use the server. May be repeated."),
    ] = None,
    alias: Annotated[
        str | None, typer.Option("--alias", help="Name of the model. Default: that of its file.", show_default=False)
    ] = None,
    state_dir: Annotated[
        Path | None,
        typer.Option("--state-dir", metavar="DIR", help="Keep what was read here, over restarts.", show_default=False),
    ] = None,
    state_budget: Annotated[
        str, typer.Option("--state-budget", metavar="SIZE", help=f"How much of the disk that may take. {UNITS}.")
    ] = "8G",
    spec: Annotated[Spec, typer.Option(help=f"{GUESSES}, where that pays.")] = Spec.NGRAM,
    n_ctx: Context = 0,
    checkpoint_budget: CheckpointBudget = "1GiB",
    exact: Exact = False,
    kv_type: KVTypeOption = None,
    lora: Lora = None,
    threads: Threads = 0,
) -> None:
    """Serve a model over HTTP, to clients of OpenAI and others.

    Answers are computed together, and each is, to the bit, what it would be alone. What was read once is not read
    again: a conversation that comes back continues where it was. Ctrl-C or SIGTERM ends the server.
    """
    keys = read_keys(api_key_file)
    states = parse_size(state_budget, "--state-budget")
    loading = load_options(
        n_ctx=n_ctx, threads=threads, exact=exact, kv_type=kv_type, lora=lora, checkpoint_budget=checkpoint_budget
    )
    listener = listen(host, port, unix)
    try:
        with (
            models.load(model, replace(loading, n_seq_max=parallel)) as loaded,
            kept(loaded, state_dir, states) as store,
        ):
            where = f"unix:{unix}" if unix is not None else f"http://{host}:{listener.getsockname()[1]}"
            if unix is None and host not in LOCAL and not keys:
                console.note(
                    f"warning: everybody who reaches {host} can use this server (--api-key-file asks for a key)"
                )
            console.note(f"{loaded.description}: {where}/v1, {parallel} answers at a time, context {loaded.n_ctx}")
            name = alias or (model or models.bundled_checkpoint()).resolve().name.removesuffix(".gguf")
            _run(loaded, listener, name, parallel, queue, keys, tuple(cors or ()), store, speculate=spec is Spec.NGRAM)
    finally:
        listener.close()
        if unix is not None:
            unix.unlink(missing_ok=True)


def read_keys(path: Path | None) -> tuple[str, ...]:
    """The keys of a file. UsageError: it cannot be read, or holds none."""
    if path is None:
        return ()
    keys = tuple(line.strip() for line in texts.read_text(path).splitlines() if line.strip())
    if not keys:
        raise UsageError(f"{shown(path)} holds no key. Write one per line.")
    return keys


@contextmanager
def kept(model: "Model", folder: Path | None, budget: int) -> Iterator["CacheStore | None"]:
    """What is kept of this model on disk; None without a folder. UsageError: it cannot be."""
    from hybrid.infer.answers.saving import open_store

    if folder is None:
        yield None
        return
    store = open_store(model, folder, budget, lambda line: console.note(f"warning: {line}"))
    try:
        yield store
    finally:
        store.folder.close()


def listen(host: str, port: int, unix: Path | None) -> socket.socket:
    """A socket that listens. UsageError: the address is not to be had."""
    listener: socket.socket | None = None
    try:
        if unix is None:
            return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(unix))
        listener.listen(128)
        return listener
    except OSError as error:
        if listener is not None:
            listener.close()
        where = shown(unix) if unix is not None else f"{host}:{port}"
        raise UsageError(
            f"{where} cannot be listened on: {error.strerror or error}. Is another server there? Choose another place."
        ) from None


def _run(
    model: "Model",
    listener: socket.socket,
    name: str,
    parallel: int,
    queue: int,
    keys: tuple[str, ...],
    cors: tuple[str, ...],
    store: "CacheStore | None",
    *,
    speculate: bool,
) -> None:
    from hybrid.infer.answers.saving import Document, Saver
    from hybrid.infer.answers.service import Service

    from ..serve.app import create_app
    from ..serve.jobs import Maker
    from ..serve.running import GRACE_SECONDS, run
    from ..serve.served import Served

    # a template or tokenizer that cannot be used is known before the first request
    maker = Maker(model, model.chat_template, parallel + queue, speculate)
    service = Service(model, parallel, most_waiting=queue, store=store)
    saver = None
    if store is not None:
        ledger = maker.ledger
        if (entries := store.files.read_json("ledger")) is not None:
            with suppress(ValueError):  # its checksum fits: of another version, and no answer is wrong without it
                ledger.load(entries)
        saver = Saver(service, store, {"ledger": Document(lambda: ledger.n_noted, ledger.entries)})
    try:
        run(create_app(Served(service, maker, name, keys, cors, store, log=_log)), listener)
    finally:
        service.close()
        if saver is not None:
            saver.close(GRACE_SECONDS)
    if service.fault is not None:
        raise service.fault


def _log(request: "RequestLog") -> None:
    """Lines on the console: of the request, and what there is to say beside it."""
    with suppress(OSError):  # nobody reads them any more; requests are answered all the same
        console.note(request.line())
        for note in request.notes:
            console.note(f"note: {note}")
