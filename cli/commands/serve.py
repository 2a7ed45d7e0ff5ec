"""`hybrid serve`: a model over HTTP."""

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hybrid.pipeline import models
from hybrid.quant.ggml.byte_sizes import UNITS, parse_size
from hybrid.quant.ggml.errors import UsageError, shown

from .. import console
from ..options import model_argument, text_options
from ..options.groups import takes_groups
from ..options.guess_options import GUESSES, GuessOptions, Spec
from ..options.loading_options import (
    DEFAULT_BUDGET,
    CheckpointBudget,
    Checkpoints,
    Context,
    Lora,
    PoolingName,
    Precision,
    ThreadOptions,
    load_options,
)
from ..options.sampling_options import Sampling
from ..options.stage_options import WorkerOptions, answering
from ..options.tool_options import Thoughts, asking
from ..serve import listening
from ..serve.log import Log, LogKind

if TYPE_CHECKING:
    from hybrid.infer import LoadedModel
    from hybrid.infer.answers.batch.service import Service
    from hybrid.infer.evaluate.pooling import Pooling
    from hybrid.infer.loading.options import LoadOptions
    from hybrid.infer.memory.cache_store import CacheStore
    from hybrid.infer.text.chat_template import ChatTemplate

    from ..serve.backend import ServedModel
    from ..serve.embedding import EncoderModel, EncoderService
    from ..serve.jobs import Maker
    from ..serve.served import Served

GRACE = 5.0


@dataclass(frozen=True, eq=False, repr=False)
class GuessingBeside(GuessOptions):
    """Who guesses, where many are answered."""

    spec: Annotated[Spec, typer.Option(help=f"{GUESSES}, where that pays.")] = Spec.NGRAM


