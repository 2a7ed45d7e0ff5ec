"""`hybrid serve`: a model over HTTP."""

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hybrid.pipeline import models
from hybrid.quant.ggml.errors import HybridError, UsageError, shown

from .. import console
from ..options import model_argument
from ..options.framing import chosen_template
from ..options.groups import takes_groups
from ..options.guess_options import GUESSES, GuessOptions, Spec
from ..options.loading_options import PoolingName
from ..options.model_loading import loaded_for_answers
from ..options.sampling_options import Sampling
from ..options.served_model import ServedAnswers, ServedLoading
from ..options.server_options import Address, Capacity, Clients, Keeping, PictureURLs, Times, Visible
from ..options.stage_options import WorkerOptions
from ..options.vision_options import VisionFile
from ..serve import listening
from ..serve.log import Log, LogKind

if TYPE_CHECKING:
    from hybrid.infer import LoadedModel
    from hybrid.infer.answers.asking.eyes import Eyes
    from hybrid.infer.answers.batch.service import Service
    from hybrid.infer.evaluate.pooling import Pooling
    from hybrid.infer.loading.options import LoadOptions
    from hybrid.infer.memory.cache_store import CacheStore

    from ..serve.backend import ServedModel
    from ..serve.embedding import EncoderModel, EncoderService
    from ..serve.jobs import Maker, ServerDefaults
    from ..serve.served import Served


PICTURES_SHARE = 16  # of the bytes on disk one part is for features of pictures


@dataclass(frozen=True, eq=False, repr=False)
class GuessingBeside(GuessOptions):
    """The methods and models that guess tokens, in a server."""

    spec: Annotated[Spec, typer.Option(help=GUESSES)] = Spec.NGRAM


