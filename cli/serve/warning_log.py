"""Warnings about ignored fields of a body: in the usage of its answer, and once per client in the log."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from .strict import Strict

MOST = 4096  # pairs of a client and a warning that are remembered


class WarningLog:
    """Remembers the last MOST warnings that were logged, with their clients."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[object, str], None] = OrderedDict()

    def new(self, client: object, warnings: Sequence[str]) -> list[str]:
        """The warnings not yet logged for this client; they count as logged from now on."""
        news = [each for each in warnings if (client, each) not in self._known]
        for each in warnings:
            self._known[client, each] = None
            self._known.move_to_end((client, each))
        while len(self._known) > MOST:
            self._known.popitem(last=False)
        return news


def with_warnings(usage: Mapping[str, Any], body: Strict) -> dict[str, Any]:
    """`usage`, with a list `warnings` if anything in the body was ignored."""
    return {**usage, "warnings": body.warnings} if body.warnings else dict(usage)
