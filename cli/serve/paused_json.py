"""Encodes large answers as JSON without stopping Python's other threads."""

from collections.abc import ItemsView
from typing import Any


class Pausing(dict[str, Any]):
    """A dict that lets other threads run while it is encoded. `json`'s C encoder holds the GIL until it ends, but for a
    subclass of dict it calls `items()` in Python, where other threads get a turn."""

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        return super().items()
