"""The models that are here, by the names that `hybrid.load` takes."""

from pathlib import Path

from .pipeline import cached_models, present
from .pipeline.models import bundled_checkpoint


def here() -> list[str]:
    """Downloaded, run lately, and folders that were converted."""
    converted = [Path(model.made_of) for model in cached_models.every() if model.in_use and model.made_of]
    ours = bundled_checkpoint().resolve()
    folders = [str(path) for path in converted if path.is_absolute() and path.resolve() != ours]
    return [*present.names(), *dict.fromkeys(folders)]
