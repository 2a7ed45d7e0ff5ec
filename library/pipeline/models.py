"""Resolves and loads MODEL: a GGUF file, a Hugging Face folder, ORG/NAME on a hub (../hub/names.py), or nothing for the
bundled model.

A folder is converted once. The file is kept in the user's cache under a name made from the folder's path and the names,
sizes and times of its files: a changed folder is converted again, and the old file removed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from hybrid.quant.ggml.errors import UsageError, shown
from hybrid.quant.ggml.split import is_later_part, open_gguf

from .. import cache_paths
from ..reporting import SILENT, Reporter
from . import recent

if TYPE_CHECKING:
    from hybrid.infer import LoadedModel
    from hybrid.infer.evaluate.embed import Embedder
    from hybrid.infer.evaluate.reranker_file import RerankerFile
    from hybrid.infer.loading.options import LoadFields, LoadOptions

    from ..hub.names import Name


def bundled_checkpoint() -> Path:
    """The trained 11 M parameter Jamba in the package, as a Hugging Face folder."""
    return Path(str(files("hybrid"))) / "bundled" / "jamba-11m"


def bundled_prose() -> Path:
    """A few pages about attention, state and memory, on which `hybrid demo` measures perplexity."""
    return Path(str(files("hybrid"))) / "bundled" / "prose.txt"


LISTED = 8  # files that a message names
EXPECTED = "MODEL is a .gguf file, a Hugging Face folder with config.json, or ORG/NAME on Hugging Face."


def resolve(model: Path | str | None, reporter: Reporter = SILENT) -> Path:
    """The GGUF file to load for `model`. Downloads and converts if necessary, with notes.

    UsageError: no such path or name. A path that exists is never a name.
    """
    if model is None:
        return converted(bundled_checkpoint(), reporter)
    path = Path(model)
    if path.is_dir():
        return converted(path, reporter)
    if path.exists():
        recent.note(path)
        return path
    gguf: Path = _by_name().gguf(named(model), reporter)
    return gguf


def name_of(model: Path | str | None) -> str:
    """The model's name for clients: of its file or folder, or the whole name on a hub."""
    path = Path(model) if model is not None else bundled_checkpoint()
    return path.resolve().name.removesuffix(".gguf") if path.exists() else str(model)


def file(path: Path, reporter: Reporter = SILENT) -> Path:
    """The GGUF file for a command that reads it itself: `path`, or the file of a name. Folders are not converted."""
    name = None if path.exists() else possible_name(path)
    return path if name is None else _by_name().gguf(name, reporter)


def checkpoint(path: Path, reporter: Reporter = SILENT) -> Path:
    """The folder to convert: `path`, or the folder of a name."""
    name = None if path.exists() else possible_name(path)
    return path if name is None else _by_name().checkpoint(name, reporter)


def source(path: Path, reporter: Reporter = SILENT) -> Path:
    """The source to quantize: `path`, or the checkpoint of a name, or its GGUF file with the most bits."""
    name = None if path.exists() else possible_name(path)
    return path if name is None else _by_name().source(name, reporter)


def _by_name() -> Any:
    """The module by_name, imported only for names."""
    from . import by_name

    return by_name


def possible_name(path: Path | str) -> "Name | None":
    """The name on a hub that a missing path may be, or None if it looks like a misspelt path."""
    from ..hub import folders, names

    name = names.parse(str(path))
    if name is None or name.explicit or not Path(path).parent.is_dir():
        return name
    return name if name.repository in folders.repositories() else None


def named(model: Path | str) -> "Name":
    """As `possible_name`; UsageError instead of None."""
    name = possible_name(model)
    if name is not None:
        return name
    from ..hub import folders, names
    from ..hub.nearby import near

    text = str(model)
    more = f" For the repository of that name: hf.co/{shown(text)}" if names.parse(text) else ""
    if "/" not in text and not Path(text).suffix:
        more = near(text, folders.repositories())
    elif beside := _beside(Path(text)):
        more = f" Did you mean {shown(str(beside))}?"
    if " " in text.strip():
        more = " A prompt comes after MODEL."
    raise UsageError(f"{shown(text)}: no such file or folder. {EXPECTED}{more}")


def _beside(path: Path) -> Path | None:
    """The GGUF file or folder beside a missing path whose name is nearest to it."""
    import difflib  # slow to import

    try:
        names = [each.name for each in path.parent.iterdir() if each.suffix == ".gguf" or each.is_dir()]
    except OSError:
        return None
    near = difflib.get_close_matches(path.name, names, 1, 0.8)
    return path.parent / near[0] if near else None


