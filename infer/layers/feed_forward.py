"""Feed-forward parts: gated (SwiGLU, arXiv:2002.05202), with a squared ReLU (arXiv:2109.08668), and experts of both
kinds."""

from dataclasses import dataclass, field
from mmap import PAGESIZE
from typing import Literal, NamedTuple

import numpy as np

from hybrid.quant.ggml.errors import FormatError

from ..kernels.build.jit import Kernel
from ..kernels.rows import elementwise, moe
from ..kernels.rows.clamped_swiglu import clamped_swiglu
from ..kernels.rows.fetch import fetch_experts
from ..kernels.rows.moe import ChosenBy, Scoring
from ..kernels.rows.situ import situ
from ..loading.weights import Weights
from ..memory import HybridMemory
from ..program.builder import Builder, Columns, Ref, Rows, Weight, round_up
from ..program.record import OpFields
from .base import LayerAdapter, MemorySpec, add_bias, optional_bias
from .router import Router


class Situ(NamedTuple):
    """A gate whose factors are smoothly limited, see `situ`; linear_beta 0: only the first factor is."""

    beta: float
    linear_beta: float


Activation = Literal["silu", "gelu", "gelu_erf"] | Situ  # gelu: the tanh approximation
GATES = {"silu": elementwise.swiglu, "gelu": elementwise.geglu, "gelu_erf": elementwise.geglu_erf}


class Clamp(NamedTuple):
    """A gate that clamps its inputs, see `clamped_swiglu`."""

    limit: float
    alpha: float = 1.0
    offset: float = 0.0


def apply_gate(b: Builder, gate: Rows, up: Rows, count: int | Ref, activation: Activation, clamp: Clamp | None) -> Rows:
    """Apply the activation between a gated part's products to `count` rows; the result replaces `gate`."""
    if isinstance(activation, Situ):
        beta, linear_beta = map(float, activation)
        b.op(situ, count=count, gate=gate, up=up, out=gate, n=gate.n, beta=beta, linear_beta=linear_beta)
    elif clamp is None:
        b.op(GATES[activation], count=count, gate=gate, up=up, out=gate, n=gate.n)
    else:
        limit, alpha, offset = map(float, clamp)
        b.op(clamped_swiglu, count=count, gate=gate, up=up, out=gate, n=gate.n, alpha=alpha, limit=limit, offset=offset)
    return gate


@dataclass
class GatedFeedForward:
    """down(act(gate(x)) * up(x)), with biases where the file has them.

    suffix: of the tensors' names, '_shexp' for a shared expert.
    weighted: the result is multiplied by a sigmoid of one number per token, the product with ffn_gate_inp_shexp.
    activation: of the gate.
    fused: ffn_up holds the rows of the gate, then of up.
    block: the layer whose weights it uses; -1: its own.
    rank: of this layer's own low-rank addition to the shared input projection (fused only); 0: no addition.
    clamp: limits of the gate's inputs, or None.
    """

    layer: int
    n_embd: int
    n_ff: int
    suffix: str = ""
    weighted: bool = False
    activation: Activation = "silu"
    fused: bool = False
    block: int = -1
    rank: int = 0
    clamp: Clamp | None = None

    def load(self, w: Weights) -> None:
        p = f"blk.{self.block if self.block >= 0 else self.layer}."
        if self.weighted:
            self.w_weight = w.matrix(p + "ffn_gate_inp_shexp.weight", 1, self.n_embd)
        sizes = {"up": 2 * self.n_ff} if self.fused else {"gate": self.n_ff, "up": self.n_ff}
        self.w_in = {part: w.matrix(f"{p}ffn_{part}{self.suffix}.weight", n, self.n_embd) for part, n in sizes.items()}
        self.w_down = w.matrix(f"{p}ffn_down{self.suffix}.weight", self.n_embd, self.n_ff)
        self.adapter = (
            LayerAdapter(f"blk.{self.layer}.ffn_up", sizes["up"], self.n_embd, self.rank) if self.rank else None
        )
        if self.adapter:
            self.adapter.load(w)
        sizes["down"] = self.n_embd
        self.bias = {part: optional_bias(w, f"{p}ffn_{part}{self.suffix}.weight", n) for part, n in sizes.items()}

    def memory(self) -> tuple[MemorySpec, ...]:
        return ()

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        rows = [
            add_bias(b, b.matmul(x, w, f"ffn_{part}{self.suffix}"), self.bias[part]) for part, w in self.w_in.items()
        ]
        if self.adapter:
            self.adapter.add(b, x, rows[-1])
        gate, up = (rows[0].columns(i * self.n_ff, self.n_ff) for i in range(2)) if self.fused else rows
        self.limit_gate(b, gate)
        apply_gate(b, gate, up, b.batch.n_tok, self.activation, self.clamp)
        out = add_bias(b, b.matmul(gate, self.w_down, "ffn_down" + self.suffix), self.bias["down"])
        if self.weighted:
            weight = b.matmul(x, self.w_weight, "ffn_router_shexp")
            b.op(elementwise.gate_rows, count=b.batch.n_tok, x=out, gate=weight, n=out.n, one_gate=1)
        return out

    def limit_gate(self, b: Builder, gate: Rows) -> None:
        """Hook: change the gate's product before its activation, in place."""


