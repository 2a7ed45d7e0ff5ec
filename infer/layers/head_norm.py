"""RMS norms of the heads of queries and keys."""

from dataclasses import dataclass
from enum import Enum

import numpy as np

from ..kernels.rows.gated_norm import gated_norm
from ..loading.weights import Weights
from ..program.builder import Builder, Rows


class NormWeights(Enum):
    SHARED = "a vector for every head"
    OWN = "a vector for each head"
    ALL_HEADS = "one norm of all heads together"
    NONE = "a norm of every head without weights"


@dataclass(frozen=True)
class HeadNorm:
    """The RMS norm of queries and keys.

    after_rope  the norm follows RoPE; not with weights per head or one norm of all heads
    """

    eps: float
    weights: NormWeights = NormWeights.SHARED
    after_rope: bool = False

    def load(self, w: Weights, name: str, n_head: int, d_head: int) -> int:
        """The address of the weights."""
        match self.weights:
            case NormWeights.SHARED:
                return w.vector(name, d_head)
            case NormWeights.OWN:
                return w.keep(w.squeezed(name, n_head, d_head))
            case NormWeights.ALL_HEADS:
                return w.vector(name, n_head * d_head)
            case NormWeights.NONE:
                return w.keep(np.ones(d_head, np.float32))

    def key_scale(self, w: Weights, name: str, d_head: int) -> np.ndarray | None:
        """Factors of the keys after RoPE, f64 [d_head], or None."""
        if not self.after_rope or self.weights is NormWeights.NONE:
            return None
        return w.array(name, d_head).astype(np.float64)

    def apply(self, b: Builder, rows: Rows, n_head: int, weight: int) -> None:
        """Normalize in place. weight: the address of the weights."""
        n_group = 1 if self.weights is NormWeights.ALL_HEADS else n_head
        n = rows.n // n_group
        stride = 4 * n if self.weights is NormWeights.OWN else 0
        b.op(
            gated_norm,
            name="attn_norm",
            count=b.batch.n_tok,
            y=rows,
            weight=weight,
            stride=stride,
            out=rows,
            n_group=n_group,
            n=n,
            eps=float(self.eps),
        )
