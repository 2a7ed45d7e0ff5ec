"""Conversions of a repository's checkpoint, in the same folder as conversions of local folders (../cache_paths.py).

converted/ORG--NAME-COMMIT-VERSION-TYPE.gguf   TYPE: the requested type, or `own`: the checkpoint's own
converted/ORG--NAME-COMMIT-VERSION-TYPE.json   {"repository", "commit", "revision", "type"}; its time: the last use
"""

import hashlib
import json
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from hybrid.quant.ggml.errors import HybridError, Remedy, UsageError
from hybrid.quant.ggml.installed import installed_version
from hybrid.quant.ggml.types import FileType

from .. import cache_paths
from ..hub.names import Name
from ..reporting import Reporter
from . import vision_files

OWN = "own"
_CONVERTED = (FileType.F32, FileType.F16, FileType.BF16, FileType.NVFP4, FileType.PQ2_0)  # without loss


def folder() -> Path:
    """The folder of all conversions, also of local folders."""
    return cache_paths.cache_dir() / "converted"


def path(repository: str, commit: str, kind: FileType | None) -> Path:
    """The path for the conversion of a commit to this type, which need not exist."""
    ours = hashlib.sha256(installed_version("hybrid-lm").encode()).hexdigest()[:8]
    name = f"{repository.replace('/', '--')}-{commit[:12]}-{ours}-{kind.name if kind is not None else OWN}.gguf"
    return folder() / name


def note_use(model: Path, name: Name, commit: str) -> None:
    """Notes the source that `model` was converted from, and the time of this use, to the hour."""
    kind = model.stem.rpartition("-")[2]
    facts = {"repository": name.repository, "commit": commit, "revision": name.revision, "type": kind}
    cache_paths.note_use(model, facts)


def begin(target: Path, checkpoint: str, reporter: Reporter, name: str = "") -> None:
    """Makes the folder, and notes the start of a conversion; name: as requested. UsageError: it cannot be written."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise UsageError(
            f"{target.parent}: cannot keep the converted model there ({err.strerror}).",
            remedy=Remedy.CONVERT_TO_FILE,
            value=checkpoint,
        ) from err
    reporter.note(f"converting {name or checkpoint} once, into {target}")


def convert(name: Name, folder: Path, target: Path, kind: FileType | None, reporter: Reporter) -> None:
    """Converts, and quantizes in the same pass: no larger file is written."""
    from hybrid.convert import convert as converted
    from hybrid.quant import quantize

    from .checkpoint_source import CheckpointSource

    begin(target, name.with_choice(""), reporter, str(name))
    try:
        vision = vision_files.is_convertible(folder, reporter)
        if kind is None or kind in _CONVERTED:
            outtype = kind.name.lower() if kind else "auto"
            with reporter.stage("converting", "bytes") as progress:
                report = converted(folder, target, outtype=outtype, vision=vision, progress=progress)
            reporter.notes(report.all_notes)
        else:
            source = CheckpointSource(folder, vision=vision)
            reporter.notes(source.notes)
            tower = vision_files.beside(folder, target, kind.name, reporter) if vision else nullcontext()
            with tower, reporter.stage("quantizing", "bytes") as progress:
                quantize(source, target, kind, progress=progress)
    except HybridError as err:
        raise type(err)(f"{name}: {err}", remedy=err.remedy, value=err.value) from err


@dataclass(frozen=True)
class ConversionFacts:
    """The source of a conversion. type: as in its name."""

    repository: str
    commit: str
    revision: str
    type: str

    @property
    def name(self) -> str:
        """The name to type for it."""
        return str(Name(self.repository, "" if self.type == OWN else self.type, "", self.revision))

    @property
    def path(self) -> Path:
        """The path at which this version looks for it."""
        return path(self.repository, self.commit, FileType.__members__.get(self.type))


def read_note(model: Path) -> ConversionFacts | None:
    """The facts of a conversion; None if it is unknown, or of a local folder."""
    try:
        facts = json.loads(cache_paths.about(model).read_bytes())
        return ConversionFacts(*(str(facts[key]) for key in ("repository", "commit", "revision", "type")))
    except (OSError, ValueError, KeyError, TypeError):
        return None