@dataclass
class FeedForward:
    """Without a gate: down(act(up(x))), with biases where the file has them. suffix: of the tensors' names.

    act: an op in place on rows (count, x, n)
    constants: further fields of that op
    """

    layer: int
    n_embd: int
    n_ff: int
    suffix: str = ""
    act: Kernel = elementwise.relu_squared
    constants: OpFields = field(default_factory=dict)

    def load(self, w: Weights) -> None:
        up, down = (f"blk.{self.layer}.ffn_{part}{self.suffix}.weight" for part in ("up", "down"))
        self.w_up, self.w_down = w.matrix(up, self.n_ff, self.n_embd), w.matrix(down, self.n_embd, self.n_ff)
        self.bias = optional_bias(w, up, self.n_ff), optional_bias(w, down, self.n_embd)

    def memory(self) -> tuple[MemorySpec, ...]:
        return ()

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        up = add_bias(b, b.matmul(x, self.w_up, "ffn_up" + self.suffix), self.bias[0])
        b.op(self.act, count=b.batch.n_tok, x=up, n=up.n, **self.constants)
        return add_bias(b, b.matmul(up, self.w_down, "ffn_down" + self.suffix), self.bias[1])


@dataclass(frozen=True)
class LatentExperts:
    """A space of n values in which experts read and return rows.

    ffn_NAME_down maps the token's row into it, ffn_NAME_up maps the sum of the experts back.

    norm_eps  of a norm before ffn_NAME_up; 0: no norm
    """

    n: int
    name: str = "latent"
    norm_eps: float = 0.0


ALWAYS = 1e30  # bias of experts that every token uses


