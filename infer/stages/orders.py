"""Orders of the leader to all stages: passes, and changes of their memory.

Pages of keys and values and rows of states have the leader's numbers. Every order first updates the stage's copy of the
page table. Everything here is pickled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np

from ..engine.network import Widths
from ..memory import HybridMemory
from .stage_files import Place, StageFiles

Wanted = Literal["head", "likelihood", "hidden", "none"]
Arrays = dict[str, np.ndarray]
NO_ARRAYS: Arrays = {}


@dataclass(frozen=True)
class Opening:
    """How a stage is opened: its blocks, the rows that enter and leave it, and the sizes of its memory.

    adapters  LoRA files with their scales
    """

    blocks: range
    given: Widths
    left: Widths
    n_ctx: int
    n_seq_max: int
    n_pages: int  # spare pages, besides the sequences' own
    n_rows: int  # spare rows, likewise
    n_ubatch: int
    n_threads: int
    exact: bool
    kv_type: str
    adapters: tuple[tuple[str, float], ...] = ()


class Chore(Protocol):
    """A change of the memory of every stage. `do` returns the stage's part of the answer."""

    def do(self, memory: HybridMemory) -> Arrays: ...


def of_blocks(arrays: Arrays, blocks: range) -> Arrays:
    """The arrays of some blocks. Names of arrays begin with blk.N."""
    return {name: values for name, values in arrays.items() if int(name.split(".")[1]) in blocks}


@dataclass(frozen=True, eq=False)
class Pass:
    """One ubatch.

    control  from `Control.copied`
    rows     tokens whose results are wanted; targets: for likelihoods, their target tokens
    reach    number of positions that the pass may use, see `Weights.reach`
    few      whether steps of a few tokens are worth their own kernels
    pictures from `PicturePasses.copied`, if some tokens are of pictures
    """

    control: Mapping[str, np.ndarray]
    rows: Sequence[int]
    targets: Sequence[int]
    wanted: Wanted
    reach: int
    few: bool
    pictures: Mapping[str, np.ndarray] | None = None

    @property
    def n_tok(self) -> int:
        return int(self.control["ctl"][0])


@dataclass(frozen=True)
class Order:
    """pages: changed entries of the page table: (slot, index in the slot, page)."""

    pages: Sequence[tuple[int, int, int]]
    what: "Pass | Chore | Keep | AskKept | TakeUp"

    @property
    def is_answered(self) -> bool:
        """Whether the stages answer with data."""
        return isinstance(self.what, ExportPages | ExportRow | AskKept)

    def to(self, blocks: range) -> "Order":
        """The order without arrays of other blocks."""
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


# --- files of stages ---
@dataclass(frozen=True)
class Keep:
    """Save `pages` and `rows` in the stage's files, and delete `gone_pages` and `gone_rows`. See `StageFiles`."""

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
    """Asks every stage for its saved pages and rows, i64 [n, 2] each, a `Place` per line."""

    def do(self, memory: HybridMemory, files: StageFiles) -> Arrays:
        pages, rows = files.places(memory)
        return {"pages": np.array(pages, np.int64).reshape(-1, 2), "rows": np.array(rows, np.int64).reshape(-1, 2)}


@dataclass(frozen=True)
class TakeUp:
    """Load pages and rows from the stage's files."""

    pages: list[Place]
    rows: list[Place]

    def do(self, memory: HybridMemory, files: StageFiles) -> Arrays:
        files.load(memory, self.pages, self.rows)
        return NO_ARRAYS