def converted(folder: Path, reporter: Reporter = SILENT) -> Path:
    """The cached conversion of `folder`; converts it now if it is not cached."""
    if not (folder / "config.json").is_file():
        from ..hub.towers import is_tower

        found = (path for path in folder.glob("*.gguf") if not is_later_part(path))
        ggufs = sorted(path for path in found if not is_tower(path.name))
        if len(ggufs) == 1:
            return ggufs[0]
        if not ggufs:
            expected = "MODEL is a .gguf file or a Hugging Face folder with config.json."
            raise UsageError(f"{shown(folder)} holds no config.json and no .gguf file. {expected}")
        names = ", ".join(shown(path) for path in ggufs[:LISTED]) + ", ..." * (len(ggufs) > LISTED)
        raise UsageError(f"{shown(folder)} holds {len(ggufs)} .gguf files. Name one of them: {names}.")
    target = cache_paths.cache_path(folder)
    made_of = {"folder": str(folder.resolve())}
    if target.exists():
        cache_paths.note_use(target, made_of)
        return target

    from hybrid.convert import convert

    from . import cached_models, conversions, vision_files

    conversions.begin(target, str(folder), reporter)
    vision = vision_files.is_convertible(folder, reporter)
    with reporter.stage("converting", "bytes") as progress:
        report = convert(folder, target, vision=vision, progress=progress)
    reporter.notes(report.all_notes)
    for stale in target.parent.glob(f"{target.name.rpartition('-')[0]}-*.gguf"):
        if stale != target:
            cache_paths.remove(stale)
    cache_paths.note_use(target, made_of)
    cached_models.tidy()
    return target


def load(
    model: Path | str | None,
    options: "LoadOptions | None" = None,
    *,
    draft: Path | str | None = None,
    reporter: Reporter = SILENT,
    **fields: "Unpack[LoadFields]",
) -> "LoadedModel":
    """Resolves and loads MODEL, with the options of `LoadedModel.load`. Notes: compilation of kernels, a context
    shorter than the trained one, gaps in the file's vocabulary, and the spread over NUMA nodes.

    draft: a smaller model that guesses tokens, closed with the model. UsageError: it has another vocabulary.
    """
    return load_file(resolve(model, reporter), options, draft=draft, reporter=reporter, **fields)


def load_file(
    path: Path,
    options: "LoadOptions | None" = None,
    *,
    draft: Path | str | None = None,
    reporter: Reporter = SILENT,
    **fields: "Unpack[LoadFields]",
) -> "LoadedModel":
    """As `load`, for a GGUF file that is not noted as run lately, such as a temporary one."""
    small = None if draft is None else resolve(draft, reporter)
    from hybrid.infer import LoadedModel
    from hybrid.infer.loading.options import merged

    options = merged(options, fields)
    if small is not None:
        from hybrid.infer.answers.guessing.draft_loading import draft_bytes, load_draft

        options = replace(options, beside=options.beside + draft_bytes(small, options.n_ctx, options.n_seq_max))
    with compiling(reporter) as progress:
        loaded = LoadedModel.load(path, options, progress=progress)
    if loaded.context_note:
        reporter.note(loaded.context_note)
    reporter.notes(loaded.file_notes)
    note_numa(loaded, reporter)
    if small is not None:
        try:
            with compiling(reporter) as progress:
                helper = load_draft(small, loaded, options.n_seq_max, progress)
        except BaseException:
            loaded.close()
            raise
        reporter.note(f"{helper.model.description} guesses")
    return loaded


def is_encoder(path: Path) -> bool:
    """Whether a GGUF file makes embeddings only."""
    from hybrid.infer.architectures import encoder_of

    with open_gguf(path) as gguf:
        return encoder_of(gguf) is not None


def resolve_for_workers(model: Path | str | None, reporter: Reporter) -> Path:
    """As `resolve`, for a file that workers load. Notes gaps in its vocabulary, as `load` does."""
    from hybrid.infer.text.tokenizer import assumptions

    path = resolve(model, reporter)
    reporter.notes(assumptions(open_gguf(path)))
    return path


def note_numa(loaded: "LoadedModel | Embedder | RerankerFile", reporter: Reporter) -> None:
    """Notes the spread of memory over NUMA nodes, if the options have it."""
    if loaded.numa_note:
        reporter.note(loaded.numa_note)


@contextmanager
def compiling(reporter: Reporter) -> Iterator[Callable[[str, int, int], None]]:
    """A progress callback for loading a model: notes that kernels are compiled, which happens once per processor."""
    said = False
    with reporter.stage("compiling", "kernels") as progress:

        def step(stage: str, done: int, total: int) -> None:
            nonlocal said
            if not said:
                reporter.note(f"compiling {total} kernels for this processor (only the first time)")
                said = True
            progress(stage, done, total)

        yield step
