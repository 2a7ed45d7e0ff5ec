"""MiniMax-01: lightning attention, softmax attention on every eighth layer, experts. arXiv:2501.08313"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.hparams import by_period
from hybrid.quant.ggml.families.minimax import MiniMaxHparams

from ..checkpoint import Config
from .blocks import SILU, SIZES, Heads, read_kinds, read_rope, stacked_experts
from .decoder import Decoder
from .family import Row, Shapes, row
from .rope import SCALING, RopeScaling, read_stretching
from .windows import one_or_each, read_window, window_notes

PUBLISHED = ("MiniMaxText01ForCausalLM", "MiniMaxM1ForCausalLM")
KINDS = {"linear_attention": "linear_attention", "full_attention": "full_attention"}
PERIOD = 8  # the last of every N layers has softmax attention; llama.cpp takes that where a file does not say
LIGHTNING_EPS = 1e-6  # of the norm inside lightning attention, whatever the config says for the others
# Parts of a model: their names in transformers, in published configs, and in GGUF keys.
PARTS = (
    ("full_attn", "full_attention", "attention"),
    ("linear_attn", "linear_attention", "lightning"),
    ("mlp", "mlp", "feed_forward"),
)
BUFFERS = ("slope_rate", "query_decay", "key_decay", "diagonal_decay")  # constants that transformers saves


@dataclass(frozen=True)
class MiniMax(Decoder):
    """One model. For each of PARTS: kept, the factor of a norm whose result replaces the residual stream, and shares,
    the factor of the layer's result before it is added."""

    arch = "minimax-01"
    architectures = ("MiniMaxForCausalLM", *PUBLISHED)
    hparams = MiniMaxHparams
    order = (
        f"{SIZES} {SCALING} freq_base eps n_expert n_expert_used d_head? .attention.value_length=d_head? "
        ".general.file_type residual_scale=kept/0 n_rot .attention.recurrent_layers? kept_attention share_attention "
        "kept_lightning share_lightning kept_feed_forward share_feed_forward lightning_eps windows?"
    )
    conditional: ClassVar[Mapping[str, str]] = {
        "rotary_dim": f"of {' and '.join(PUBLISHED)}",
        "postnorm": f"of {' and '.join(PUBLISHED)}",
    }
    without_effect: ClassVar[Mapping[str, str]] = {
        "block_size": "only how transformers computes: tokens of a piece of lightning attention",
        "router_jitter_noise": "only training",
        "shared_moe_mode": "of shared experts, without which a model must be",
    }

    n_ff: int
    heads: Heads
    n_rot: int  # values of a head that RoPE rotates
    stated_rot: int  # rotary_dim, if the config's class ignores it and rotates all values; otherwise 0
    freq_base: float
    scaling: RopeScaling
    attention: tuple[bool, ...]  # per layer, whether it has softmax attention
    window: int
    n_expert: int
    n_expert_used: int
    kept: tuple[float, ...]
    shares: tuple[float, ...]

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("hidden_act", *SILU)
        config.expects("shared_intermediate_size", 0)
        sizes = cls.sizes(config, shapes, n_ctx=131072, eps=1e-5)
        n_layer, heads = sizes["n_layer"], Heads.read(config, sizes["n_embd"])
        heads.require_even(config)
        n_rot, stated_rot = heads.d_head, config.integer("rotary_dim", default=0)
        if config.get("architectures") and config.get("architectures")[0] in PUBLISHED:
            n_rot, stated_rot = stated_rot or n_rot, 0
            _check_published(config, heads, n_rot)
        rope, theta = read_rope(config, 1e6)
        n_expert = config.integer("num_local_experts", "num_experts", maximum=4096)
        return cls(
            **sizes,
            n_ff=config.integer("intermediate_size"),
            heads=heads,
            n_rot=n_rot,
            stated_rot=stated_rot,
            freq_base=theta,
            scaling=read_stretching(config, rope, theta, n_rot, sizes["n_ctx"]),
            attention=_attention(config, n_layer),
            window=read_window(config),
            n_expert=n_expert,
            n_expert_used=config.integer("num_experts_per_tok", default=2, maximum=n_expert),
            kept=_factors(config, "alpha"),
            shares=_factors(config, "beta"),
        )

    def values(self) -> dict[str, Any]:
        own: dict[str, Any] = {} if self.heads.stated else {"d_head": None}
        for (_, _, part), kept, share in zip(PARTS, self.kept, self.shares, strict=True):
            own |= {
                f"kept_{part}": kept if kept != self.kept[0] else None,
                f"share_{part}": share if share != 1.0 else None,
            }
        recurrent = None if self.attention == _usual(self.n_layer) else [not there for there in self.attention]
        lightning_eps = LIGHTNING_EPS if self.eps != LIGHTNING_EPS else None
        windows = one_or_each(self._windows)
        return own | {"attention.recurrent_layers": recurrent, "lightning_eps": lightning_eps, "windows": windows}

    @property
    def _windows(self) -> tuple[int, ...]:
        return (self.window,) * self.n_layer

    def notes(self) -> Iterator[str]:
        yield from self.scaling.notes
        yield from window_notes(self._windows, self.n_ctx)
        if self.stated_rot not in (0, self.n_rot):
            yield (
                f"rotary_dim = {self.stated_rot} is ignored: transformers' class turns all {self.n_rot} values of a "
                f"head. The same weights as {PUBLISHED[0]} turn {self.stated_rot}, as in llama.cpp"
            )
        if len(set(self.kept)) > 1 or set(self.shares) != {1.0}:
            yield "llama.cpp has one factor for all residuals, and no factors for layers' results: its results differ"
        if self.eps != LIGHTNING_EPS:
            yield (
                f"llama.cpp normalizes what lightning attention returns with an epsilon of {self.eps:g}, transformers "
                f"and this file with {LIGHTNING_EPS:g}"
            )

    def rows(self) -> Iterator[Row]:
        n = self.n_embd
        yield from self.outer_rows(self.embedding, "model.norm.weight")
        for i in range(self.n_layer):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            yield row(hf + "input_layernorm.weight", blk + "attn_norm.weight", n)
            yield row(hf + "post_attention_layernorm.weight", blk + "ffn_norm.weight", n)
            if self.attention[i]:
                yield from self.heads.rows(hf + "self_attn.", blk, n)
            else:
                yield from self._lightning(hf + "self_attn.", blk)
            moe = hf + "block_sparse_moe."
            yield row(moe + "gate.weight", blk + "ffn_gate_inp.weight", self.n_expert, n)
            names = (("down", "w2"), ("gate", "w1"), ("up", "w3"))
            yield from stacked_experts(moe + "experts.", blk, self.n_expert, n, self.n_ff, names)

    def _lightning(self, hf: str, blk: str) -> Iterator[Row]:
        n, n_inner = self.n_embd, self.heads.n_head * self.heads.d_head
        yield row(hf + "qkv_proj.weight", blk + "attn_qkv.weight", 3 * n_inner, n)
        yield row(hf + "output_gate.weight", blk + "attn_gate.weight", n_inner, n)
        unread = tuple(hf + name for name in BUFFERS)
        yield row(hf + "norm.weight", blk + "attn_norm_2.weight", n_inner, unread=unread)
        yield row(hf + "out_proj.weight", blk + "attn_output.weight", n, n_inner)


