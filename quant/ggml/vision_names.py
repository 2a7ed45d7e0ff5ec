"""The name of the file with a vision tower beside its model's file."""

from pathlib import Path

PREFIX = "mmproj-"


def vision_path(model: Path) -> Path:
    """The path of the tower's file for a model's file of this path."""
    return model.with_name(PREFIX + model.name)