@dataclass
class MixtureOfExperts:
    """The experts that a router chooses for each token, weighted by their scores.

    gated        experts have gates (SwiGLU), otherwise a squared ReLU
    activation   of the gate
    fused        ffn_gate_up_exps holds the rows of the gate, then of up
    clamp        limits of the gate's inputs, or None
    factors      finally multiply each expert's weight by ffn_down_exps.scale
    biased       the router and all matrices of experts have biases
    weighs_input the weight multiplies the expert's input (its gate and up products), not its result
    latent       the space in which experts read and return rows; None: the token's width
    """

    layer: int
    n_embd: int
    n_ff: int
    router: Router
    gated: bool = True
    activation: Activation = "silu"
    fused: bool = False
    clamp: Clamp | None = None
    factors: bool = False
    biased: bool = False
    weighs_input: bool = False
    latent: LatentExperts | None = None

    table = 0  # address of the experts of each token of the vocabulary, for ChosenBy.TOKEN

    def load(self, w: Weights) -> None:
        self.router.check(w)
        self.load_router(w)
        p, n_expert = f"blk.{self.layer}.", self.router.n_expert
        n_in = self.latent.n if self.latent else self.n_embd
        sizes = {"gate": self.n_ff, "up": self.n_ff} if self.gated else {"up": self.n_ff}
        sizes = {"gate_up": 2 * self.n_ff} if self.fused else sizes
        self.w_in = {part: w.experts(f"{p}ffn_{part}_exps.weight", n_expert, n, n_in) for part, n in sizes.items()}
        self.w_down = w.experts(p + "ffn_down_exps.weight", n_expert, n_in, self.n_ff, factors=not self.factors)
        self.w_factors = w.vector(p + "ffn_down_exps.scale", n_expert) if self.factors else 0
        if self.latent:
            self._load_latent(w, self.latent)
        biased = {**sizes, "down": n_in} if self.biased else {}
        self.biases = {part: w.keep(w.array(f"{p}ffn_{part}_exps.bias", n_expert, n)) for part, n in biased.items()}

    def _load_latent(self, w: Weights, latent: LatentExperts) -> None:
        p = f"blk.{self.layer}.ffn_{latent.name}_"
        into, back = p + "down.weight", p + "up.weight"
        self.w_into, self.w_back = w.matrix(into, latent.n, self.n_embd), w.matrix(back, self.n_embd, latent.n)
        if latent.norm_eps:
            self.latent_norm = w.vector(p + "norm.weight", latent.n)
        self.latent_bias = optional_bias(w, into, latent.n), optional_bias(w, back, self.n_embd)

    def load_router(self, w: Weights) -> None:
        """Load the router's weights, and `bias`, which is added to scores only for the choice."""
        p, router = f"blk.{self.layer}.", self.router
        self.w_router = w.matrix(p + "ffn_gate_inp.weight", router.n_score, self.n_embd)
        self.router_bias = w.vector(p + "ffn_gate_inp.bias", router.n_score) if self.biased else 0
        if router.chosen_by is ChosenBy.TOKEN:
            self.table, self.bias = w.keep(self._load_table(w, p + "ffn_gate_tid2eid.weight")), 0
            return
        bias = p + "exp_probs_b" if p + "exp_probs_b" in w else p + "exp_probs_b.bias"
        biased = router.chosen_by is not ChosenBy.LOGIT and (router.scoring is not Scoring.SOFTMAX or bias in w)
        if not biased:
            self.bias = 0
            return
        biases = w.squeezed(bias, router.n_score - router.n_shared)
        self.bias = w.keep(np.append(biases, np.full(router.n_shared, ALWAYS, np.float32)))

    def _load_table(self, w: Weights, name: str) -> np.ndarray:
        """i32 [token of the vocabulary][n_used]. Raises FormatError for the number of a missing expert."""
        table = w.integers(name, w.gguf.info("token_embd.weight").shape[0], self.router.n_used)
        if table.min() < 0 or table.max() >= self.router.n_expert:
            raise FormatError(
                f"{w.gguf.path.name}: {name} has values from {table.min()} to {table.max()}, expected the numbers of "
                f"{self.router.n_expert} experts. Convert the model again."
            )
        return table

    def memory(self) -> tuple[MemorySpec, ...]:
        return ()

    def logits(self, b: Builder, x: Rows) -> Rows:
        """The router's logits, for every expert and idle choice."""
        return add_bias(b, b.matmul(x, self.w_router, "ffn_router"), self.router_bias)

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        return self.mix(b, x, self.logits(b, x))

    def mix(self, b: Builder, x: Rows, logits: Rows) -> Rows:
        """The weighted sum of the experts of x that `logits` choose."""
        router = self.router
        n_routed = b.capacity * router.n_used
        few = b.products.are_few(n_routed, router.n_expert, [*self.w_in.values(), self.w_down])
        width = b.products.width(few)
        # the last tile of every used expert may have only one slot in use
        n_slots = round_up(n_routed, width) + min(router.n_expert, n_routed) * (width - 1)
        n_slots = round_up(n_slots, width)
        groups = Ref(b.buffer(8 + 24 * router.n_expert))
        source, total = Ref(b.buffer(8 * n_slots)), Ref(b.buffer(8))
        slots, weights = Ref(b.buffer(8 * n_routed)), Ref(b.buffer(4 * n_routed))
        b.op(
            moe.moe_route, count=b.batch.n_tok, logits=logits, **router.fields(), width=width, groups=groups,
            rows=source, n_slots=total, slots=slots, weights=weights, scores=Ref(b.buffer(12 * router.n_score)),
            counts=Ref(b.buffer(16 * router.n_score)), bias=self.bias, factors=self.w_factors, table=self.table,
            tokens=b.batch.tokens,
        )  # fmt: skip
        own = x
        if self.latent:
            x = add_bias(b, b.matmul(x, self.w_into, f"ffn_{self.latent.name}_down"), self.latent_bias[0])
        for part, w in [*reversed(self.w_in.items()), ("down", self.w_down)]:
            if w.fetched:
                b.op(
                    fetch_experts, name=f"fetch_{part}", groups=groups, w=w.address, expert_stride=w.expert_stride,
                    page=PAGESIZE,
                )  # fmt: skip
        gathered = Columns(groups, n_slots, source, source, few=few)
        hidden = self._hidden(b, x, gathered, total, (slots, weights))
        down = self._product(b, hidden, self.w_down, "down", Columns(groups, n_slots, of=source, few=few))
        out = b.rows(self.latent.n if self.latent else self.n_embd)
        b.op(
            moe.moe_combine,
            count=b.batch.n_tok,
            y=down,
            slots=slots,
            weights=weights,
            n_used=router.n_used,
            out=out,
            n=out.n,
        )
        if self.latent:
            out = self._leave_latent(b, out, self.latent)
        if router.n_idle and router.returns:
            b.op(
                moe.add_idle, count=b.batch.n_tok, x=own, slots=slots, weights=weights, n_used=router.n_used, out=out,
                n=out.n,
            )  # fmt: skip
        return out

    def _leave_latent(self, b: Builder, x: Rows, latent: LatentExperts) -> Rows:
        if latent.norm_eps:
            x = b.norm(x, self.latent_norm, latent.norm_eps, name=f"ffn_{latent.name}_norm")
        return add_bias(b, b.matmul(x, self.w_back, f"ffn_{latent.name}_up"), self.latent_bias[1])

    def _hidden(self, b: Builder, x: Rows, gathered: Columns, total: Ref, routed: tuple[Ref, Ref]) -> Rows:
        """The values between the two products of the experts, in `total` slots.

        routed: each token's slots, and their weights.
        """
        products = {part: self._product(b, x, w, part, gathered) for part, w in reversed(self.w_in.items())}
        if not self.gated:
            up = products["up"]
            b.op(elementwise.relu_squared, count=total, x=up, n=up.n)
            return up
        if self.fused:
            gate, up = (products["gate_up"].columns(i * self.n_ff, self.n_ff) for i in range(2))
        else:
            gate, up = products["gate"], products["up"]
        if self.weighs_input:
            b.op(
                moe.weigh_slots,
                count=b.batch.n_tok,
                gate=gate,
                up=up,
                slots=routed[0],
                weights=routed[1],
                n_used=self.router.n_used,
                n=gate.n,
            )
        return apply_gate(b, gate, up, total, self.activation, self.clamp)

    def _product(self, b: Builder, x: Rows, w: Weight, part: str, columns: Columns) -> Rows:
        """The product of each expert with its columns, with its bias."""
        y = b.matmul(x, w, f"ffn_{part}_exps", columns)
        if self.biased:
            b.op(
                elementwise.add_group_rows,
                name="bias",
                groups=columns.groups,
                x=y,
                rows=self.biases[part],
                stride=4 * y.n,
                n=y.n,
            )
        return y
