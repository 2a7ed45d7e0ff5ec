"""An output projection of attention in two steps: a matrix per group of heads, then one for all.

DeepSeek-V4, section 2.3
"""

from dataclasses import dataclass, replace

from hybrid.quant.ggml.errors import UnsupportedError

from ..kernels.products.inputs import square_sums
from ..kernels.rows import heads
from ..loading.weights import Weights
from ..program.builder import FEW_COLUMNS, Builder, Columns, Ref, Rows, round_up


@dataclass
class GroupedOutput:
    """n_in values in n_group groups become `rank` values per group, and all of these n_out values.

    Tensors are attn_output_a, which has the rows of one group after the other, and attn_output_b.
    """

    layer: int
    n_in: int
    n_group: int
    rank: int
    n_out: int

    def load(self, w: Weights) -> None:
        if self.n_group < 1 or self.n_in % self.n_group:
            raise w.wrong("attention.output_group_count", self.n_group, f"a divisor of the {self.n_in} values of heads")
        p = f"blk.{self.layer}.attn_output_"
        whole = w.matrix(p + "a.weight", self.n_group * self.rank, self.n_in // self.n_group)
        if whole.adapters:
            raise UnsupportedError(f"{w.gguf.path.name}: an adapter of {whole.name} is not supported. Leave it out.")
        self.w_a = replace(whole, rows=self.rank, n_expert=self.n_group)
        self.w_b = w.matrix(p + "b.weight", self.n_out, self.n_group * self.rank)

    def build(self, b: Builder, x: Rows) -> Rows:
        """x [n_in] -> [n_out]."""
        few, n = b.capacity <= FEW_COLUMNS, self.n_in // self.n_group
        width = b.products.width(few)
        n_columns = self.n_group * round_up(b.capacity, width)
        groups = Ref(b.buffer(8 + 24 * self.n_group))
        b.op(heads.head_groups, count=b.batch.n_tok, n_head=self.n_group, width=width, groups=groups)
        apart, thin = b.rows(n, n_columns), b.rows(self.n_group * self.rank)
        b.op(
            heads.split_heads, name="attn_split", count=b.batch.n_tok, x=x, out=apart, n_head=self.n_group, n=n,
            stride=4 * n, width=width,
        )  # fmt: skip
        self._note_inputs(b, x, n)
        y = b.products.product(apart, self.w_a, "attn_output_a", Columns(groups, n_columns, few=few))
        b.op(
            heads.join_heads, name="attn_join", count=b.batch.n_tok, x=y, out=thin, n_head=self.n_group, n=self.rank,
            stride=4 * self.rank, width=width,
        )  # fmt: skip
        return b.matmul(thin, self.w_b, "attn_output_b")

    def _note_inputs(self, b: Builder, x: Rows, n: int) -> None:
        """Add x to an importance matrix: the groups are one matrix in the file, so their squares are added up."""
        if b.inputs is None:
            return
        sums, counts = b.inputs.addresses(self.w_a.name, 1, n)
        for g in range(self.n_group):
            b.op(
                square_sums,
                name="inputs",
                groups=b.tokens.groups,
                x=x.columns(g * n, n),
                index=b.tokens.index,
                n=n,
                sums=sums,
                counts=counts,
            )
