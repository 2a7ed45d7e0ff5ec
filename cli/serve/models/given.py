"""The models that the command line names: arguments, a folder, the models on this machine, a file of settings."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from hybrid.hub.towers import is_tower
from hybrid.pipeline import models, present
from hybrid.quant.ggml.errors import UsageError, shown
from hybrid.quant.ggml.split import is_later_part, stem_of
from hybrid.reporting import Reporter

from ..opening import ModelSetup, opened
from ..served import Served
from ..server_settings import ServerSettings
from .entry import ModelEntry
from .facts import facts_of
from .kept_tokenizer import KeptTokenizer
from .settings_file import ModelTable


@dataclass(frozen=True)
class Named:
    """A model and its name in requests. file: as a user types it; path: its GGUF file, None: not known before it is
    loaded."""

    name: str
    file: Path
    path: Path | None


@dataclass(frozen=True)
class GivenModels:
    """What the command line says about models.

    models    NAME=FILE or FILE each
    folder    of --models-dir
    all_here  --all: what `hybrid models` lists
    tables    of --models-file
    setup     the options for all models
    reporter  of downloads and conversions before the server runs
    alias     the name of the only model
    """

    models: Sequence[str]
    folder: Path | None
    all_here: bool
    tables: Sequence[ModelTable]
    setup: ModelSetup
    settings: ServerSettings
    idle: float | None
    reporter: Reporter
    alias: str | None = None

    def entries(self) -> list[ModelEntry]:
        """All models. UsageError: two have one name, a table is of no model, or an option is wrong."""
        named, found = list(self._first()), list(self._found())
        tables = {table.name: table for table in self.tables}
        known = {each.name for each in (*named, *found)}
        for table in self.tables:
            if table.model is not None:
                named.append(self._resolved(table.name, table.model))
            elif table.name not in known:
                raise UsageError(f"{table.where}: there is no model of this name. Add: model = FILE.")
        _check_names(named)
        return [self._entry(each, tables.get(each.name)) for each in _unique([*named, *found])]

    def rescan(self, before: Sequence[ModelEntry]) -> list[ModelEntry]:
        """The models after files came into the folder or left it; loaded ones stay."""
        if self.folder is None:
            return list(before)
        found = {each.name: each for each in self._found()}
        own = {entry.name for entry in before}
        tables = {table.name: table for table in self.tables}
        stay = [e for e in before if e.served is not None or e.loading is not None or self._is_there(e, found)]
        return stay + [self._entry(each, tables.get(name)) for name, each in found.items() if name not in own]

    @staticmethod
    def _is_there(entry: ModelEntry, found: dict[str, Named]) -> bool:
        return entry.name in found or (entry.path is not None and entry.path.exists())

    def _first(self) -> Iterator[Named]:
        """The models of arguments, resolved: downloaded or converted if necessary."""
        if not self.models and self.folder is None and not self.all_here and not self.tables:
            yield self._resolved(self.alias or models.name_of(None), None)
        for text in self.models:
            name, file = _split(text)
            yield self._resolved(self.alias or name or models.name_of(file), file)

    def _resolved(self, name: str, file: Path | None) -> Named:
        path = models.resolve(file, self.reporter)
        return Named(name, file or path, path)

    def _found(self) -> Iterator[Named]:
        """The models of the folder and of this machine."""
        if self.folder is not None:
            yield from found_in(self.folder)
        if self.all_here:
            for each in present.everything():
                if not each.trouble and each.kind is not present.ModelPlace.PARTIAL:
                    is_file = each.path.suffix == ".gguf"
                    name = models.name_of(each.path) if each.kind is present.ModelPlace.FILE else each.name
                    yield Named(name, Path(each.name), each.path if is_file else None)

    def _entry(self, named: Named, table: ModelTable | None) -> ModelEntry:
        setup = replace(self.setup, model=named.path or named.file)
        if table is not None:
            setup = table.applied(setup)
        if named.path is not None and facts_of(named.path).is_encoder:
            setup = replace(setup, keeping=replace(setup.keeping, state_dir=None))  # it keeps no texts
        opener: Callable[[Reporter], AbstractContextManager[Served]] = partial(
            opened, setup, named.name, self.settings, tokenizer=KeptTokenizer()
        )
        adapters = tuple(each.name for each in setup.loading.adapters() if each.name)
        keeps = setup.keeping.state_dir is not None
        entry = ModelEntry(named.name, named.path, opener, adapters=adapters, idle=self.idle, keeps=keeps)
        if table is not None:
            entry.aliases, entry.pinned = table.aliases, table.pinned
            entry.idle = self.idle if table.idle is None else table.idle
        return entry


def _split(text: str) -> tuple[str | None, Path]:
    """The name and the file of NAME=FILE; None where only a file is given, whose own name may have a `=`."""
    name, equals, file = text.partition("=")
    if not equals or Path(text).exists() or not name or "/" in name:
        return None, Path(text)
    return name, Path(file)


def _check_names(named: Iterable[Named]) -> None:
    """UsageError: two models have one name."""
    known: dict[str, Named] = {}
    for each in named:
        other = known.setdefault(each.name, each)
        if other is not each:
            raise UsageError(
                f"{shown(other.file)} and {shown(each.file)} are both named {shown(each.name)}. Name one of them: "
                f"NAME={each.file}."
            )


def _unique(named: Iterable[Named]) -> list[Named]:
    """Each name once: arguments and tables come first."""
    return list({each.name: each for each in reversed([*named])}.values())[::-1]


def found_in(folder: Path) -> list[Named]:
    """The models of a folder, by name: its GGUF files, its checkpoints, and the GGUF files of its other folders.
    UsageError: it cannot be read."""
    try:
        inside = sorted(folder.iterdir())
    except OSError as error:
        raise UsageError(f"{shown(folder)} cannot be read: {error.strerror or error}.") from None
    found = [Named(stem_of(path), path, path) for path in _ggufs(inside)]
    for sub in inside:
        if not sub.is_dir() or sub.name.startswith("."):
            continue
        if (sub / "config.json").is_file():
            found.append(Named(sub.name, sub, None))
            continue
        ggufs = list(_ggufs(sorted(sub.glob("*.gguf"))))
        names = [sub.name] if len(ggufs) == 1 else [f"{sub.name}/{stem_of(path)}" for path in ggufs]
        found += [Named(name, path, path) for name, path in zip(names, ggufs, strict=True)]
    return found


def _ggufs(paths: Iterable[Path]) -> Iterator[Path]:
    """The model files: no vision towers, no adapters, of a file in parts the first."""
    for path in paths:
        is_model = path.suffix == ".gguf" and not is_tower(path.name) and not is_later_part(path)
        if is_model and path.is_file() and not facts_of(path).is_adapter:
            yield path
