"""The file with the vision tower of a model file: the conversion's, a downloaded one, or one beside the user's file."""

from contextlib import suppress
from pathlib import Path

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError
from hybrid.quant.ggml.vision_names import vision_path

from .. import cache_paths
from ..hub import towers
from ..reporting import Reporter


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


def convert(folder: Path, model: Path, reporter: Reporter) -> None:
    """Converts the tower of a checkpoint for the conversion `model`."""
    from hybrid.convert import convert_vision

    with reporter.stage("converting", "bytes") as progress:
        report = convert_vision(folder, vision_path(model), progress=progress)
    reporter.notes(report.notes if report else ())
