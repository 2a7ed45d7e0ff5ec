"""Names about files with vision towers: in their metadata, and of the file beside its model's."""

from pathlib import Path

CLIP = "clip"  # general.architecture
MMPROJ = "mmproj"  # general.type
PREFIX = "mmproj-"


def vision_path(model: Path) -> Path:
    """The path of the tower's file for a model's file of this path."""
    return model.with_name(PREFIX + model.name)
