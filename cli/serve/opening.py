"""Opens a model with everything that serves it: weights, prompt cache on disk, vision tower, service, maker of jobs.

with opened(setup, "tiny", settings, console.SCREEN) as served: ...    # at the end its texts are on disk
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hybrid.infer.answers.batch.saving import Document, Saver, check_budget, open_store
from hybrid.infer.answers.batch.service import Service
from hybrid.infer.evaluate.embed import Embedder
from hybrid.infer.evaluate.pooling import Pooling
from hybrid.infer.memory.store_folder import KeptElsewhereError
from hybrid.infer.memory.store_lister import Lister
from hybrid.pipeline import models
from hybrid.pipeline.model_eyes import ModelEyes
from hybrid.pipeline.vision_files import vision_of
from hybrid.quant.ggml.errors import HybridError, UsageError, shown

from ..options.framing import chosen_template
from ..options.guess_options import GuessOptions
from ..options.loading_options import PoolingName
from ..options.model_loading import loaded_for_answers
from ..options.sampling_options import Sampling
from ..options.served_model import ServedAnswers, ServedLoading
from ..options.server_options import GRACE, Capacity, Keeping
from ..options.stage_options import WorkerOptions
from ..options.vision_options import VisionFile
from .embedding import EncoderModel, EncoderService
from .jobs import Maker, ServerDefaults
from .models.kept_tokenizer import KeptTokenizer
from .pictures.sight import Sight
from .served import Served
from .server_settings import ServerSettings

if TYPE_CHECKING:
    from hybrid.infer import LoadedModel
    from hybrid.infer.answers.asking.eyes import Eyes
    from hybrid.infer.memory.cache_store import CacheStore
    from hybrid.reporting import Reporter

    from .pictures.fetching import Fetcher

PICTURES_SHARE = 16  # of the bytes on disk one part is for features of pictures
RESPONSES_SHARE = 16  # and one for stored responses


@dataclass(frozen=True)
class ModelSetup:
    """The options of one served model.

    model    as the user names it; None: the bundled model
    fetcher  fetches pictures from URLs; None: nothing is fetched
    grace    seconds to write the rest of the texts to disk at the end
    """

    model: Path | None
    guessing: GuessOptions
    capacity: Capacity = field(default_factory=Capacity)
    keeping: Keeping = field(default_factory=Keeping)
    vision: VisionFile = field(default_factory=VisionFile)
    pooling: PoolingName | None = None
    answers: ServedAnswers = field(default_factory=ServedAnswers)
    loading: ServedLoading = field(default_factory=ServedLoading)
    workers: WorkerOptions = field(default_factory=WorkerOptions)
    sampling: Sampling = field(default_factory=Sampling)
    fetcher: "Fetcher | None" = None
    grace: float = GRACE

    def check(self) -> None:
        """UsageError: options contradict each other, or a file that one names is not there."""
        self.answers.asked()
        options = self.loading.options()
        if self.keeping.state_dir is not None:
            check_budget(options.checkpoint_budget)
        self.keeping.nbytes()
        self.workers.check(self.loading.machine.pinning)
        self.vision.check()


@contextmanager
def opened(
    setup: ModelSetup,
    name: str,
    settings: ServerSettings,
    reporter: "Reporter",
    tokenizer: KeptTokenizer | None = None,
) -> Iterator[Served]:
    """The model, served under this name. tokenizer: kept from the last time, and for the next.

    HybridError: it does not load, or cannot have one of the options.
    """
    budget, folder = setup.keeping.nbytes(), setup.keeping.state_dir
    with ExitStack() as stack:
        model = stack.enter_context(_loaded(setup, reporter))
        if tokenizer is not None and not isinstance(model, EncoderModel):
            tokenizer.lend(model)
            tokenizer.keep(model)
        share = _share(model, setup.vision, budget)
        store = stack.enter_context(_kept(model, folder, budget - share - budget // RESPONSES_SHARE, reporter))
        eyes = stack.enter_context(_eyes(model, setup.vision, folder, share, reporter))
        if setup.fetcher is not None and eyes is None:
            reporter.note("warning: the model takes no pictures, so none are fetched from URLs")
        service = stack.enter_context(closing(_service(model, setup.capacity, store)))
        served = Served(
            service,
            _maker(model, setup, eyes),
            name,
            settings=settings,
            store=store,
            pooling=_pooling(setup.pooling),
            names=setup.loading.adapters(),
        )
        stack.callback(served.close)
        stack.enter_context(_saved(served, setup.grace))
        stack.callback(service.close)
        yield served


@contextmanager
def _loaded(setup: ModelSetup, reporter: "Reporter") -> "Iterator[LoadedModel | EncoderModel]":
    """The model, with a sequence per answer and one more for embeddings; or an encoder."""
    path, options = models.resolve(setup.model, reporter), setup.loading.options()
    if not models.is_encoder(path):
        options = replace(options, n_seq_max=setup.capacity.parallel + 1)
        with loaded_for_answers(path, options, setup.workers, setup.guessing, reporter) as loaded:
            yield loaded
        return
    if setup.guessing.draft is not None:
        raise UsageError(f"--draft: {shown(path)} is an encoder: it cannot guess tokens of answers.")
    with (
        models.compiling(reporter) as compiling,
        Embedder(path, options, pooling=_pooling(setup.pooling), progress=compiling) as embedder,
    ):
        reporter.notes(embedder.file_notes)
        models.note_numa(embedder, reporter)
        yield EncoderModel(embedder)


@contextmanager
def _kept(
    model: "LoadedModel | EncoderModel", folder: Path | None, budget: int, reporter: "Reporter"
) -> Iterator["CacheStore | None"]:
    """The prompt cache of this model on disk; None without a folder, or if the model is served under another name,
    whose texts are kept there. UsageError: the folder cannot be used."""
    if folder is None:
        yield None
        return
    if isinstance(model, EncoderModel):
        raise UsageError(f"{shown(folder)}: an encoder keeps no state. Leave --state-dir out.")
    try:
        store = open_store(model, folder, budget, lambda line: reporter.note(f"warning: {line}"))
    except KeptElsewhereError:
        reporter.note(f"warning: texts are not kept on disk for a second name of the model {shown(model.path.name)}")
        yield None
        return
    try:
        yield store
    finally:
        store.folder.close()


def _share(model: "LoadedModel | EncoderModel", vision: VisionFile, budget: int) -> int:
    """The bytes of --state-budget for features of pictures."""
    sees = not vision.no_mmproj and (vision.mmproj is not None or vision_of(model.path) is not None)
    return budget // PICTURES_SHARE if sees else 0


@contextmanager
def _eyes(
    model: "LoadedModel | EncoderModel", vision: VisionFile, folder: Path | None, budget: int, reporter: "Reporter"
) -> "Iterator[Eyes | None]":
    """The model's eyes, open from the start; None: it takes no pictures. A tower that was found beside the model, and
    that cannot be used, is noted. folder, budget: of --state-dir, where features of pictures are kept.

    UsageError: the file that --mmproj names is of another model.
    """
    if isinstance(model, EncoderModel):
        if vision.mmproj is not None:
            raise UsageError(f"--mmproj {shown(vision.mmproj)}: an encoder takes no pictures.")
        yield None
        return
    place = None if folder is None else folder / "pictures"
    with closing(ModelEyes(model, vision.mmproj, off=vision.no_mmproj, folder=place, folder_budget=budget)) as found:
        made = None
        try:
            made = None if found.path is None else found.open()
        except HybridError as error:
            if vision.mmproj is not None:
                raise
            reporter.note(f"warning: pictures are refused: {error}")
        yield made


def _maker(model: "LoadedModel | EncoderModel", setup: ModelSetup, eyes: "Eyes | None") -> Maker:
    """The maker of jobs. TemplateError, UsageError: this model cannot have the template or an option."""
    asked, answers = setup.answers.asked(), setup.answers
    params = setup.sampling.params(model.gguf.metadata)
    defaults = ServerDefaults(
        answers.n_predict, params, answers.context_shift, asked.think, asked.budget, answers.spm_infill
    )
    template = chosen_template(answers.chat_template, model.chat_template, model.gguf, model.tokenizer)
    maker = Maker(model, template, setup.capacity.most, setup.guessing.given, defaults, Sight(eyes, setup.fetcher))
    if (asked.think or asked.budget is not None) and (template is None or maker.dialect.format.thoughts is None):
        raise UsageError("the model has no thoughts: its chat template does not know any.")
    return maker


def _pooling(name: PoolingName | None) -> Pooling | None:
    return Pooling(name.value) if name else None


def _service(
    model: "LoadedModel | EncoderModel", capacity: Capacity, store: "CacheStore | None"
) -> Service | EncoderService:
    """The thread that runs the model."""
    if isinstance(model, EncoderModel):
        return EncoderService(capacity.queue)
    return Service(model, capacity.parallel, most_waiting=capacity.queue, store=store)


@contextmanager
def _saved(served: Served, grace: float) -> Iterator[None]:
    """Saves the prompt cache to disk in the background, if it has a folder. grace: seconds to finish at the end."""
    if served.store is None:
        yield
        return
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
