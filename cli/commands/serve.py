"""`hybrid serve`: models over HTTP."""

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from hybrid.quant.ggml.byte_sizes import parse_size, size_text
from hybrid.quant.ggml.errors import UsageError

from .. import console
from ..options import model_argument
from ..options.groups import takes_groups
from ..options.guess_options import GuessOptions
from ..options.loading_options import PoolingName
from ..options.sampling_options import Sampling
from ..options.served_model import ServedAnswers, ServedLoading
from ..options.server_options import Address, Capacity, Clients, Keeping, ManyModels, PictureURLs, Times, Visible
from ..options.stage_options import WorkerOptions
from ..options.vision_options import VisionFile
from ..serve import listening
from ..serve.log import Log, LogKind

if TYPE_CHECKING:
    from ..serve.models.given import GivenModels
    from ..serve.models.router import ModelRouter
    from ..serve.openai.stored import StoredResponses
    from ..serve.opening import ModelSetup
    from ..serve.served import Served

MEMORY_SHARE = 0.8  # of this machine's memory, for several models


@takes_groups
def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL...",
            help=f"{model_argument.WHAT}; NAME=MODEL gives it this name. Several: requests name one. Default: bundled "
            "model.",
        ),
    ] = None,
    *,
    address: Address,
    capacity: Capacity,
    clients: Clients,
    alias: Annotated[
        str | None, typer.Option(help="Name of the model in answers. Default: the file's name, or ORG/NAME[:TYPE].")
    ] = None,
    many: ManyModels,
    keeping: Keeping,
    guessing: GuessOptions,
    vision: VisionFile,
    urls: PictureURLs,
    pooling: Annotated[PoolingName | None, typer.Option(help="Pooling of embeddings, as in `hybrid embed`.")] = None,
    answers: ServedAnswers,
    visible: Visible,
    loading: ServedLoading,
    workers: WorkerOptions,
    times: Times,
    log: Annotated[
        LogKind, typer.Option(help="plain: lines for people on stderr; json: JSON lines on stdout; off: errors only.")
    ] = LogKind.PLAIN,
    sampling: Sampling,
) -> None:
    """Serve models to clients of OpenAI, Anthropic and ollama.

    Answers are computed together; each has exactly the bits that it would have alone. Text that a model has read once
    is not read again: the next request of a conversation continues from the prompt cache. Of several models, each is
    loaded on its first use, and makes room for others when memory is short. Ctrl-C or SIGTERM ends the server after
    the running answers, or after --grace seconds; a second signal ends it at once.
    """
    from ..serve.connections import Bounds
    from ..serve.malloc import return_freed_memory
    from ..serve.models.given import GivenModels
    from ..serve.models.settings_file import read_tables, seconds_of
    from ..serve.opening import ModelSetup
    from ..serve.server_settings import ServerSettings

    return_freed_memory()
    keys, named = clients.keys(), list(models or ())
    is_one = len(named) < 2 and not many.given
    setup = ModelSetup(
        None, guessing, capacity, keeping, vision, pooling, answers, loading, workers, sampling, urls.fetcher(),
        times.grace,
    )  # fmt: skip
    setup.check()
    if not is_one:
        _check_for_several(setup, alias)
    idle = None if many.idle is None else seconds_of(many.idle, "--idle")
    memory = None if many.memory is None else parse_size(many.memory, "--memory")
    tables = [] if many.models_file is None else read_tables(many.models_file)
    with _listening(address) as listener, closing(_stored(keeping)) as stored:
        told = Log(log)
        where = listening.url(listener, address.host)
        if not listening.is_local(listener) and not keys:
            console.note(f"warning: everybody who reaches {where} can use this server (--api-key-file asks for a key)")
        settings = ServerSettings(
            keys=keys, shared=clients.share_between_keys, cors=tuple(clients.cors or ()),
            hosts=listening.own_hosts(listener, address.host), timeout=times.timeout or None,
            bounds=Bounds.of(capacity.most), slots=visible.show_slots, page=visible.show_page,
            log=None if log is LogKind.OFF else told.request, stored=stored,
        )  # fmt: skip
        given = GivenModels(
            named, many.models_dir, many.all_here, tables, setup, settings, idle, console.SCREEN, alias=alias
        )
        with _routed(given, told, memory, many, is_one=is_one) as router:
            _announce(told, router, capacity, where)
            if not is_one and keeping.state_dir is None:
                console.note("without --state-dir, a model that makes room forgets its texts")
            _run(router, listener, told, times.grace)


