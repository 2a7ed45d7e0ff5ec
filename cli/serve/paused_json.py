"""Large answers as JSON, while other threads of Python go on."""

from collections.abc import ItemsView
from typing import Any


class Pausing(dict[str, Any]):
    """The encoder of `json` is written in C, and no other thread runs until it has ended. It asks a dictionary that is
    not just a dict for its items by a call of Python, at which others get their turn."""

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        return super().items()
