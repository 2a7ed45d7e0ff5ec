"""What a leader tells all stages, in order: passes, and what is to be done to their memory.

Pages of keys and values and rows of states have the leader's numbers. Every order brings the leader's table of pages up
to date first. Everything here is pickled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np

from ..engine.network import Widths
from ..loading.options import KVTypeName
from ..memory import HybridMemory
from .stage_files import Place, StageFiles

Wanted = Literal["head", "likelihood", "hidden", "none"]
Arrays = dict[str, np.ndarray]
NO_ARRAYS: Arrays = {}


@dataclass(frozen=True)
class Opening:
    """How a stage is opened: which blocks of the file, what crosses, and a memory of the leader's sizes.

    adapters  LoRA files with their scales
    """

    blocks: range
    given: Widths
    left: Widths
    n_ctx: int
    n_seq_max: int
    n_pages: int  # beyond those that sequences can use
    n_rows: int  # likewise
    n_ubatch: int
    n_threads: int
    exact: bool
    kv_type: KVTypeName
    adapters: tuple[tuple[str, float], ...] = ()


class Chore(Protocol):
    """What is done to the memory of every stage; what it returns is the stage's part of the answer."""

    def do(self, memory: HybridMemory) -> Arrays: ...


def of_blocks(arrays: Arrays, blocks: range) -> Arrays:
    """Those of some blocks: their names begin with blk.N."""
    return {name: values for name, values in arrays.items() if int(name.split(".")[1]) in blocks}


@dataclass(frozen=True, eq=False)
class Pass:
    """One ubatch.

    control  as `Control.copied` has it
    rows     tokens that something is wanted of, and for likelihoods their targets
    reach    positions that it has, and that single tokens behind it have
    few      whether steps of a few tokens are worth kernels of their own
    """

    control: Mapping[str, np.ndarray]
    rows: Sequence[int]
    targets: Sequence[int]
    wanted: Wanted
    reach: int
    few: bool

    @property
    def n_tok(self) -> int:
        return int(self.control["ctl"][0])


@dataclass(frozen=True)
class Order:
    """pages: entries of the table that have changed, (slot, place in it, page)."""

    pages: Sequence[tuple[int, int, int]]
    what: "Pass | Chore | Keep | AskKept | TakeUp"

    @property
    def is_answered(self) -> bool:
        """Whether every stage has something to say."""
        return isinstance(self.what, ExportPages | ExportRow | AskKept)

    def to(self, blocks: range) -> "Order":
        """With no more than the stage of these blocks needs."""
        if isinstance(self.what, LoadPages | LoadRow):
            return replace(self, what=replace(self.what, arrays=of_blocks(self.what.arrays, blocks)))
        return self


@dataclass(frozen=True)
class CopyPage:
    source: int
    target: int

    def do(self, memory: HybridMemory) -> Arrays:
        memory.attention.copy_page(self.source, self.target)
        return NO_ARRAYS


@dataclass(frozen=True)
class MoveDown:
    """See `AttentionMemory.move_down`."""

    slot: int
    start: int
    end: int
    n: int

    def do(self, memory: HybridMemory) -> Arrays:
        memory.attention.move_down(self.slot, self.start, self.end, self.n)
        return NO_ARRAYS


@dataclass(frozen=True, eq=False)
class TurnKeys:
    """See `AttentionMemory.turn`."""

    slot: int
    start: int
    deltas: np.ndarray

    def do(self, memory: HybridMemory) -> Arrays:
        memory.attention.turn(self.slot, self.start, self.deltas)
        return NO_ARRAYS


@dataclass(frozen=True)
class ExportPages:
    """See `AttentionMemory.export`."""

    pages: list[int]
    end: int
    start: int

    def do(self, memory: HybridMemory) -> Arrays:
        return dict(memory.attention.export(self.pages, self.end, self.start))


@dataclass(frozen=True, eq=False)
class LoadPages:
    """See `AttentionMemory.load`."""

    pages: list[int]
    end: int
    arrays: Arrays
    start: int

    def do(self, memory: HybridMemory) -> Arrays:
        memory.attention.load(self.pages, self.end, self.arrays, self.start)
        return NO_ARRAYS


@dataclass(frozen=True)
class FillPages:
    """See `AttentionMemory.fill_pages`."""

    pages: list[int]

    def do(self, memory: HybridMemory) -> Arrays:
        memory.attention.fill_pages(self.pages, np.random.default_rng(0))
        return NO_ARRAYS


@dataclass(frozen=True)
class ExportRow:
    """See `RecurrentMemory.export`."""

    row: int

    def do(self, memory: HybridMemory) -> Arrays:
        return dict(memory.recurrent.export(self.row))


@dataclass(frozen=True, eq=False)
class LoadRow:
    """See `RecurrentMemory.load`."""

    row: int
    arrays: Arrays

    def do(self, memory: HybridMemory) -> Arrays:
        memory.recurrent.load(self.row, self.arrays)
        return NO_ARRAYS


@dataclass(frozen=True)
class FillRow:
    """See `RecurrentMemory.fill_row`."""

    row: int

    def do(self, memory: HybridMemory) -> Arrays:
        memory.recurrent.fill_row(self.row, np.random.default_rng(0))
        return NO_ARRAYS


# --- of what stages keep in files ---
@dataclass(frozen=True)
class Keep:
    """See `StageFiles`: pages and rows that it gets, and those that it does not need any more."""

    pages: list[Place]
    rows: list[Place]
    gone_pages: list[Place]
    gone_rows: list[Place]

    def do(self, memory: HybridMemory, files: StageFiles) -> Arrays:
        files.drop(self.gone_pages, self.gone_rows)
        files.save(memory, self.pages, self.rows)
        return NO_ARRAYS


@dataclass(frozen=True)
class AskKept:
    """Every stage lists its pages and rows, i64 [n, 2], as `StageFiles.places` gives them."""

    def do(self, memory: HybridMemory, files: StageFiles) -> Arrays:
        pages, rows = files.places(memory)
        return {"pages": np.array(pages, np.int64).reshape(-1, 2), "rows": np.array(rows, np.int64).reshape(-1, 2)}


@dataclass(frozen=True)
class TakeUp:
    """Pages and rows are as they were kept."""

    pages: list[Place]
    rows: list[Place]

    def do(self, memory: HybridMemory, files: StageFiles) -> Arrays:
        files.load(memory, self.pages, self.rows)
        return NO_ARRAYS