@takes_groups
def serve(
    model: Annotated[Path | None, typer.Argument(metavar="MODEL", help=model_argument.DEFAULT)] = None,
    *,
    address: Address,
    capacity: Capacity,
    clients: Clients,
    alias: Annotated[
        str | None, typer.Option(help="Name of the model in answers. Default: the file's name, or ORG/NAME[:TYPE].")
    ] = None,
    keeping: Keeping,
    guessing: GuessingBeside,
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
    """Serve a model over HTTP, with OpenAI's and Anthropic's APIs.

    Answers are computed together; each has exactly the bits that it would have alone. Text that the model has read
    once is not read again: the next request of a conversation continues from the prompt cache. Ctrl-C or SIGTERM ends
    the server after the running answers, or after --grace seconds; a second signal ends it at once.
    """
    from ..serve.connections import Bounds
    from ..serve.jobs import ServerDefaults
    from ..serve.malloc import return_freed_memory
    from ..serve.pictures.sight import Sight
    from ..serve.served import Served

    return_freed_memory()
    keys, budget = clients.keys(), keeping.nbytes()
    source, asked = answers.chat_template, answers.asked()
    options = loading.options()
    workers.check(loading.machine.pinning)
    vision.check()
    fetcher = urls.fetcher()
    with (
        _listening(address) as listener,
        _loaded(model, options, capacity.parallel, pooling, workers, guessing) as loaded,
        kept(loaded, keeping.state_dir, budget - (share := _share(loaded, vision, budget))) as store,
        _eyes(loaded, vision, keeping.state_dir, share) as eyes,
    ):
        name, told = alias or models.name_of(model), Log(log)
        where = listening.url(listener, address.host)
        if not listening.is_local(listener) and not keys:
            console.note(f"warning: everybody who reaches {where} can use this server (--api-key-file asks for a key)")
        if fetcher is not None and eyes is None:
            console.note("warning: the model takes no pictures, so none are fetched from URLs")
        params = sampling.params(loaded.gguf.metadata)
        defaults = ServerDefaults(answers.n_predict, params, answers.context_shift, asked.think, asked.budget)
        maker = _maker(loaded, source, capacity.most, guessing.given, defaults)
        maker.sight = Sight(eyes, fetcher)
        with closing(_service(loaded, capacity, store)) as service:
            served = Served(
                service, maker, name, keys=keys, shared=clients.share_between_keys, cors=tuple(clients.cors or ()),
                store=store, hosts=listening.own_hosts(listener, address.host), timeout=times.timeout or None,
                bounds=Bounds.of(capacity.most), pooling=_pooling(pooling), slots=visible.show_slots,
                page=visible.show_page, names=loading.adapters(), log=None if log is LogKind.OFF else told.request,
            )  # fmt: skip
            _announce(told, loaded, name, capacity, where, sees=eyes is not None)
            _run(served, listener, told, times.grace)


@contextmanager
def _listening(address: Address) -> Iterator[socket.socket]:
    """A listening socket. UsageError: the address cannot be used."""
    listener = listening.listen(address.host, address.port, address.unix)
    try:
        yield listener
    finally:
        listener.close()
        listening.remove(address.unix)


def _share(model: "LoadedModel | EncoderModel", vision: VisionFile, budget: int) -> int:
    """The bytes of --state-budget for features of pictures."""
    from hybrid.pipeline.vision_files import vision_of

    sees = not vision.no_mmproj and (vision.mmproj is not None or vision_of(model.path) is not None)
    return budget // PICTURES_SHARE if sees else 0


@contextmanager
def _eyes(
    model: "LoadedModel | EncoderModel", vision: VisionFile, folder: Path | None, budget: int
) -> "Iterator[Eyes | None]":
    """The model's eyes, open from the start; None: it takes no pictures. A tower that was found beside the model, and
    that cannot be used, is noted. folder, budget: of --state-dir, where features of pictures are kept.

    UsageError: the file that --mmproj names is of another model.
    """
    from ..serve.embedding import EncoderModel

    if isinstance(model, EncoderModel):
        if vision.mmproj is not None:
            raise UsageError(f"--mmproj {shown(vision.mmproj)}: an encoder takes no pictures.")
        yield None
        return
    from hybrid.pipeline.model_eyes import ModelEyes

    place = None if folder is None else folder / "pictures"
    with closing(ModelEyes(model, vision.mmproj, off=vision.no_mmproj, folder=place, folder_budget=budget)) as found:
        made = None
        try:
            made = None if found.path is None else found.open()
        except HybridError as error:
            if vision.mmproj is not None:
                raise
            console.note(f"warning: pictures are refused: {error}")
        yield made


def _announce(log: Log, model: "ServedModel", name: str, capacity: Capacity, where: str, *, sees: bool) -> None:
    """Logs the model, the address and the capacity. sees: it takes pictures."""
    from ..serve.embedding import EncoderModel

    does = "embeddings" if isinstance(model, EncoderModel) else f"{capacity.parallel} answers at a time"
    does += ", takes pictures" if sees else ""
    is_web = where.startswith("http") and not isinstance(model, EncoderModel)
    page = f"chat page {where}, " if is_web else ""
    said = f"{model.description}: {page}API {where}/v1, {does}, context {model.n_ctx}; Ctrl-C ends it"
    if log.kind is LogKind.JSON:
        facts = {"url": where, "model": name, "parallel": capacity.parallel, "queue": capacity.queue, "pictures": sees}
        log.say("start", said, **facts, context=model.n_ctx)
    else:
        console.note(said)


@contextmanager
def _loaded(
    model: Path | None,
    loading: "LoadOptions",
    parallel: int,
    pooling: PoolingName | None,
    workers: WorkerOptions,
    guessing: GuessOptions,
) -> "Iterator[LoadedModel | EncoderModel]":
    """The model, with a sequence per answer and one more for embeddings; or an encoder."""
    path = models.resolve(model, console.SCREEN)
    if not models.is_encoder(path):
        with loaded_for_answers(path, replace(loading, n_seq_max=parallel + 1), workers, guessing) as loaded:
            yield loaded
        return
    if guessing.draft is not None:
        raise UsageError(f"--draft: {shown(path)} is an encoder: it cannot guess tokens of answers.")
    from hybrid.infer.evaluate.embed import Embedder

    from ..serve.embedding import EncoderModel

    with (
        models.compiling(console.SCREEN) as compiling,
        Embedder(path, loading, pooling=_pooling(pooling), progress=compiling) as embedder,
    ):
        console.SCREEN.notes(embedder.file_notes)
        models.note_numa(embedder, console.SCREEN)
        yield EncoderModel(embedder)


@contextmanager
def kept(model: "LoadedModel | EncoderModel", folder: Path | None, budget: int) -> Iterator["CacheStore | None"]:
    """The prompt cache of this model on disk; None without a folder. UsageError: the folder cannot be used."""
    from hybrid.infer.answers.batch.saving import open_store

    from ..serve.embedding import EncoderModel

    if folder is None:
        yield None
        return
    if isinstance(model, EncoderModel):
        raise UsageError(f"{shown(folder)}: an encoder keeps no state. Leave --state-dir out.")
    store = open_store(model, folder, budget, lambda line: console.note(f"warning: {line}"))
    try:
        yield store
    finally:
        store.folder.close()


def _maker(model: "ServedModel", source: str | None, most: int, speculate: bool, defaults: "ServerDefaults") -> "Maker":
    """The maker of jobs. TemplateError, UsageError: this model cannot have the template or an option; raised before the
    server starts."""
    from ..serve.jobs import Maker

    maker = Maker(
        model, chosen_template(source, model.chat_template, model.gguf, model.tokenizer), most, speculate, defaults
    )
    _check_thoughts(maker)
    return maker


def _check_thoughts(maker: "Maker") -> None:
    """UsageError: an option is about thoughts, and the model has none."""
    asked = maker.defaults.think or maker.defaults.think_budget is not None
    if asked and (maker.template is None or maker.dialect.format.thoughts is None):
        raise UsageError("the model has no thoughts: its chat template does not know any.")


def _pooling(name: PoolingName | None) -> "Pooling | None":
    from hybrid.infer.evaluate.pooling import Pooling

    return Pooling(name.value) if name else None


def _service(
    model: "LoadedModel | EncoderModel", capacity: Capacity, store: "CacheStore | None"
) -> "Service | EncoderService":
    """The thread that runs the model."""
    from hybrid.infer.answers.batch.service import Service

    from ..serve.embedding import EncoderModel, EncoderService

    if isinstance(model, EncoderModel):
        return EncoderService(capacity.queue)
    return Service(model, capacity.parallel, most_waiting=capacity.queue, store=store)


def _run(served: "Served", listener: socket.socket, log: Log, grace: float) -> None:
    """Serves until a signal or a fault. FaultError: the fault of the model."""
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
    """Saves the prompt cache to disk in the background, if it has a folder. grace: seconds to finish at the end."""
    if served.store is None:
        yield
        return
    from hybrid.infer.answers.batch.saving import Document, Saver
    from hybrid.infer.memory.store_lister import Lister

    ledger = served.maker.ledger
    if (entries := served.store.files.read_json("ledger")) is not None:
        with suppress(ValueError):  # the checksum is right: another version wrote it, and answers do not need it
            ledger.load(entries)
    documents = {"ledger": Document(lambda: ledger.n_noted, ledger.entries)}
    saver, lister = Saver(served.answers, served.store, documents), Lister(served.store.files)
    try:
        yield
    finally:
        lister.close(grace)
        saver.close(grace)
