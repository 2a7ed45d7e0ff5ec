"""The file with the vision tower of a model file: the conversion's, a downloaded one, or one beside the user's file."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError
from hybrid.quant.ggml.types import FileType
from hybrid.quant.ggml.vision_names import vision_path
from hybrid.quant.planning import target_name

from .. import cache_paths
from ..hub import towers
from ..reporting import Reporter

if TYPE_CHECKING:
    from hybrid.convert import ConvertReport


def vision_of(model: Path) -> Path | None:
    """The tower of a GGUF file, found by its name: beside it, or in the same repository of the hub's cache."""
    if model.parent == cache_paths.cache_dir() / "converted":
        own = vision_path(model)
        return own if own.exists() else None
    top, is_hub = model.parent, False
    for folder in model.parents:
        if folder.parent.name == "snapshots" and folder.parent.parent.name.startswith("models--"):
            top, is_hub = folder, True
    names: list[str] = []
    with suppress(OSError):
        found = top.rglob("*.gguf") if is_hub else top.glob("*.gguf")
        names = [path.relative_to(top).as_posix() for path in found]
    tower = towers.chosen(names, model.relative_to(top).as_posix(), of_one_model=is_hub)
    return None if tower is None else top / tower


def is_convertible(folder: Path, reporter: Reporter) -> bool:
    """Whether a checkpoint's tower can be converted. A tower that is not supported is noted."""
    from hybrid.convert.plan import has_tower, prepare

    try:
        if not has_tower(folder):
            return False
        prepare(folder, tower=True)
    except (UnsupportedError, CheckpointError) as err:
        reporter.note(f"note: pictures cannot be read: {err}")
        return False
    return True


@contextmanager
def beside(
    folder: Path, model: Path, target: str, reporter: Reporter, threads: int = 0
) -> "Iterator[ConvertReport | None]":
    """Converts the tower of a checkpoint for the file `model`, which is quantized to `target` within the context: both
    files appear, or none. None: the checkpoint has no tower."""
    from hybrid.convert import vision_beside

    output, outtype = vision_path(model), tower_type(target)
    with ExitStack() as stack:
        with reporter.stage("converting", "bytes") as progress:
            written = vision_beside(folder, output, outtype=outtype, n_threads=threads, progress=progress)
            report = stack.enter_context(written)
        reporter.notes(report.notes if report else ())
        yield report


def tower_type(target: str) -> str:
    """The outtype of a tower whose text model is quantized to `target`: Q8_0 for Q8_0, else F16, as in conversions."""
    return "q8_0" if target_name(target) == FileType.Q8_0.name else "auto"
