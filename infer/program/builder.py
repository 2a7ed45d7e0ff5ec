"""Builds programs: arrays of op records over one arena.

Layers call `Builder.op` (or the shorter `norm`, `matmul`...) in the order of execution. Nothing is allocated while a
program runs.
"""

from ..kernels.emit.isa import ISA, host
from ..kernels.products.inputs import SquareSums, square_sums
from ..kernels.products.low_rank import low_rank_inputs, low_rank_sums
from ..kernels.rows import elementwise, hadamard
from ..kernels.rows.layer_norm import layer_norm
from .operands import Batch, Buffer, Columns, LowRank, PictureBatch, Ref, Rows, Weight, round_up
from .products import FEW_COLUMNS, GEMV_COLUMNS, Products
from .record import Op, OpFields, Program, Recorder, aligned_empty

__all__ = [
    "FEW_COLUMNS",
    "GEMV_COLUMNS",
    "Batch",
    "Buffer",
    "Builder",
    "Columns",
    "Op",
    "PictureBatch",
    "Program",
    "Ref",
    "Rows",
    "Weight",
    "aligned_empty",
    "round_up",
]


class Builder(Recorder):
    """Collects the ops of one program for up to `capacity` columns on `n_threads` threads.

    adapts: some tokens have adapters.
    """

    def __init__(
        self,
        capacity: int,
        n_threads: int,
        *,
        exact: bool,
        batch: Batch,
        isa: ISA | None = None,
        adapts: bool = False,
    ) -> None:
        super().__init__(capacity, n_threads)
        self.batch, self.adapts = batch, adapts
        self.products = Products(self, isa or host(), exact=exact)
        self.named: dict[str, Rows] = {}  # rows that layers leave to later ones
        self.common: dict[str, Rows] = {}  # rows made of the batch alone, by the first layer that needs them
        self.inputs: SquareSums | None = None  # sums of squares of the inputs of weights, for importance matrices
        self.tokens = Columns(batch.all_tokens, capacity)

    def embed(self, table: Weight, out: Rows, ids: int | Ref | None = None) -> None:
        """Write to `out` the rows of `table` for the batch's tokens, or for `ids` (an address)."""
        self.op(
            elementwise.EMBED[table.kind],
            name="embed",
            count=self.batch.n_tok,
            tokens=self.batch.tokens if ids is None else ids,
            table=table.address,
            stride=table.stride,
            out=out,
            n=out.n,
        )
        if (rotation := table.rotation) is not None:
            self.op(
                hadamard.restore, name="restore", count=self.batch.n_tok, x=out, n=out.n, block=rotation.block,
                scale=hadamard.normalization(rotation.block), signs=rotation.signs,
            )  # fmt: skip

    def output_rows(self, x: Rows) -> Rows:
        """Copy the rows for which logits are wanted."""
        out, count, index = self.rows(x.n), self.batch.n_out, self.batch.out_index
        self.op(elementwise.copy_rows, name="outputs", count=count, index=index, x=x, out=out, n=x.n)
        return out

    def norm(
        self,
        x: Rows,
        weight: int,
        eps: float,
        residual: Rows | None = None,
        *,
        scale: float = 1.0,
        name: str = "norm",
        bias: int = 0,
        outputs: bool = False,
        count: int | Ref | None = None,
        out: Rows | None = None,
    ) -> Rows:
        """x += scale * residual, then RMS norm; `weight` is an address or 0. With a `bias`, layer norm.

        outputs  only the rows for which logits are wanted
        count    address of the number of rows; None: one for each token or output
        out      rows for the result, which may be x; None: new ones
        """
        out = out or self.rows(x.n)
        more: OpFields = {"bias": bias} if bias else {}
        index = self.batch.out_index if outputs else None
        if count is None:
            count = self.batch.n_out if outputs else self.batch.n_tok
        self.op(
            layer_norm if bias else elementwise.rms_norm, name=name, count=count, index=index, x=x, residual=residual,
            weight=weight, out=out, n=x.n, eps=float(eps), scale=float(scale), **more,
        )  # fmt: skip
        return out

    def matmul(self, x: Rows, w: Weight, name: str, columns: Columns | None = None, *, out: Rows | None = None) -> Rows:
        """y = W x for every column, times its factor, plus what the adapters of the column's token add.

        An index in `columns` names rows of the batch's tokens.
        out: where y is written, for example part of wider rows; None: new rows.
        """
        columns, given = columns or self.tokens, x
        if w.rotation is not None:
            x = self.products.rotated(x, w.rotation, columns if not columns.index else self.tokens)
        if self.inputs is not None:
            sums, counts = self.inputs.addresses(w.name, w.n_expert, x.n)
            self.op(
                square_sums,
                name="inputs",
                groups=columns.groups,
                x=x,
                index=columns.index,
                n=x.n,
                sums=sums,
                counts=counts,
            )
        y = self.products.product(x, w, name, columns, out)
        if w.factors:
            self.op(elementwise.scale_groups, name="scale", groups=columns.groups, x=y, factors=w.factors, n=y.n)
        if self.adapts and w.adapters is not None:
            self._adapt(given, w, w.adapters, columns, y)
        return y

    def _adapt(self, x: Rows, w: Weight, added: LowRank, columns: Columns, y: Rows) -> None:
        """Add to y what adapters add to the product of w and x."""
        n_most = added.n_adapters
        thin = self.rows(round_up(added.most_rank, 4), columns.capacity * n_most)
        same: OpFields = {
            "groups": columns.groups, "of": columns.of, "adapted": self.batch.adapted, "lists": self.batch.lists,
            "table": added.table, "n_most": n_most, "first_expert": w.first_expert,
        }  # fmt: skip
        self.op(low_rank_inputs, name="lora_a", x=x, index=columns.index, out=thin, n=x.n, **same)
        self.op(low_rank_sums, name="lora_b", thin=thin, y=y, n=y.n, **same)

    def swiglu(self, gate: Rows, up: Rows, count: "int | Ref") -> Rows:
        """silu(gate) * up, written to `gate`."""
        self.op(elementwise.swiglu, count=count, gate=gate, up=up, out=gate, n=gate.n)
        return gate

    def keep_groups(self) -> None:
        """Keep the groups of columns readable after a run, for `Program.work_of`."""
        self.keep(*(op.groups for op in self.ops if op.groups is not None))
