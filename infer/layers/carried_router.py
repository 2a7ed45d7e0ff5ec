"""Experts chosen by a small network that also reads the router state of the layer before. ZAYA1, arXiv:2511.17127

There is one choice more than experts: it adds nothing.
"""

from dataclasses import dataclass

from ..kernels.rows.affine import add_scaled_rows
from ..kernels.rows.gelu import gelu
from ..loading.weights import Weights
from ..program.builder import Builder, Rows
from .base import add_bias
from .feed_forward import MixtureOfExperts

CARRIED = "router states"  # name of the states of the layer before, in the program


@dataclass
class CarriedRouterExperts(MixtureOfExperts):
    """Experts with a router state r = D x + b + carry * (r of the layer before, if there is one).

    Scores are the softmax of W gelu(W2 gelu(W1 norm(r))); the choice is by score plus exp_probs_b.

    n_router  width of r
    eps       of its norm
    """

    n_router: int = 0
    eps: float = 0.0

    @property
    def by_number(self) -> bool:
        return self.layer == 0

    def load_router(self, w: Weights) -> None:
        p, n = f"blk.{self.layer}.ffn_router_", self.n_router
        n_in = {"in": self.n_embd, "fc1": n, "fc2": n}
        self.w = {part: w.matrix(f"{p}{part}.weight", n, columns) for part, columns in n_in.items()}
        self.router_biases = {part: w.vector(f"{p}{part}.bias", n) for part in n_in}
        self.norm = w.vector(p + "norm.weight", n)
        self.carry = w.vector(p + "carry.weight", n) if self.layer else 0
        n_score = self.router.n_score
        self.w_router = w.matrix(f"blk.{self.layer}.ffn_gate_inp.weight", n_score, n)
        self.bias = w.vector(f"blk.{self.layer}.exp_probs_b.bias", n_score)

    def logits(self, b: Builder, x: Rows) -> Rows:
        state = add_bias(b, b.matmul(x, self.w["in"], "ffn_router_in"), self.router_biases["in"])
        if self.carry:
            before = b.named[CARRIED]
            b.op(add_scaled_rows, count=b.batch.n_tok, x=state, more=before, weight=self.carry, n=state.n)
        b.named[CARRIED] = state
        rows = b.norm(state, self.norm, self.eps, name="ffn_router_norm")
        for part in ("fc1", "fc2"):
            rows = add_bias(b, b.matmul(rows, self.w[part], f"ffn_router_{part}"), self.router_biases[part])
            b.op(gelu, count=b.batch.n_tok, x=rows, n=rows.n)
        return b.matmul(rows, self.w_router, "ffn_router")
