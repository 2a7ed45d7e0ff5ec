"""Between which blocks a model can be cut, which values cross there, and which cuts make stages of equal size.

Found in the program recorded for one token, by the values that a block uses from earlier blocks. The residual stream
and f32 rows that layers leave to later ones by name can cross. Two things cannot: the memory of another block (layers
that use keys and values of an earlier one), and lists of chosen tokens. Every stage computes values that depend on the
batch alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from hybrid.quant.ggml.byte_sizes import size_text
from hybrid.quant.ggml.errors import UsageError

from ..engine.network import Network, Seam
from ..engine.ubatch import Control
from ..kernels.attention.kv import PAGE, CacheTypes
from ..memory import HybridMemory, RecurrentSpec, RowsSpec
from ..program.builder import Buffer, Builder, Rows, round_up
from .sizes import StageSizes


@dataclass(frozen=True)
class Cut:
    """A cut before `block`.

    width    values of the residual stream
    carried  names and widths of the other rows that cross
    refused  why the model cannot be cut here; mostly empty
    """

    block: int
    width: int
    carried: tuple[tuple[str, int], ...] = ()
    refused: str = ""

    @property
    def nbytes_per_token(self) -> int:
        """Bytes that cross here for each token."""
        return 4 * (self.width + sum(n for _, n in self.carried))


def cuts_of(network: Network, kind: CacheTypes, *, exact: bool = False) -> list[Cut]:
    """A cut before every block but the first. network: with all blocks. Raises UsageError if the model has a prefix."""
    if network.prefix is not None:
        raise UsageError(
            f"{network.weights.gguf.path.name}: a model with a prefix of {len(network.prefix)} rows before every text "
            "cannot be divided into stages. Load it on one machine."
        )
    memory = HybridMemory(network.specs, 1, PAGE, kind)
    builder = Builder(1, 1, exact=exact, batch=Control(1).batch)
    seams: list[Seam] = []
    with network.weights.trial():
        network.add_body(builder, memory, seams=seams)
    owners = _Owners(network, memory)
    reads = [_furthest(builder, owners, seams, i) for i in range(len(seams))]
    return [_cut(network, builder, seam, reads[i:]) for i, seam in enumerate(seams) if i]


class _Owners:
    """Finds the block that owns an address of the memory."""

    def __init__(self, network: Network, memory: HybridMemory) -> None:
        attention, recurrent = memory.attention, memory.recurrent
        self.ends: list[tuple[int, int, int]] = []  # first address, address after the last, block
        for part in network.parts:
            for spec in part.layer.memory():
                kept: list[np.ndarray | None]
                if isinstance(spec, RecurrentSpec):
                    kept = [recurrent.conv[spec.key], recurrent.ssm.get(spec.key)]
                elif isinstance(spec, RowsSpec):
                    kept = [attention.rows[spec.key]]
                else:
                    kept = [attention.k[spec.layer], attention.v.get(spec.layer)]
                self.ends += [(*_extent(array), part.block) for array in kept if array is not None]

    def of(self, address: int) -> int | None:
        return next((block for first, end, block in self.ends if first <= address < end), None)


def _extent(array: np.ndarray) -> tuple[int, int]:
    first = int(array.ctypes.data)
    return first, first + array.nbytes


def _furthest(b: Builder, owners: _Owners, seams: Sequence[Seam], i: int) -> tuple[int, int]:
    """The block of seam i, and the first block whose memory it uses."""
    end = seams[i + 1].op if i + 1 < len(seams) else len(b.ops)
    fields = {value for op in b.ops[seams[i].op : end] for value in op.fields if isinstance(value, int)}
    found = [block for value in fields if value > PAGE and (block := owners.of(value)) is not None]
    return seams[i].block, min(found, default=seams[i].block)


def _cut(network: Network, b: Builder, seam: Seam, reads: Sequence[tuple[int, int]]) -> Cut:
    width, at = network.stream.n, seam.block
    borrowed = next(((block, owner) for block, owner in reads if owner < at), None)
    if borrowed is not None:
        return Cut(at, width, refused=f"block {borrowed[0]} uses the memory of block {borrowed[1]}")
    alive = {id(buffer) for buffer in b.buffers if _is_alive(buffer, seam.op)}
    needed = {name: rows for name, rows in seam.named.items() if id(rows.base) in alive}
    lists = [name for name, rows in needed.items() if not _is_floats(b, rows)]
    if lists:
        return Cut(at, width, refused=f"later blocks use tokens that an earlier one has chosen ({lists[0]})")
    return Cut(at, width, tuple(sorted((name, rows.n) for name, rows in needed.items())))


def _is_alive(buffer: Buffer, op: int) -> bool:
    """Whether the buffer is written before op number `op` and still used there or later."""
    return 0 <= buffer.first < op <= buffer.last


def _is_floats(b: Builder, rows: Rows) -> bool:
    """Whether `rows` have the layout of `Builder.rows` for one column: f32, padded to 16."""
    assert isinstance(rows.base, Buffer)
    return not b.depends_on_context(rows.base) and rows.ld == round_up(rows.n, 16) * 4


# --- where to cut ---
def planned(sizes: StageSizes, cuts: Sequence[Cut], n: int, rooms: Sequence[int] = ()) -> list[range]:
    """The blocks of each of n stages, such that the largest stage has as few bytes as possible.

    rooms: free bytes of each stage's machine, if known. Each stage then fits its machine if possible; otherwise the
    largest ratio of size to room is minimal. Raises UsageError if the model cannot be cut into n stages.
    """
    most = sum(not cut.refused for cut in cuts) + 1
    if not 1 <= n <= most:
        raise UsageError(_too_many(sizes.network, cuts, n, most))
    return (rooms and fitting(sizes, cuts, rooms[:n])) or _least(
        sizes, cuts, n, lambda k, blocks: sizes.of(blocks) / (max(1, rooms[k]) if rooms else 1)
    )[0]


def fewest(sizes: StageSizes, cuts: Sequence[Cut], rooms: Sequence[int]) -> list[range]:
    """`planned` for as few machines as possible, the first of `rooms`; empty if all are too few."""
    most = min(len(rooms), sum(not cut.refused for cut in cuts) + 1)
    return next((found for n in range(1, most + 1) if (found := fitting(sizes, cuts, rooms[:n]))), [])


def fitting(sizes: StageSizes, cuts: Sequence[Cut], rooms: Sequence[int]) -> list[range]:
    """Stages as equal as possible, one for each of `rooms` and not larger than it; empty if no cuts fit."""

    def cost(k: int, blocks: range) -> float:
        return nbytes if (nbytes := sizes.of(blocks)) <= rooms[k] else inf

    blocks, worst = _least(sizes, cuts, len(rooms), cost)
    return blocks if worst < inf else []


def _least(
    sizes: StageSizes, cuts: Sequence[Cut], n: int, cost: Callable[[int, range], float]
) -> tuple[list[range], float]:
    """n stages with the smallest possible largest cost, and that cost. cost(k, blocks): of stage k with `blocks`."""
    ends = [0, *(cut.block for cut in cuts if not cut.refused), sizes.network.blocks.stop]
    # best[k][j]: largest cost of k + 1 stages that end at ends[j], and the index in `ends` where the last begins
    best: list[list[tuple[float, int]]] = [[(cost(0, range(end)), 0) for end in ends]]
    for k in range(1, n):
        row: list[tuple[float, int]] = [(inf, k)] * len(ends)
        for j in range(k + 1, len(ends)):
            row[j] = min((max(best[-1][i][0], cost(k, range(ends[i], ends[j]))), i) for i in range(k, j))
        best.append(row)
    j, blocks = len(ends) - 1, []
    for row in reversed(best):
        i = row[j][1]
        blocks.append(range(ends[i], ends[j]))
        j = i
    return blocks[::-1], best[-1][-1][0]


def _too_many(network: Network, cuts: Sequence[Cut], n: int, most: int) -> str:
    name = network.weights.gguf.path.name
    why = next((f": in front of block {cut.block}, {cut.refused}" for cut in cuts if cut.refused), "")
    size = size_text(network.weights.gguf.nbytes)
    return f"{n} stages: {name} ({size}, {network.blocks.stop} blocks) can be cut into at most {most}{why}."
