"""Warnings about the fields of a body that were passed over: in the usage of its answer, and once in the log."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from .strict import Strict

MOST = 4096  # pairs of a client and a warning that are remembered


class WarningLog:
    """What the log has said of each client, of the last MOST warnings."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[object, str], None] = OrderedDict()

    def new(self, client: object, warnings: Sequence[str]) -> list[str]:
        """The warnings that the log has not said of this client yet. They count as said from now on."""
        news = [each for each in warnings if (client, each) not in self._known]
        for each in warnings:
            self._known[client, each] = None
            self._known.move_to_end((client, each))
        while len(self._known) > MOST:
            self._known.popitem(last=False)
        return news


def with_warnings(usage: Mapping[str, Any], body: Strict) -> dict[str, Any]:
    """The usage of an answer to this body, with a list `warnings` where something was passed over."""
    return {**usage, "warnings": body.warnings} if body.warnings else dict(usage)
