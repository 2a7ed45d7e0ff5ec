"""LongCat-Flash: latent attention, experts on a shortcut over every other layer, some of which compute nothing.
arXiv:2509.01322

A layer of the checkpoint is two in GGUF: docs/gguf-extensions.md.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.longcat_flash import LongcatFlashHparams

from ..checkpoint import Config
from ..transforms import scaled
from .blocks import MAX_LAYERS, PROJECTIONS, SIZES, read_plain_rope, stacked_experts, swiglu
from .decoder import Decoder
from .family import Row, Shapes, TensorBlock, row
from .latent import LATENT, Latent, latent_eps, require_equal_heads


@dataclass(frozen=True)
class LongcatFlash(Decoder):
    """One model; n_layer: layers of the file."""

    arch = "longcat-flash"
    architectures = ("LongcatFlashForCausalLM",)
    hparams = LongcatFlashHparams
    order = (
        f"{SIZES} freq_base eps n_expert_used .general.file_type .vocab_size {LATENT} .attention.value_length "
        "n_ff_expert n_expert n_idle weights_scale latent_eps?"
    )
    in_llama_cpp = False
    dropped: ClassVar[tuple[str, ...]] = ("model.mtp.",)
    without_effect: ClassVar[Mapping[str, str]] = {
        "head_dim": "parts of a head have sizes of their own",
        "qk_head_dim": "the sum of its parts",
        "output_router_logits": "only training",
        "router_dtype": "only how it is computed: here sums are f32",
        "num_nextn_predict_layers": "only layers that guess tokens ahead, which are left out",
    }

    n_ff: int
    n_head: int
    latent: Latent
    freq_base: float
    n_expert: int
    n_idle: int
    n_expert_used: int
    n_ff_expert: int
    weights_scale: float

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        half = config.integer("num_layers", default=28, maximum=MAX_LAYERS // 2)
        for key, value in {
            "hidden_act": "silu",
            "attention_bias": False,
            "router_bias": False,
            "norm_topk_prob": False,
            "mla_scale_q_lora": True,
            "mla_scale_kv_lora": True,
            "zero_expert_type": "identity",
            "num_hidden_layers": 2 * half,
        }.items():
            config.expects(key, value)
        config.expects("attention_method", "MLA", "mla")
        doubled = config.over(Config({"num_hidden_layers": 2 * half}, config.where))
        sizes = cls.sizes(doubled, shapes, n_ctx=131072, eps=1e-5)
        n_head, latent = config.integer("num_attention_heads", default=64), Latent.read(config)
        if not latent.q_rank:
            raise config.wrong("q_lora_rank", "a number")
        if latent.d_rope % 2 or not latent.d_rope:
            raise config.wrong("qk_rope_head_dim", "a positive even number")
        require_equal_heads(config, n_head)
        n_expert = config.integer("n_routed_experts", "num_local_experts", default=512, maximum=4096)
        return cls(
            **sizes,
            n_ff=config.integer("ffn_hidden_size", "intermediate_size", default=12288),
            n_head=n_head,
            latent=latent,
            freq_base=read_plain_rope(config, 1e7),
            n_expert=n_expert,
            n_idle=config.integer("zero_expert_num", default=256, minimum=0, maximum=4096),
            n_expert_used=config.integer("moe_topk", "num_experts_per_tok", default=12, maximum=n_expert),
            n_ff_expert=config.integer("expert_ffn_hidden_size", "moe_intermediate_size", default=2048),
            weights_scale=config.number("routed_scaling_factor", default=6.0),
        )

    def values(self) -> dict[str, Any]:
        return {"n_head_kv": 1, "latent_eps": latent_eps(self.eps)}

    def parts(self, name: str, shape: tuple[int, ...]) -> Iterator[TensorBlock]:
        if name.endswith(".kv_b_proj.weight"):
            yield from self.latent.parts(name, self.n_head)

    def rows(self) -> Iterator[Row]:
        n, n_score = self.n_embd, self.n_expert + self.n_idle
        yield from self.outer_rows(self.embedding, "model.norm.weight")
        for i in range(self.n_layer):
            hf, j, blk = f"model.layers.{i // 2}.", i % 2, f"blk.{i}."
            yield row(f"{hf}input_layernorm.{j}.weight", blk + "attn_norm.weight", n)
            yield row(f"{hf}post_attention_layernorm.{j}.weight", blk + "ffn_norm.weight", n)
            yield from self._attention(f"{hf}self_attn.{j}.", blk)
            yield from swiglu(f"{hf}mlps.{j}.", blk, n, self.n_ff)
            if j == 0:
                yield row(hf + "mlp.router.classifier.weight", blk + "ffn_gate_inp.weight", n_score, n)
                yield row(hf + "mlp.router.e_score_correction_bias", blk + "exp_probs_b.bias", n_score)
                experts = self.n_expert, n, self.n_ff_expert, PROJECTIONS
                yield from stacked_experts(hf + "mlp.experts.", blk, *experts)

    def _attention(self, hf: str, blk: str) -> Iterator[Row]:
        """Latent vectors grow by the root of the ratio of the widths: as part of their norms."""
        ranks = {blk + "attn_q_a_norm.weight": self.latent.q_rank, blk + "attn_kv_a_norm.weight": self.latent.rank}
        for one in self.latent.rows(hf, blk, self.n_embd, self.n_head, "o_proj.weight"):
            grown = ranks.get(one.target)
            yield replace(one, transform=scaled(math.sqrt(self.n_embd / grown))) if grown else one
