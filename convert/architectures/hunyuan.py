"""Hunyuan: Llama with norms on queries and keys after RoPE, also with experts beside a shared one. arXiv:2411.02265"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.hunyuan import HunyuanMoeHparams

from ..checkpoint import Config
from .blocks import HEAD_DIM, attention_bias_notes, read_layers, read_rope, stacked_experts, swiglu
from .family import Row, Shapes, row
from .llama import LLAMA, Llama
from .rope import read_kind

STRETCHED = 1 << 18  # context of models with alpha
BEFORE = 1 << 15  # the context that older configs state for them
_UNREAD = "a fixed alpha makes RoPE's base another one, and nothing else"


@dataclass(frozen=True)
class Hunyuan(Llama):
    """One model of Hunyuan, dense: 0.5B to 7B."""

    arch = "hunyuan-dense"
    architectures: ClassVar[tuple[str, ...]] = ("HunYuanDenseV1ForCausalLM",)
    order = f"{LLAMA} rope_type=own_type factor=own_factor original=own_ctx"
    pre: ClassVar[tuple[str, ...]] = ("hunyuan-dense",)
    without_effect: ClassVar[Mapping[str, str]] = {
        f"{section}.{name}": _UNREAD
        for section in ("rope_scaling", "rope_parameters")
        for name in ("beta_fast", "beta_slow", "mscale", "mscale_all_dim")
    } | {"eod_token_id": "the tokenizer's own files say which tokens end a text"}
    usual_eps = 1e-5
    rope_kinds: ClassVar[dict[str, str]] = {"dynamic": "default"}  # only with a fixed alpha: see `read_rope`

    alpha: float  # stretches RoPE's base; 0: not stretched

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("use_cla", False)
        model = super().read(config, shapes)
        return replace(model, n_ctx=STRETCHED) if model.alpha and model.n_ctx == BEFORE else model

    @classmethod
    def read_rope(cls, config: Config) -> tuple[Config, float]:
        """RoPE and its base. With `alpha` the base is stretched for a fixed length (NTK), whatever the length of a
        text."""
        rope, theta = read_rope(config)
        alpha, d = _alpha(rope), cls.head_size(config)
        if alpha and d <= 2:
            raise config.wrong("head_dim", "more than 2, with alpha")
        return rope, theta * alpha ** (d / (d - 2)) if alpha else theta

    @classmethod
    def head_size(cls, config: Config) -> int:
        """Values of a head."""
        quotient = config.integer("hidden_size") // config.integer("num_attention_heads")
        return config.integer(*HEAD_DIM, default=quotient)

    @classmethod
    def read_biases(cls, config: Config) -> dict[str, Any]:
        config.expects("mlp_bias", False)
        return {"attention_bias": config.boolean("attention_bias", default=False), "mlp_bias": False}

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        return {"alpha": _alpha(config.section("rope_parameters", "rope_scaling"))}

    def values(self) -> dict[str, Any]:
        own = {"own_type": "none", "own_factor": 1.0, "own_ctx": self.n_ctx}
        return super().values() | (own if self.alpha else dict.fromkeys(own))

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        yield from attention_bias_notes(self.attention_bias)

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        yield from self.heads.rows(hf, blk, self.n_embd, bias=self.attention_bias)
        yield from self.heads.norm_rows(hf, blk, ("query_layernorm", "key_layernorm"))


@dataclass(frozen=True)
class HunyuanMoe(Hunyuan):
    """One model with experts on every layer: A13B."""

    arch = "hunyuan-moe"
    architectures = ("HunYuanMoEV1ForCausalLM",)
    hparams = HunyuanMoeHparams
    order = (
        f"{LLAMA} n_expert n_ff_shared=n_ff .expert_feed_forward_length=n_ff n_expert_used .expert_shared_count "
        "rope_type=own_type factor=own_factor original=own_ctx"
    )
    pre = ("hunyuan",)

    n_expert: int
    n_expert_used: int

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        n_layer = read_layers(config)
        for key, value in (("moe_intermediate_size", config.integer("intermediate_size")), ("num_shared_expert", 1)):
            if key in config and _same(config, n_layer, key) != value:
                raise config.wrong(key, f"{value}, or {value} for every layer")
        n_expert = config.integer("num_experts", "num_local_experts", maximum=4096)
        n_used = _same(config, n_layer, "moe_topk", "num_experts_per_tok")
        if not 1 <= n_used <= n_expert:
            raise config.wrong("moe_topk", f"from 1 to {n_expert}")
        return {**super().read_more(config), "n_expert": n_expert, "n_expert_used": n_used}

    def values(self) -> dict[str, Any]:
        return super().values() | {"expert_shared_count": 1}

    def feed_forward(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        n, names = self.n_embd, tuple((part, part + "_proj") for part in ("down", "gate", "up"))
        yield row(hf + "gate.wg.weight", blk + "ffn_gate_inp.weight", self.n_expert, n)
        yield from stacked_experts(hf + "experts.", blk, self.n_expert, n, self.n_ff, names)
        yield from swiglu(hf + "shared_mlp.", blk, n, self.n_ff, "_shexp")


def _alpha(rope: Config) -> float:
    """The factor alpha; 0: RoPE is not stretched by it."""
    if read_kind(rope) != "dynamic":
        return 0.0
    rope.expects("factor", 1.0, 1)
    return rope.number("alpha")


def _same(config: Config, n_layer: int, *keys: str) -> int:
    """A number, or a list of equal numbers, one per layer."""
    values = config.get(*keys)
    if not isinstance(values, list):
        return config.integer(*keys, default=1)
    if not values or type(values[0]) is not int or values != values[:1] * n_layer:
        raise config.wrong(config.named(*keys), f"a number, or {n_layer} times the same one")
    return values[0]