def _stored(keeping: Keeping) -> "StoredResponses":
    """The responses that clients can fetch. UsageError: nothing can be kept in the folder of --state-dir."""
    from ..serve.openai.stored import BUDGET, StoredResponses
    from ..serve.opening import RESPONSES_SHARE

    if keeping.state_dir is None:
        return StoredResponses()
    budget = min(BUDGET, keeping.nbytes() // RESPONSES_SHARE)
    return StoredResponses(keeping.state_dir / "responses", budget, lambda line: console.note(f"warning: {line}"))


def _check_for_several(setup: "ModelSetup", alias: str | None) -> None:
    """UsageError: an option is about one model, and several are served."""
    given = {
        "--alias": alias is not None, "--draft": setup.guessing.draft is not None,
        "--mmproj": setup.vision.mmproj is not None, "--lora": bool(setup.loading.lora),
        "--chat-template": setup.answers.chat_template is not None, "--stages": setup.workers.stages is not None,
    }  # fmt: skip
    for option, is_given in given.items():
        if is_given:
            raise UsageError(f"{option} is about one model, and several are served. Put it into a --models-file.")


@contextmanager
def _routed(
    given: "GivenModels", log: Log, memory: int | None, many: ManyModels, *, is_one: bool
) -> "Iterator[ModelRouter]":
    """The models; the only one is loaded. At the end all are unloaded, with their texts on disk."""
    from hybrid.quant.ggml.machine_memory import machine_memory
    from hybrid.quant.ggml.progress import silent
    from hybrid.reporting import Reporter

    from ..serve.models.router import ModelRouter

    share = None if is_one else int(MEMORY_SHARE * machine_memory().total)
    router = ModelRouter(
        given.entries(),
        given.settings,
        memory=share if memory is None else memory,
        is_strict=memory is not None,
        most=many.models_max,
        autoload=many.models_autoload,
        only=is_one,
        rescan=given.rescan,
        tell=lambda line: log.say("model", line),
        reporter=Reporter(lambda text: log.say("note", text), silent),
    )
    try:
        if is_one:
            router.default.served = router.default.opened(console.SCREEN)
        yield router
    finally:
        router.unload_all()


@contextmanager
def _listening(address: Address) -> Iterator[socket.socket]:
    """A listening socket. UsageError: the address cannot be used."""
    listener = listening.listen(address.host, address.port, address.unix)
    try:
        yield listener
    finally:
        listener.close()
        listening.remove(address.unix)


def _announce(log: Log, router: "ModelRouter", capacity: Capacity, where: str) -> None:
    """Logs the models, the address and the capacity."""
    served = router.default.served if router.only else None
    said, facts = _about_one(served, capacity, where) if served is not None else _about_several(router, where)
    if log.kind is LogKind.JSON:
        log.say("start", said, url=where, **facts)
    else:
        console.note(said)


def _about_one(served: "Served", capacity: Capacity, where: str) -> tuple[str, dict[str, object]]:
    does = "embeddings" if served.is_encoder else f"{capacity.parallel} answers at a time"
    does += ", takes pictures" if served.sees else ""
    page = f"chat page {where}, " if where.startswith("http") and not served.is_encoder else ""
    model = served.model
    said = f"{model.description}: {page}API {where}/v1, {does}, context {model.n_ctx}; Ctrl-C ends it"
    facts = {"model": served.name, "parallel": capacity.parallel, "queue": capacity.queue, "pictures": served.sees}
    return said, {**facts, "context": model.n_ctx}


def _about_several(router: "ModelRouter", where: str) -> tuple[str, dict[str, object]]:
    page = f"chat page {where}, " if where.startswith("http") else ""
    n, most = len(router.entries), "" if router.memory is None else f", in at most {size_text(router.memory)}"
    said = f"{n} model{'s' * (n != 1)}{most}: {page}API {where}/v1 (`hybrid ps` lists them); Ctrl-C ends it"
    return said, {"models": [entry.name for entry in router.entries], "memory": router.memory}


def _run(router: "ModelRouter", listener: socket.socket, log: Log, grace: float) -> None:
    """Serves until a signal or a fault of the only model. FaultError: that fault."""
    from hybrid.infer.answers.batch.service import FaultError
    from hybrid.infer.faults import listen

    from ..serve.app import create_app
    from ..serve.running import run

    before = listen(log.fault)
    try:
        run(create_app(router), router, listener, log, grace=grace)
    finally:
        listen(before)
    served = router.default.served if router.only else None
    if served is not None and (fault := served.service.fault) is not None:
        if log.kind is LogKind.JSON:
            log.fault("the model has failed", fault)
        raise FaultError(fault) from fault
