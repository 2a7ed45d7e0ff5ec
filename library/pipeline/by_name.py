"""Resolves a name on a hub to files on this disk: from the caches without network access, or downloaded now.

`gguf` gives the file to load, `checkpoint` the folder to convert, `source` the best source for quantization.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hybrid.quant.ggml.byte_sizes import size_text
from hybrid.quant.ggml.errors import HybridError, UsageError, shown
from hybrid.quant.ggml.types import FileType

from ..hub import api, checkpoints, choice, download, folders, towers, type_tags
from ..hub.names import Name
from ..hub.repository import Listing, RepoFile
from ..reporting import Reporter
from . import cached_models, conversions

MANY_BYTES = 2 << 30  # bytes of weights, above which a note suggests smaller types


def gguf(name: Name, reporter: Reporter) -> Path:
    """The GGUF file (of a split model the first part): cached, downloaded, or converted."""
    found = cached(name, reporter)
    return found if found is not None else pull(name, reporter)


def cached(name: Name, reporter: Reporter) -> Path | None:
    """The GGUF file of a name if it is complete on this disk, or None."""
    for listing, complete in folders.known(name.repository, name.revision):
        models = choice.ggufs(listing.files)
        found = choice.chosen(models, name)
        if found is not None and all(folders.is_here(name.repository, listing.commit, file) for file in found.files):
            if not complete and not (name.type or name.file) and found.tag != type_tags.DEFAULT:
                reporter.note(
                    f"{name.with_choice(found.tag)} is on this machine; `hybrid pull {name}` gets the default type"
                )
            return folders.pointer(name.repository, listing.commit, found.files[0].path)
        if models or name.file or listing.file(checkpoints.CONFIG) is None:
            continue
        kind = checkpoints.file_type(name)
        kept = conversions.path(name.repository, listing.commit, kind)
        if not kept.exists() and _has_all(listing, complete):
            conversions.convert(name, folders.snapshot(name.repository, listing.commit), kept, kind, reporter)
        if kept.exists():
            conversions.note_use(kept, name, listing.commit)
            return kept
    return None


def _has_all(listing: Listing, complete: bool) -> bool:
    """Whether the whole checkpoint is on this disk; complete: the list is the hub's."""
    folder = folders.snapshot(listing.repository, listing.commit)
    if not (folder / checkpoints.CONFIG).is_file():
        return False
    files = checkpoints.weights(listing, folder)
    if not complete:
        return bool(files) and checkpoints.indexed(folder) <= {file.path for file in files}
    files = [*checkpoints.small_files(listing), *files]
    return all(folders.is_here(listing.repository, listing.commit, file) for file in files)


def checkpoint(name: Name, reporter: Reporter) -> Path:
    """The folder of a repository's checkpoint, with all files that a conversion reads."""
    if name.type or name.file:
        raise UsageError(f"{name}: a checkpoint has no choice of types. Name {name.with_choice('')}")
    for listing, complete in folders.known(name.repository, name.revision):
        if _has_all(listing, complete):
            return folders.snapshot(name.repository, listing.commit)
    listing = _asked(name)
    if not checkpoints.has_checkpoint(listing):
        raise UsageError(f"{name.repository} has no checkpoint to convert ({_content(listing)}).")
    return _brought_checkpoint(name, listing, reporter)


def source(name: Name, reporter: Reporter) -> Path:
    """The source for quantization: a checkpoint folder, or the GGUF file with the most bits; if the name has a type,
    that file."""
    if name.type or name.file:
        return gguf(name, reporter)
    known = [listing for listing, complete in folders.known(name.repository, name.revision) if complete]
    listing = known[0] if known else _asked(name)
    if checkpoints.has_checkpoint(listing):
        return checkpoint(name, reporter)
    return gguf(Name(name.repository, choice.most_bits(choice.ggufs(listing.files)), "", name.revision), reporter)


# --- from the hub ---
def _asked(name: Name) -> Listing:
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        raise _offline(name)
    return api.listing(name.repository, name.revision)


def _offline(name: Name) -> HybridError:
    here = sorted({tag for tag in _tags_here(name) if tag})
    if here:
        return UsageError(
            f"{name}: it is not in the cache, and HF_HUB_OFFLINE forbids downloads. On this machine: {', '.join(here)}."
        )
    return api.offline(str(name))


def _tags_here(name: Name) -> list[str]:
    commit = folders.commit_of(name.repository, name.revision)
    if commit is None:
        return []
    return [model.tag for model in choice.ggufs(folders.present(name.repository, commit))]


