"""Zamba2 (arXiv:2411.15242): Mamba-2, and transformer blocks that some layers share in front of it, with adapters of
each layer's own.

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from hybrid.quant.ggml.types import FileType

from ..checkpoint import Config
from .blocks import read_plain_rope
from .decoder import Decoder
from .family import Row, Shapes, row
from .mamba2 import Ssm
from .zamba import Transformers, read_users

GATED_NORM_EPS = 1e-5  # of the norm behind the scan, whatever the config says of the others


@dataclass(frozen=True)
class Zamba2(Decoder):
    """One model; adapters on the feed-forward part always, on attention or not."""

    arch = "zamba2"
    architectures = ("Zamba2ForCausalLM",)
    in_llama_cpp = False

    transformers: Transformers
    ff_rank: int  # of adapters
    attention_rank: int  # 0: there are none
    rope_theta: float
    n_rot: int  # 0: without positions
    ssm: Ssm

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        for key in ("add_bias_linear", "use_long_context"):
            config.expects(key, False)
        sizes = cls.sizes(config, shapes, n_ctx=4096, eps=GATED_NORM_EPS, tied=True)
        n_embd = sizes["n_embd"]
        users = read_users(config)
        n_shared = min(config.integer("num_mem_blocks", default=1), len(users))
        transformers = Transformers.read(config, n_embd, users, n_shared)
        heads, ff_rank = transformers.heads, config.integer("adapter_rank", default=128)
        adapted = config.boolean("use_shared_attention_adapter", default=False)
        if adapted and heads.n_kv != heads.n_head:
            raise config.wrong("num_key_value_heads", f"{heads.n_head}, as adapters need")
        turned = config.boolean("use_mem_rope", default=False)
        if turned:
            heads.require_even(config)
        config.expects("rms_norm_eps", GATED_NORM_EPS)
        return cls(
            **sizes,
            transformers=transformers,
            ff_rank=ff_rank,
            attention_rank=ff_rank if adapted else 0,
            rope_theta=read_plain_rope(config),
            n_rot=heads.d_head if turned else 0,
            ssm=Ssm.read(config, n_embd),
        )

    def keys(self, file_type: FileType) -> Iterator[tuple[str, Any]]:
        yield from self.transformers.keys(self.n_layer, self.n_ctx, self.n_embd)
        yield "attention.lora_rank", self.attention_rank
        yield "feed_forward_lora_rank", self.ff_rank
        yield "attention.layer_norm_rms_epsilon", self.eps
        yield "rope.dimension_count", self.n_rot
        yield "rope.freq_base", self.rope_theta
        yield from self.ssm.keys()
        yield "general.file_type", int(file_type)
        yield "vocab_size", self.n_vocab

    def rows(self) -> Iterator[Row]:
        n, t = self.n_embd, self.transformers
        yield from self.outer_rows(self.embedding, "model.final_layernorm.weight")
        for i in range(self.n_layer):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            if i in t.users:
                yield from t.rows(i, hf, "shared_transformer.", n)
                k = t.users.index(i)
                shared = f"model.layers.{t.users[k % t.n_shared]}.shared_transformer."
                mlp = shared + "feed_forward."
                if k < t.n_shared:
                    yield row(mlp + "gate_up_proj.weight", blk + "ffn_up.weight", 2 * t.n_ff, n)
                    yield row(mlp + "down_proj.weight", blk + "ffn_down.weight", n, t.n_ff)
                yield from _adapter(f"{mlp}gate_up_proj_adapter_list.{k}.", blk + "ffn_up", 2 * t.n_ff, n, self.ff_rank)
                for part in "qkv" if self.attention_rank else "":
                    source = f"{shared}self_attn.linear_{part}_adapter_list.{k}."
                    yield from _adapter(source, f"{blk}attn_{part}", 2 * n, 2 * n, self.attention_rank)
                hf += "mamba_decoder."
            yield row(hf + "input_layernorm.weight", blk + "attn_norm.weight", n)
            yield from self.ssm.rows(hf + "mamba.", blk, n)


def _adapter(hf: str, target: str, n_out: int, n_in: int, rank: int) -> Iterator[Row]:
    """What a layer adds to a shared matrix [n_out, n_in], as two factors."""
    yield row(hf + "0.weight", target + "_lora_a.weight", rank, n_in)
    yield row(hf + "1.weight", target + "_lora_b.weight", n_out, rank)
