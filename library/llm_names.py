"""The models that are here, by the names that `hybrid.load` takes."""

from contextlib import suppress

from hybrid.cli.chains import cached_models
from hybrid.cli.hub import folders


def here() -> list[str]:
    """In the hub's cache, and what was converted."""
    with suppress(OSError):
        converted = [
            model.made_of for model in cached_models.every() if model.in_use and model.path.parent.name == "converted"
        ]
        return [*folders.repositories(), *dict.fromkeys(filter(None, converted))]
    return []
