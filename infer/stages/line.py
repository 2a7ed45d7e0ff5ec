"""How orders reach the stages, and how rows get from one stage to the next."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from hybrid.quant.ggml.machine_memory import MachineMemory, machine_memory
from hybrid.quant.ggml.reader import GGUFFile

from ..program.threads import Stop
from .orders import Arrays, AskKept, Chore, Keep, Opening, Order, Pass, TakeUp
from .stage import Stage
from .stage_files import StageFiles

Answer = Arrays | np.ndarray | None


class Ticket(Protocol):
    """An order that was put on the line."""

    def wait(self, stop: Stop | None) -> Sequence[Answer]:
        """Wait for the answers of all stages; for a pass, of the last stage alone.

        Raises Interrupted if `stop` is set first; the stages carry out the order all the same. Raises LostStageError if
        a stage is lost.
        """


class Line(Protocol):
    """All stages of a model. Each obeys orders one after the other; rows of a pass go from one to the next."""

    def machines(self) -> list[MachineMemory]:
        """Memory that each stage can have, in the order of the stages. Stages on one machine divide its memory."""

    def open(self, openings: Sequence[Opening], stop: Stop | None = None) -> None:
        """Open a stage with empty memory for each opening; called again after a stage was lost. Files of stages remain.

        Raises Interrupted if `stop` is set while waiting for a worker.
        """

    def put(self, order: Order) -> Ticket:
        """Give an order to all stages, without waiting."""

    def close(self) -> None: ...


class Foreman:
    """Gives the leader's orders to a line. pages: changed entries of the page table that no order has carried yet."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.pages: list[tuple[int, int, int]] = []

    def put(self, what: Pass | Chore | Keep | AskKept | TakeUp) -> Ticket:
        """Give an order, with the changed entries of the page table."""
        pages, self.pages = self.pages, []
        return self.line.put(Order(pages, what))

    def order(self, what: Chore | Keep | TakeUp) -> None:
        """Give an order whose answer is not needed. It is done before any later order."""
        self.put(what)

    def ask(self, what: Chore) -> Arrays:
        """Give an order and wait; returns the merged answers of all stages."""
        found: Arrays = {}
        for answer in self.put(what).wait(None):
            assert isinstance(answer, dict)
            found |= answer
        return found


class _Done:
    def __init__(self, answers: Sequence[Answer]) -> None:
        self.answers = answers

    def wait(self, stop: Stop | None) -> Sequence[Answer]:
        if stop is not None:
            stop.check()
        return self.answers


class LineHere:
    """All stages in this process, one after the other."""

    def __init__(self, gguf: GGUFFile) -> None:
        self.gguf = gguf
        self.stages: list[Stage] = []
        self._folder = tempfile.TemporaryDirectory(prefix="hybrid-stages-")

    def machines(self) -> list[MachineMemory]:
        return [machine_memory()]

    def open(self, openings: Sequence[Opening], stop: Stop | None = None) -> None:
        self._close(remove=False)
        folder = Path(self._folder.name) / "run"
        self.stages = [Stage(self.gguf, opening, StageFiles(folder, opening.blocks)) for opening in openings]

    def put(self, order: Order) -> Ticket:
        if isinstance(order.what, Pass):
            rows: Answer = None
            for stage in self.stages:
                assert not isinstance(rows, dict)
                rows = stage.obey(order, rows)
            return _Done([rows])
        return _Done([stage.obey(order.to(stage.blocks)) for stage in self.stages])

    def close(self) -> None:
        self._close(remove=True)
        self._folder.cleanup()

    def _close(self, *, remove: bool) -> None:
        for stage in self.stages:
            stage.close(remove=remove)
        self.stages = []
