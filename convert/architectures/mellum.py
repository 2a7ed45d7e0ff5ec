"""Mellum 2: Qwen3 with experts, in which layers with a window have RoPE of their own. Of JetBrains."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hybrid.quant.ggml.families.mellum import MellumHparams

from ..checkpoint import Config
from .blocks import Heads, read_layers, refuse_scaling
from .experts import read_sparse
from .layer_ropes import ONLY_ROPE_PARAMETERS, rope_of_kind
from .llama import LLAMA, Llama
from .qwen2 import Qwen3Moe
from .windows import read_layer_types, read_window, windows_of


@dataclass(frozen=True)
class Mellum(Qwen3Moe):
    """One model of Mellum 2, without its head that guesses tokens, which transformers leaves out also."""

    arch = "mellum"
    architectures = ("MellumForCausalLM",)
    hparams: ClassVar[type[Any]] = MellumHparams
    order = f"{LLAMA} freq_base_local=local_theta n_expert n_expert_used n_ff_expert weights_norm? window? local?"
    pre = ("mellum2",)
    dropped: ClassVar[tuple[str, ...]] = ("mtp.",)
    conditional: ClassVar[Mapping[str, str]] = {**Llama.conditional, "sliding_window": "where a layer has a window"}
    without_effect: ClassVar[Mapping[str, str]] = {
        **ONLY_ROPE_PARAMETERS,
        **dict.fromkeys(
            ("num_mtp_layers", "num_nextn_predict_layers", "mtp_layer_types", "mtp_mlp_layer_types"),
            "only a head that guesses tokens ahead, which is left out",
        ),
    }
    usual_ctx, usual_head = 131072, 128
    usual_window: ClassVar[int] = 1024
    usual_ropes: ClassVar[Mapping[str, Any]] = {
        "full_attention": {"rope_theta": 500000.0},
        "sliding_attention": {"rope_theta": 10000.0},
    }
    known_windows = True

    local_theta: float | None  # base of RoPE where there is a window; None: on no layer

    @classmethod
    def read_rope(cls, config: Config) -> tuple[Config, float]:
        """RoPE of layers without a window; only these can be scaled."""
        rope = rope_of_kind(config, "full_attention", cls.usual_ropes)
        return rope, rope.number("rope_theta")

    @classmethod
    def read_turned(cls, config: Config, heads: Heads) -> int:
        for kind in ("full_attention", "sliding_attention"):
            each = config.section("rope_scaling", "rope_parameters").section(kind)
            each.expects("partial_rotary_factor", 1.0, 1)
        return super().read_turned(config, heads)

    @classmethod
    def read_windows(cls, config: Config, n_layer: int) -> tuple[int, ...]:
        local = read_layer_types(config, n_layer) or [False] * n_layer
        return windows_of(config, read_window(config, cls.usual_window), local)

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        n_layer, n_expert = read_layers(config), config.integer("num_experts", "num_local_experts", maximum=4096)
        return {
            "n_expert": n_expert,
            "n_expert_used": config.integer("num_experts_per_tok", default=8, maximum=n_expert),
            "n_ff_expert": config.integer("moe_intermediate_size", default=896),
            "moe": tuple(cls.read_moe(config, n_layer)),
            "weights_norm": config.boolean("norm_topk_prob", default=True),
            **cls.read_local_rope(config, any(read_layer_types(config, n_layer) or ())),
        }

    @classmethod
    def read_moe(cls, config: Config, n_layer: int) -> list[bool]:
        """Per layer, whether it has experts."""
        return read_sparse(config, n_layer) if "mlp_layer_types" in config else [True] * n_layer

    @classmethod
    def read_local_rope(cls, config: Config, there: bool) -> dict[str, Any]:
        """Fields about RoPE of layers with a window; `there`: the model has such layers."""
        if not there:
            return {"local_theta": None}
        rope = rope_of_kind(config, "sliding_attention", cls.usual_ropes)
        refuse_scaling(rope)
        return {"local_theta": rope.number("rope_theta")}

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if self.local_theta not in (None, self.freq_base):
            yield "llama.cpp turns queries and keys with one rope_theta on all layers: its results differ"

    def canonical(self, name: str) -> str:
        return name if name.startswith("mtp.") else super().canonical(name)
