"""What a model may be: a GGUF file, a Hugging Face folder, ORG/NAME on a hub (../hub/names.py), or
nothing for the bundled model.

A folder is converted once; the file is kept in the user's cache directory under a name made of the folder's path and
the names, sizes and times of its files, so that a changed folder is converted again and the old file removed.
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
    from hybrid.infer.loading.options import LoadFields, LoadOptions

    from ..hub.names import Name


def bundled_checkpoint() -> Path:
    """The trained 11 M parameter Jamba that comes with the package, as a Hugging Face folder."""
    return Path(str(files("hybrid"))) / "bundled" / "jamba-11m"


def bundled_prose() -> Path:
    """A few pages about attention, state and memory: what `hybrid demo` measures perplexity on."""
    return Path(str(files("hybrid"))) / "bundled" / "prose.txt"


EXPECTED = "MODEL is a .gguf file, a Hugging Face folder with config.json, or ORG/NAME on Hugging Face."


def resolve(model: Path | str | None, reporter: Reporter = SILENT) -> Path:
    """The GGUF file to load for `model`; downloads what is named and converts on first use, and says so.

    UsageError: there is no such path or name. A path that exists is never a name.
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
    """What to call it before clients: its file's or folder's name, or all of a name on a hub."""
    path = Path(model) if model is not None else bundled_checkpoint()
    return path.resolve().name.removesuffix(".gguf") if path.exists() else str(model)


def file(path: Path, reporter: Reporter = SILENT) -> Path:
    """A GGUF file for a command that reads it itself: `path`, or what a name stands for. No folder is converted."""
    name = None if path.exists() else possible_name(path)
    return path if name is None else _by_name().gguf(name, reporter)


def checkpoint(path: Path, reporter: Reporter = SILENT) -> Path:
    """What to convert: `path`, or the folder that a name stands for."""
    name = None if path.exists() else possible_name(path)
    return path if name is None else _by_name().checkpoint(name, reporter)


def source(path: Path, reporter: Reporter = SILENT) -> Path:
    """What to quantize: `path`, or the checkpoint of a name, or else its GGUF file with the most bits."""
    name = None if path.exists() else possible_name(path)
    return path if name is None else _by_name().source(name, reporter)


def _by_name() -> Any:
    """What brings names to this disk. Imported when there is one."""
    from . import by_name

    return by_name


def possible_name(path: Path | str) -> "Name | None":
    """The name on a hub that a path that does not exist can be; None where it is rather one that was mistyped."""
    from ..hub import folders, names

    name = names.parse(str(path))
    if name is None or name.explicit or not Path(path).parent.is_dir():
        return name
    return name if name.repository in folders.repositories() else None


def named(model: Path | str) -> "Name":
    """The same; UsageError for a path that does not exist."""
    name = possible_name(model)
    if name is not None:
        return name
    from ..hub import folders, names
    from ..hub.nearby import near

    text = str(model)
    more = f" For the one of that name there: hf.co/{shown(text)}" if names.parse(text) else ""
    if "/" not in text and not Path(text).suffix:
        more = near(text, folders.repositories())
    raise UsageError(f"{shown(text)}: no such file or folder. {EXPECTED}{more}")


def converted(folder: Path, reporter: Reporter = SILENT) -> Path:
    """The cached conversion of `folder`, made now if there is not one yet."""
    if not (folder / "config.json").is_file():
        ggufs = sorted(path for path in folder.glob("*.gguf") if not is_later_part(path))
        if len(ggufs) == 1:
            return ggufs[0]
        content = f"{len(ggufs)} .gguf files; name one of them" if ggufs else "no config.json and no .gguf file"
        raise UsageError(f"{folder} holds {content}. MODEL is a .gguf file or a Hugging Face folder with config.json.")
    target = cache_paths.cache_path(folder)
    made_of = {"folder": str(folder.resolve())}
    if target.exists():
        cache_paths.note_use(target, made_of)
        return target

    from hybrid.convert import convert

    from . import cached_models, conversions

    conversions.begin(target, str(folder), reporter)
    with reporter.stage("converting", "bytes") as progress:
        report = convert(folder, target, progress=progress)
    reporter.notes(report.notes)
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
    """Resolves and loads MODEL, as `LoadedModel.load` has the options; notes when kernels are compiled, when the
    context is not what the model was trained for, what the file does not say of its vocabulary, and how memory was
    spread over nodes where that is asked for.

    draft: a smaller model that guesses, closed with the model. UsageError: it has another vocabulary.
    """
    path = resolve(model, reporter)
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
    reporter.notes(loaded.tokenizer_notes)
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
    from hybrid.infer.architectures import ENCODERS

    with open_gguf(path) as gguf:
        return gguf.get("general.architecture", "") in ENCODERS


def resolve_for_workers(model: Path | str | None, reporter: Reporter) -> Path:
    """`resolve`, where workers load the file. Notes gaps in its vocabulary, as `load` does."""
    from hybrid.infer.text.tokenizer import assumptions

    path = resolve(model, reporter)
    reporter.notes(assumptions(open_gguf(path)))
    return path


def note_numa(loaded: "LoadedModel | Embedder", reporter: Reporter) -> None:
    """Notes how memory was spread over nodes, where that was asked for."""
    if loaded.numa_note:
        reporter.note(loaded.numa_note)


@contextmanager
def compiling(reporter: Reporter) -> Iterator[Callable[[str, int, int], None]]:
    """Progress for whatever loads a model: says that kernels are compiled, which happens once per processor."""
    said = False
    with reporter.stage("compiling", "kernels") as progress:

        def step(stage: str, done: int, total: int) -> None:
            nonlocal said
            if not said:
                reporter.note(f"compiling {total} kernels for this processor (only the first time)")
                said = True
            progress(stage, done, total)

        yield step
