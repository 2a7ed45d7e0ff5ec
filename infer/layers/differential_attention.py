"""Differential attention: one softmax attention minus lambda times another. Ye et al. 2024, arXiv:2410.05258."""

import math
from dataclasses import dataclass

import numpy as np

from hybrid.quant.ggml.errors import FormatError

from ..kernels.attention.differential import spread_pairs, subtract_pairs
from ..kernels.rows.gated_norm import gated_norm
from ..loading.weights import Weights
from ..memory import HybridMemory
from ..program.builder import Builder, Rows
from .attention import Attention
from .shared_keys import BorrowedKeys

LARGEST = 1e30  # limit of lambda: lambda times values must stay finite


def first_lambda(depth: int) -> float:
    """The base value of lambda in a layer with `depth` layers before it."""
    return 0.8 - 0.6 * math.exp(-0.3 * depth)


@dataclass
class DifferentialAttention(Attention):
    """n_head queries in pairs over n_kv pairs of keys and of values.

    d_head is the size of a pair, twice the size of a query or key. Both queries of a pair read the same values: those
    of the pair, concatenated.

    sub_eps  of the RMS norm of every difference

    The weights attn_lambda [4, d_head / 2] are q1, k1, q2 and k2:
    lambda = exp(q1 . k1) - exp(q2 . k2) + `first_lambda`; the norm's weights are multiplied by 1 - `first_lambda`.
    """

    sub_eps: float = 1e-5

    def __post_init__(self) -> None:
        self.scale = self.scale or 1 / math.sqrt(self.d_head // 2)
        super().__post_init__()

    @property
    def by_number(self) -> int:
        return self.block if self.block >= 0 else self.layer

    def projections(self) -> dict[str, int]:
        return {**super().projections(), "q": self.n_head * self.d_head // 2}

    def returned(self) -> int:
        return self.n_head * self.d_value // 2

    def load(self, w: Weights) -> None:
        super().load(w)
        depth = self.by_number
        p, usual = f"blk.{depth}.", first_lambda(depth)
        q1, k1, q2, k2 = w.array(p + "attn_lambda", 4, self.d_head // 2).astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            self.factor = float(np.exp(q1 @ k1) - np.exp(q2 @ k2) + usual)
        if not abs(self.factor) < LARGEST:
            raise FormatError(
                f"{w.gguf.path.name}: {p}attn_lambda makes lambda {self.factor:g}, expected less than {LARGEST:g}. "
                "Convert the model again."
            )
        self.sub_norm = w.vector(p + "attn_sub_norm.weight", self.d_value, lambda x: x * np.float32(1 - usual))

    def attend(self, b: Builder, q: Rows, memory: HybridMemory) -> Rows:
        count, n_pair, half = b.batch.n_tok, self.n_head // 2, self.d_head // 2
        spread, less = b.rows(self.n_head * self.d_head), b.rows(self.returned())
        b.op(spread_pairs, count=count, x=q, out=spread, n_pair=n_pair, n=half)
        both = super().attend(b, spread, memory)
        b.op(subtract_pairs, count=count, x=both, out=less, n_pair=n_pair, n=self.d_value, factor=self.factor)
        b.op(
            gated_norm, name="attn_sub_norm", count=count, y=less, weight=self.sub_norm, stride=0, out=less,
            n_group=n_pair, n=self.d_value, eps=float(self.sub_eps),
        )  # fmt: skip
        return less


@dataclass
class BorrowedDifferential(BorrowedKeys, DifferentialAttention):
    """Differential attention with the weights of `block` over the keys and values of `layer`."""
