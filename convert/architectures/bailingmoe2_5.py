"""Ling 2.5: latent attention on the last layer of every group, lightning attention with RoPE on the others, experts in
groups. Of inclusionAI."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.bailingmoe2 import BailingMoe25Hparams

from ..checkpoint import Config
from .bailingmoe2 import BailingLinear, expect_usual, lightning_rows, read_lightning
from .blocks import SIZES, Heads, read_plain_rope, read_turned
from .deepseek2 import DeepSeekV3
from .experts import GROUPS, read_expert_groups
from .family import Family, Row, Shapes
from .heads import Head, numbered_heads
from .latent import LATENT, Latent
from .rope import NOT_SCALED
from .unused_fields import read_mtp


@dataclass(frozen=True)
class BailingMoe25(DeepSeekV3):
    """One model of Ling or Ring 2.5."""

    arch = "bailingmoe2-5"
    architectures = ("BailingMoeV2_5ForCausalLM",)
    hparams = BailingMoe25Hparams
    order = (
        f"{SIZES} freq_base eps n_expert n_expert_used {GROUPS} gating .general.file_type n_dense .vocab_size {LATENT} "
        ".attention.value_length n_ff_expert n_shared weights_scale weights_norm n_ahead? latent_eps? n_norm_group "
        "d_lightning=lightning_heads/d_head"
    )
    embedding = "model.word_embeddings.weight"
    pre = ("bailingmoe2", "bailingmoe")
    in_llama_cpp = False
    bias = "gate.expert_bias"
    conditional: ClassVar[Mapping[str, str]] = {}
    without_effect: ClassVar[Mapping[str, str]] = {
        **BailingLinear.without_effect,
        "num_key_value_heads": "latent attention and lightning attention have as many as of queries",
        "qk_head_dim": "the sum of its parts",
    }

    lightning: tuple[bool, ...]  # per layer
    n_norm_group: int
    lightning_heads: Heads

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        for key, expected in {"hidden_act": "silu", "rope_interleave": True, "full_attention_type": "mla"}.items():
            config.expects(key, expected)
        expect_usual(config)
        sizes = cls.sizes(config, shapes, n_ctx=32768)
        n_layer, latent = sizes["n_layer"], Latent.read(config)
        n_head = config.integer("num_attention_heads")
        heads = Heads.read(config, sizes["n_embd"], usual=128)
        heads = replace(heads, n_kv=n_head)
        n_rot = read_turned(config, heads.d_head, 0.5, "head_dim")
        if latent.d_rope != n_rot:
            raise config.wrong("qk_rope_head_dim", f"{n_rot}, as many values as lightning attention rotates")
        n_expert, n_ff = config.integer("num_experts", maximum=4096), config.integer("moe_intermediate_size")
        config.expects("moe_shared_expert_intermediate_size", n_ff)
        n_used = config.integer("num_experts_per_tok", minimum=2, maximum=n_expert)
        ahead: tuple[Head, ...] = numbered_heads(shapes, n_layer, "final_layernorm.weight", "layer_output_norm.weight")
        return cls(
            **sizes,
            **read_lightning(config, heads),
            lightning_heads=heads,
            n_ff=config.integer("intermediate_size"),
            n_head=n_head,
            latent=latent,
            freq_base=read_plain_rope(config, 6e5),
            rope_scaling=NOT_SCALED,
            n_dense=config.integer("first_k_dense_replace", default=1, minimum=0, maximum=n_layer),
            n_expert=n_expert,
            n_expert_used=n_used,
            groups=read_expert_groups(config, n_expert, n_used),
            n_ff_expert=n_ff,
            n_shared=config.integer("num_shared_experts", default=1),
            weights_norm=True,
            weights_scale=config.number("routed_scaling_factor", default=1.0),
            n_mtp=max(read_mtp(config), len(ahead)),
            heads_ahead=ahead,
        )

    def values(self) -> dict[str, Any]:
        n_kv = [*(int(not there) for there in self.lightning), *[1] * self.n_heads_ahead]
        return {**super().values(), "n_head_kv": n_kv}

    def notes(self) -> Iterator[str]:
        yield from Family.notes(self)

    def mixer(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        n, hf = self.n_embd, hf + "attention."
        if i < self.n_layer and self.lightning[i]:
            yield from lightning_rows(hf, blk, n, self.lightning_heads, i, self.n_layer)
        else:
            yield from self.latent.rows(hf, blk, n, self.n_head, "dense.weight")