@takes_groups
def serve(
    model: Annotated[Path | None, typer.Argument(metavar="MODEL", help=model_argument.DEFAULT)] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any that is free.")] = 8080,
    unix: Annotated[Path | None, typer.Option(help="Listen on this socket instead of an address.")] = None,
    parallel: Annotated[int, typer.Option(min=1, max=256, help="Answers at a time.")] = 8,
    queue: Annotated[int, typer.Option(min=0, help="Requests that may wait; more are refused with status 429.")] = 64,
    api_key_file: Annotated[Path | None, typer.Option(help="File of keys, one per line: requests need one.")] = None,
    share_between_keys: Annotated[
        bool,
        typer.Option(
            "--share-between-keys", help="All keys go on from the same texts; otherwise each goes on from its own."
        ),
    ] = False,
    cors: Annotated[
        list[str] | None,
        typer.Option(metavar="ORIGIN", help="Pages of this origin may use the server. May be repeated."),
    ] = None,
    alias: Annotated[
        str | None, typer.Option(help="Name of the model. Default: that of its file, or ORG/NAME[:TYPE].")
    ] = None,
    state_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep what was read here, over restarts.")
    ] = None,
    state_budget: Annotated[
        str, typer.Option(metavar="SIZE", help=f"How much of the disk that may take. {UNITS}.")
    ] = "8G",
    *,
    guessing: GuessingBeside,
    pooling: Annotated[
        PoolingName | None, typer.Option(help="Of embeddings: what stands for a text, as `hybrid embed` has it.")
    ] = None,
    n_predict: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--n-predict",
            min=-1,
            help="Most tokens of an answer that does not say it; -1: until the context is full.",
        ),
    ] = None,
    context_shift: Annotated[
        bool,
        typer.Option(
            "--context-shift",
            help="When a context is full, its older half leaves the attention layers and the answer goes on.",
        ),
    ] = False,
    chat_template: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Use this template (Jinja) instead of the model's.")
    ] = None,
    thoughts: Thoughts,
    show_slots: Annotated[
        bool, typer.Option("--slots/--no-slots", help="Whether GET /slots tells what is being answered.")
    ] = True,
    show_page: Annotated[bool, typer.Option("--page/--no-page", help="Whether GET / is a page to chat on.")] = True,
    n_ctx: Context = 0,
    checkpoint_budget: CheckpointBudget = DEFAULT_BUDGET,
    precision: Precision,
    lora: Lora = None,
    machine: ThreadOptions,
    workers: WorkerOptions,
    timeout: Annotated[
        float, typer.Option(min=0, help="Seconds that an answer may take, with its time in the queue; 0: any number.")
    ] = 0,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds for answers that run when a signal ends the server.")
    ] = GRACE,
    log: Annotated[
        LogKind, typer.Option(help="What it does: lines for people on stderr, JSON lines on stdout, or faults only.")
    ] = LogKind.PLAIN,
    sampling: Sampling,
) -> None:
    """Serve a model over HTTP, to clients of OpenAI and others.

    Answers are computed together, and each is, to the bit, what it would be alone. What was read once is not read
    again: a conversation that comes back continues where it was. Ctrl-C or SIGTERM ends the server: answers that run
    have the time of --grace, a second signal ends that.
    """
    from ..serve.connections import Bounds
    from ..serve.embedding import EncoderModel
    from ..serve.jobs import Maker, ServerDefaults
    from ..serve.served import Served

    keys = read_keys(api_key_file)
    states = parse_size(state_budget, "--state-budget")
    source = None if chat_template is None else text_options.read_text(chat_template)
    asked = asking(thoughts).over()
    loading = load_options(machine, precision, Checkpoints(checkpoint_budget), n_ctx=n_ctx, lora=lora)
    workers.check(machine.pinning)
    listener = listening.listen(host, port, unix)
    try:
        with (
            _loaded(model, loading, parallel, pooling, workers, guessing) as loaded,
            kept(loaded, state_dir, states) as store,
        ):
            where = listening.url(listener, host)
            if not listening.is_local(listener) and not keys:
                console.note(
                    f"warning: everybody who reaches {where} can use this server (--api-key-file asks for a key)"
                )
            does = "embeddings" if isinstance(loaded, EncoderModel) else f"{parallel} answers at a time"
            said = f"{loaded.description}: {where}/v1, {does}, context {loaded.n_ctx}"
            name, told = alias or models.name_of(model), Log(log)
            if log is LogKind.JSON:
                facts = {"url": where, "model": name, "parallel": parallel, "queue": queue, "context": loaded.n_ctx}
                told.say("start", said, **facts)
            else:
                console.note(said)
            params = sampling.params(loaded.gguf.metadata)
            defaults = ServerDefaults(n_predict, params, context_shift, asked.think, asked.budget)
            # a template or tokenizer that cannot be used is known before the first request
            maker = Maker(loaded, _template(loaded, source), parallel + queue, guessing.given, defaults)
            _check_thoughts(maker)
            with closing(_service(loaded, parallel, queue, store)) as service:
                served = Served(
                    service,
                    maker,
                    name,
                    keys=keys,
                    shared=share_between_keys,
                    cors=tuple(cors or ()),
                    store=store,
                    hosts=listening.own_hosts(listener, host),
                    timeout=timeout or None,
                    bounds=Bounds.of(parallel + queue),
                    pooling=_pooling(pooling),
                    slots=show_slots,
                    page=show_page,
                    log=None if log is LogKind.OFF else told.request,
                )
                _run(served, listener, told, grace)
    finally:
        listener.close()
        listening.remove(unix)


def read_keys(path: Path | None) -> tuple[str, ...]:
    """The keys of a file. UsageError: it cannot be read, or holds none."""
    if path is None:
        return ()
    text = text_options.read_text(path)
    if path != text_options.STDIN and path.stat().st_mode & 0o004:
        console.note(f"warning: everybody on this machine can read the keys of {shown(path)} (chmod 600 hides them)")
    keys = tuple(line.strip() for line in text.splitlines() if line.strip())
    if not keys:
        raise UsageError(f"{shown(path)} holds no key. Write one per line.")
    return keys


