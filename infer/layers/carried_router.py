"""Experts chosen by a small network that also sees what the router of the layer before saw of the token, with one
choice more than there are experts: nothing. ZAYA1, arXiv:2511.17127"""

from dataclasses import dataclass

from ..kernels.rows.affine import add_scaled_rows
from ..kernels.rows.gelu import gelu
from ..loading.weights import Weights
from ..program.builder import Builder, Rows
from .base import add_bias
from .feed_forward import MixtureOfExperts

CARRIED = "router states"  # of the layer before, in the program


@dataclass
class CarriedRouterExperts(MixtureOfExperts):
    """A layer's router state is r = D x + b, plus those of the layer before, channel by channel times `carry` (if there
    is a layer before). Scores are the softmax of W gelu(W2 gelu(W1 norm(r))); best is what is best with exp_probs_b.

    n_router  width of r
    eps       of its norm
    """

    n_router: int = 0
    eps: float = 0.0

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
