"""Operands of a program's ops: rows in an arena, weights, the batch, columns."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hybrid.quant.ggml.types import GGMLType

ALIGN = 64


def round_up(n: int, multiple: int) -> int:
    return (n + multiple - 1) // multiple * multiple


@dataclass(eq=False)
class Buffer:
    """Memory in the arena, alive from the first to the last op that names it."""

    nbytes: int
    first: int = -1
    last: int = -1
    offset: int = -1


@dataclass(frozen=True)
class Rows:
    """f32 rows of `n` values, `ld` bytes from row to row, `offset` bytes after `base` (a buffer or an address)."""

    base: "Buffer | int"
    n: int
    ld: int
    offset: int = 0

    def columns(self, first: int, n: int) -> "Rows":
        """Values first .. first + n - 1 of every row."""
        assert first + n <= self.ld // 4
        return Rows(self.base, n, self.ld, self.offset + 4 * first)

    @property
    def ref(self) -> "Ref":
        return Ref(self.base, self.offset)


@dataclass(frozen=True)
class Ref:
    """An address for an op record: `offset` bytes after `base` (a buffer or an address)."""

    base: "Buffer | int"
    offset: int = 0


@dataclass(frozen=True)
class RowRotation:
    """A rotation of rows (kernels/rows/hadamard.py): addresses of signs and places (0: all stay)."""

    block: int
    signs: int
    places: int = 0


@dataclass(frozen=True)
class LowRank:
    """What adapters add to a matrix: the address of its table (kernels/products/low_rank.py), and the largest rank."""

    table: int
    n_adapters: int
    most_rank: int


@dataclass(frozen=True)
class Weight:
    """A matrix (or a stack of them, one per expert) in memory: `rows` rows of `n` values of type `kind`."""

    name: str
    kind: GGMLType
    rows: int
    n: int
    address: int
    stride: int
    n_expert: int = 1
    keep: object = field(default=None, compare=False, repr=False)  # owner of the memory
    adapters: LowRank | None = None
    first_expert: int = 0  # of the stack that `one` has taken it from
    factors: int = 0  # address of f32 [n_expert] that multiply the products; 0: none
    rotation: "RowRotation | None" = None  # its rows are rotated, and so must be the inputs of products
    fetched: bool = False  # a stack whose used matrices are asked for before products: it may not be in memory

    @property
    def expert_stride(self) -> int:
        return self.rows * self.stride

    @property
    def nbytes(self) -> int:
        return self.rows * self.stride

    def one(self, i: int) -> "Weight":
        """Matrix i of a stack."""
        factors = self.factors + 4 * i if self.factors else 0
        address, first = self.address + i * self.expert_stride, self.first_expert + i
        return replace(self, address=address, n_expert=1, factors=factors, first_expert=first)


@dataclass(frozen=True)
class PictureBatch:
    """What a batch has besides, if some of its tokens are of pictures: addresses, and rows.

    given      i64 per token, not 0: its row is given
    rows       the given rows, instead of rows of the embedding
    added      by block: rows that are added to the residual stream before it
    positions  i64 [3][stride bytes]: position of each token in time, row and column
    index      i64 per token: its index in the batch
    """

    given: int
    rows: Rows
    added: Mapping[int, Rows]
    positions: int
    stride: int
    index: int


@dataclass(frozen=True)
class Batch:
    """Addresses of the control block that the engine fills before each run."""

    n_tok: int
    n_seg: int
    n_out: int
    ctl: int  # the three counts above, adjacent
    tokens: int
    pos: int
    slot: int
    seg: int
    out_index: int
    targets: int
    all_tokens: int  # groups record of all tokens (see kernels/products/gemv.py)
    all_outputs: int
    last: int = 0  # i64 per token: index (pos) of the last token that it sees
    near: int = 0  # the same where it sees only some tokens on both sides: in encoders
    rope_pos: int = 0  # i64 per token: position for RoPE and learned positions, mostly its index
    adapted: int = 0  # i64 per token: where its list of adapters begins, in words after `lists`
    lists: int = 0  # see kernels/products/low_rank.py
    pictures: PictureBatch | None = None


@dataclass(frozen=True)
class Columns:
    """The columns of a product, in groups.

    capacity  limit on columns, including gaps
    index     the source row of each column; 0: the column's own number
    of        the token of each column; 0: its number in its group
    """

    groups: "int | Ref"
    capacity: int
    index: "int | Ref" = 0
    of: "int | Ref" = 0
    few: bool = False  # whether every group is expected to have few columns