def _usual(n_layer: int) -> tuple[bool, ...]:
    return tuple(not lightning for lightning in by_period(PERIOD, n_layer))


def _check_published(config: Config, heads: Heads, n_rot: int) -> None:
    """UnsupportedError for values with which the published class computes something else than transformers."""
    if not config.boolean("postnorm", default=False):
        raise config.wrong("postnorm", "true: residuals are norms")
    if n_rot % 2 or n_rot > heads.d_head:
        raise config.wrong("rotary_dim", f"a positive even number of the {heads.d_head} values of a head")
    if heads.n_head & (heads.n_head - 1):
        raise config.wrong("num_attention_heads", "a power of two: rates of other numbers of heads are not supported")


def _attention(config: Config, n_layer: int) -> tuple[bool, ...]:
    """Per layer, whether it has softmax attention; transformers' default is every other layer, from the first on."""
    if "layer_types" in config:
        return tuple(kind == "full_attention" for kind in read_kinds(config, KINDS, "layer_types", n_layer=n_layer))
    kinds = config.get("attn_type_list")
    if kinds is None:
        return tuple(i % 2 == 0 for i in range(n_layer))
    if not isinstance(kinds, list) or len(kinds) != n_layer or not all(type(x) is int and x in (0, 1) for x in kinds):
        raise config.wrong("attn_type_list", f"{n_layer} times 1 for softmax attention or 0 for lightning attention")
    return tuple(kind == 1 for kind in kinds)


def _factors(config: Config, name: str) -> tuple[float, ...]:
    return tuple(
        config.number(f"{ours}_{name}_factor", f"layernorm_{published}_{name}", default=1.0)
        for ours, published, _ in PARTS
    )