def pull(name: Name, reporter: Reporter) -> Path:
    """As `gguf`, but asks the hub for its current contents."""
    listing = _asked(name)
    models = choice.ggufs(listing.files)
    if not models and not name.file and checkpoints.has_checkpoint(listing):
        return _converted(name, listing, reporter)
    found = choice.chosen(models, name)
    if found is None:
        raise _absent(name, listing, models)
    _check_architecture(listing)
    tower = towers.chosen((file.path for file in listing.files), found.files[0].path, of_one_model=True)
    files = [*found.files, *(file for file in listing.files if file.path == tower)]
    _bring(name, listing, files, 0, reporter)
    return folders.pointer(name.repository, listing.commit, found.files[0].path)


def _absent(name: Name, listing: Listing, models: Sequence[choice.GGUFChoice]) -> HybridError:
    if not models:
        return UsageError(f"{name.repository} has no weights that can be run ({_content(listing)}).")
    if name.file:
        return UsageError(f"{name.repository} has no model {shown(name.file)}. It has {choice.listed([*models])}.")
    return UsageError(f"{name.repository} has no type {shown(name.type)}. It has {choice.listed([*models])}.")


def _content(listing: Listing) -> str:
    """Contents of a repository for an error message: `3 files: README.md, adapter.gguf, config.json`."""
    names = [shown(file.path, 60) for file in listing.files]
    more = ", ..." if len(names) > 6 else ""
    count = f"{len(names)} file{'s' * (len(names) != 1)}"
    return f"{count}: {', '.join(names[:6])}{more}" if names else "it is empty"


def _check_architecture(listing: Listing) -> None:
    """UnsupportedError before the download, if the hub names an unsupported architecture."""
    from hybrid.infer.architectures import ENCODERS, FAMILIES
    from hybrid.quant.ggml.errors import UnsupportedError

    if listing.architecture and listing.architecture not in {**FAMILIES, **ENCODERS}:
        raise UnsupportedError(
            f"{listing.repository}: the architecture {shown(listing.architecture)} is not supported. "
            "Nothing was downloaded."
        )


def _bring(name: Name, listing: Listing, files: Sequence[RepoFile], more: int, reporter: Reporter) -> None:
    """Downloads files and notes the revision's contents; more: bytes that the next step will need."""
    needed = download.missing(listing, files)
    download.check_room({folders.hub(): needed, conversions.folder(): more}, str(name))
    with _goes_on(name), reporter.stage("downloading", "bytes") as progress:
        if needed:
            total = sum(file.nbytes for file in files)
            there = f", {size_text(total - needed)} of them already on this machine" if needed < total else ""
            reporter.note(f"downloading {name} ({size_text(total)}{there}) into {folders.hub()}")
        download.download(
            listing, files, lambda path, done, total: progress(Path(path).name, done, total), reporter.note
        )
    folders.set_commit(name.repository, name.revision, listing.commit)
    folders.write_note(listing, name.revision)


@contextmanager
def _goes_on(name: Name) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted; the partial download of {name} is kept, and the same command continues it"
        ) from None


def _brought_checkpoint(
    name: Name, listing: Listing, reporter: Reporter, kind: FileType | None = None, *, converts: bool = False
) -> Path:
    folder = folders.snapshot(name.repository, listing.commit)
    small = checkpoints.small_files(listing)
    with _goes_on(name):
        download.download(listing, small[:1], lambda path, done, total: None, reporter.note)
    checkpoints.check_supported(name.repository, folder / checkpoints.CONFIG)
    with _goes_on(name):
        download.download(listing, small, lambda path, done, total: None, reporter.note)
    files = checkpoints.weights(listing, folder)
    _bring(name, listing, [*small, *files], checkpoints.estimated(files, kind) if converts else 0, reporter)
    return folder


def _converted(name: Name, listing: Listing, reporter: Reporter) -> Path:
    kind = checkpoints.file_type(name)
    kept = conversions.path(name.repository, listing.commit, kind)
    if not kept.exists():
        nbytes = sum(file.nbytes for file in checkpoints.weights(listing, None))
        if kind is None and nbytes > MANY_BYTES:
            usual = name.with_choice(type_tags.DEFAULT)
            reporter.note(f"{name} has no GGUF file; {usual} would be quantized during conversion, and smaller")
        folder = _brought_checkpoint(name, listing, reporter, kind, converts=True)
        conversions.convert(name, folder, kept, kind, reporter)
        cached_models.tidy()
    else:
        folders.set_commit(name.repository, name.revision, listing.commit)
        folders.write_note(listing, name.revision)
    conversions.note_use(kept, name, listing.commit)
    return kept
