"""Kimi K3: Kimi's delta rule, gated latent attention, narrow experts, banked residuals. Of Moonshot AI."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.kimi_k3 import KimiK3Hparams

from ..checkpoint import Config
from ..transforms import NEGATIVE_EXP
from .blocks import SIZES, stacked_experts, swiglu
from .experts import GROUPS
from .family import Row, Shapes, row
from .kimi_linear import KimiLinear
from .latent import LATENT
from .unused_fields import PICTURES

_PREFIX = "language_model."
_PICTURES = "only pictures: the text's part of the model is converted"


@dataclass(frozen=True)
class KimiK3(KimiLinear):
    """The text model of Kimi K3."""

    arch = "kimi-k3"
    architectures: ClassVar[tuple[str, ...]] = ("KimiK3ForConditionalGeneration",)
    hparams = KimiK3Hparams
    order = (
        f"{SIZES} eps n_expert n_expert_used {GROUPS} .general.file_type .vocab_size d_conv d_kda lowest? {LATENT} "
        ".attention.value_length n_ff_expert n_shared n_dense weights_scale weights_norm gating n_latent? beta "
        "linear_beta n_block latent_eps? n_kda?"
    )
    dropped: ClassVar[tuple[str, ...]] = ("vision_tower.", "mm_projector.")
    prompts_by_code: ClassVar[bool] = True
    ends_by_config: ClassVar[bool] = True  # its tokenizer's EOS ends a document, not a turn
    without_effect: ClassVar[Mapping[str, str]] = {
        **KimiLinear.without_effect,
        **PICTURES,
        **dict.fromkeys(("media_placeholder_token_id", "video_placeholder", "use_unified_vision_chunk"), _PICTURES),
        "ignore_index": "only training",
        "topk_method": "the choice of experts always has a bias",
    }
    activation = "situ"
    usual_scale = 1.0

    n_latent: int  # width of the experts' inputs and outputs; 0: n_embd
    latent_norm: bool  # on the experts' output
    gated: bool  # attention, with a gate for every value
    lowest: float  # logarithm of the lowest decay; 0: none
    n_block: int  # layers that share a bank
    beta: float
    linear_beta: float  # 0: none

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        text = config.section("text_config") if "text_config" in config else config
        inner = text.boolean("tie_word_embeddings", default=False)
        tied = {"tie_word_embeddings": config.boolean("tie_word_embeddings", default=inner)}
        return super().read(Config({**text.data, **tied}, text.where, text.looked, text.prefixes), shapes)

    @classmethod
    def read_fields(cls, config: Config, shapes: Shapes) -> dict[str, Any]:
        linear = config.section("linear_attn_config")
        config.expects("mla_use_nope", True)
        linear.expects("use_full_rank_gate", True)
        if not (linear.boolean("use_full_rank_gate", default=False) and config.boolean("mla_use_nope", default=False)):
            raise config.wrong("mla_use_nope", "true, as use_full_rank_gate in linear_attn_config")
        latent = config.get("routed_expert_hidden_size") is not None
        linear_beta = config.get("activation_situ_linear_beta") is not None
        lowest = linear.number("gate_lower_bound", default=0.0, positive=False)
        if lowest > 0:
            raise linear.wrong("gate_lower_bound", "a negative number")
        return {
            **super().read_fields(config, shapes),
            "n_latent": config.integer("routed_expert_hidden_size") if latent else 0,
            "latent_norm": config.boolean("latent_moe_use_norm", default=False) and latent,
            "gated": config.boolean("mla_use_output_gate", default=False),
            "lowest": lowest,
            "n_block": config.integer("attn_res_block_size"),
            "beta": config.number("activation_situ_beta", default=1.0),
            "linear_beta": config.number("activation_situ_linear_beta") if linear_beta else 0.0,
        }

    def values(self) -> dict[str, Any]:
        grouped = self.groups[0] > 1
        return super().values() | ({} if grouped else {"groups": (None, None)})

    def notes(self) -> Iterator[str]:
        yield from self.shared_notes()
        if self.tied:
            yield "llama.cpp cannot load this file: there the output matrix is one of its own"

    def canonical(self, name: str) -> str:
        return name.removeprefix(_PREFIX)

    def rows(self) -> Iterator[Row]:
        yield from super().rows()
        yield _scores("model.output_attn_res", "output_res_score.weight", self.n_embd)
        for i in range(self.n_layer):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            yield _scores(hf + "self_attention_res", blk + "attn_res_score.weight", self.n_embd)
            yield _scores(hf + "mlp_res", blk + "ffn_res_score.weight", self.n_embd)
            if self.attention[i] and self.gated:
                n_gate = self.n_head * self.latent.d_value
                yield row(hf + "self_attn.g_proj.weight", blk + "attn_gate.weight", n_gate, self.n_embd)

    def gates(self, hf: str, blk: str, n_inner: int) -> Iterator[Row]:
        yield row(hf + "f_a_proj.weight", blk + "ssm_f_a.weight", self.d_kda, self.n_embd)
        yield row(hf + "f_b_proj.weight", blk + "ssm_f_b.weight", n_inner, self.d_kda)
        yield row(hf + "g_proj.weight", blk + "ssm_g.weight", n_inner, self.n_embd)
        yield row(hf + "A_log", blk + "ssm_a", self.n_kda, transform=NEGATIVE_EXP)

    def sparse(self, hf: str, blk: str) -> Iterator[Row]:
        moe, n, n_in = hf + "block_sparse_moe.", self.n_embd, self.n_latent or self.n_embd
        names = (("down", "w2"), ("gate", "w1"), ("up", "w3"))
        yield row(moe + "gate.weight", blk + "ffn_gate_inp.weight", self.n_expert, n)
        yield row(moe + "gate.e_score_correction_bias", blk + "exp_probs_b.bias", self.n_expert)
        yield from stacked_experts(moe + "experts.", blk, self.n_expert, n_in, self.n_ff_expert, names)
        if self.n_latent:
            yield row(moe + "routed_expert_down_proj.weight", blk + "ffn_routed_down.weight", n_in, n)
            yield row(moe + "routed_expert_up_proj.weight", blk + "ffn_routed_up.weight", n, n_in)
        if self.latent_norm:
            yield row(moe + "routed_expert_norm.weight", blk + "ffn_routed_norm.weight", n_in)
        if self.n_shared:
            yield from swiglu(moe + "shared_experts.", blk, n, self.n_shared * self.n_ff_expert, "_shexp")


def _scores(hf: str, target: str, n: int) -> Row:
    """The product of a norm's weight and a matrix of one row, of which only the product is used."""
    return Row(target, (n,), (hf + "_norm.weight", hf + "_proj.weight"), product=True)