@contextmanager
def _loaded(
    model: Path | None,
    loading: "LoadOptions",
    parallel: int,
    pooling: PoolingName | None,
    workers: WorkerOptions,
    guessing: GuessOptions,
) -> "Iterator[LoadedModel | EncoderModel]":
    """MODEL with a sequence for each answer, and one more in which embeddings are read beside them; or an encoder."""
    path = models.resolve(model, console.SCREEN)
    if not models.is_encoder(path):
        with answering(path, replace(loading, n_seq_max=parallel + 1), workers, guessing) as loaded:
            yield loaded
        return
    if guessing.draft is not None:
        raise UsageError(f"--draft: {shown(path)} makes embeddings, it draws no answers to guess.")
    from hybrid.infer.evaluate.embed import Embedder

    from ..serve.embedding import EncoderModel

    with (
        models.compiling(console.SCREEN) as compiling,
        Embedder(path, loading, pooling=_pooling(pooling), progress=compiling) as embedder,
    ):
        console.SCREEN.notes(embedder.tokenizer_notes)
        models.note_numa(embedder, console.SCREEN)
        yield EncoderModel(embedder)


@contextmanager
def kept(model: "LoadedModel | EncoderModel", folder: Path | None, budget: int) -> Iterator["CacheStore | None"]:
    """What is kept of this model on disk; None without a folder. UsageError: it cannot be."""
    from hybrid.infer.answers.batch.saving import open_store

    from ..serve.embedding import EncoderModel

    if folder is None:
        yield None
        return
    if isinstance(model, EncoderModel):
        raise UsageError(f"{shown(folder)}: an encoder keeps nothing of what it reads. Leave --state-dir out.")
    store = open_store(model, folder, budget, lambda line: console.note(f"warning: {line}"))
    try:
        yield store
    finally:
        store.folder.close()


def _template(model: "ServedModel", source: str | None) -> "ChatTemplate | None":
    """That of a file, or the model's own. TemplateError: it cannot be used, which is known before the first request."""
    from hybrid.infer.text.chat_template import ChatTemplate, special_tokens

    if source is None:
        return model.chat_template
    return ChatTemplate(source, name="the template of --chat-template", tokens=special_tokens(model.tokenizer))


def _check_thoughts(maker: "Maker") -> None:
    """UsageError: the options ask for thoughts of a model that has none."""
    asked = maker.defaults.think or maker.defaults.think_budget is not None
    if asked and (maker.template is None or maker.dialect.format.thoughts is None):
        raise UsageError("the model has no thoughts: its chat template does not know any.")


def _pooling(name: PoolingName | None) -> "Pooling | None":
    from hybrid.infer.evaluate.pooling import Pooling

    return Pooling(name.value) if name else None


def _service(
    model: "LoadedModel | EncoderModel", parallel: int, queue: int, store: "CacheStore | None"
) -> "Service | EncoderService":
    """What runs the model."""
    from hybrid.infer.answers.batch.service import Service

    from ..serve.embedding import EncoderModel, EncoderService

    if isinstance(model, EncoderModel):
        return EncoderService(queue)
    return Service(model, parallel, most_waiting=queue, store=store)


def _run(served: "Served", listener: socket.socket, log: Log, grace: float) -> None:
    """Until a signal or a fault ends it. FaultError: that of the model."""
    from hybrid.infer.answers.batch.service import FaultError
    from hybrid.infer.faults import listen

    from ..serve.app import create_app
    from ..serve.running import run

    with _saved(served, grace), closing(served.service):
        before = listen(log.fault)
        try:
            run(create_app(served), served, listener, log, grace=grace)
        finally:
            listen(before)
    if (fault := served.service.fault) is not None:
        if log.kind is LogKind.JSON:
            log.fault("the model has failed", fault)
        raise FaultError(fault) from fault


@contextmanager
def _saved(served: "Served", grace: float) -> Iterator[None]:
    """What is read goes to disk meanwhile, where there is a place. grace: seconds for what is left of it at the end."""
    if served.store is None:
        yield
        return
    from hybrid.infer.answers.batch.saving import Document, Saver
    from hybrid.infer.memory.store_lister import Lister

    ledger = served.maker.ledger
    if (entries := served.store.files.read_json("ledger")) is not None:
        with suppress(ValueError):  # its checksum fits: of another version, and no answer is wrong without it
            ledger.load(entries)
    documents = {"ledger": Document(lambda: ledger.n_noted, ledger.entries)}
    saver, lister = Saver(served.answers, served.store, documents), Lister(served.store.files)
    try:
        yield
    finally:
        lister.close(grace)
        saver.close(grace)
