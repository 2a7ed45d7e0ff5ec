"""Zamba2: Mamba-2, and transformer blocks that some layers share before it, with separate adapters for each layer.
arXiv:2411.15242

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.zamba import Zamba2Hparams

from ..checkpoint import Config
from .blocks import HEAD_SIZE, SIZES, read_plain_rope
from .family import Row, Shapes, row
from .mamba2 import SSM, Ssm
from .unused_fields import STEP_SIZES
from .zamba import SharedBlocks, Transformers, read_users

GATED_NORM_EPS = 1e-5  # of the norm after the scan, whatever the config says for the others


@dataclass(frozen=True)
class Zamba2(SharedBlocks):
    """One model; adapters on the feed-forward part always, on attention or not."""

    arch = "zamba2"
    architectures = ("Zamba2ForCausalLM",)
    hparams = Zamba2Hparams
    order = (
        f"{SIZES} {HEAD_SIZE} attention_scale n_shared attention_rank ff_rank eps gated_eps n_rot freq_base {SSM} "
        ".general.file_type .vocab_size"
    )
    without_effect: ClassVar[Mapping[str, str]] = {
        **STEP_SIZES,
        "hybrid_layer_ids": "transformers derives it from layers_block_type",
        **dict.fromkeys(
            ("use_conv_bias", "time_step_limit", "kv_channels", "num_query_groups"),
            "transformers' model does not read it",
        ),
    }

    ff_rank: int  # of adapters
    attention_rank: int  # 0: no adapters
    freq_base: float
    n_rot: int  # 0: without positions
    n_block: int  # num_mem_blocks; users j and k list each other's adapters if j % n_block == k % n_block
    bias: bool  # of all projections but attention's
    ssm: Ssm

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("use_long_context", False)
        sizes = cls.sizes(config, shapes, n_ctx=4096, eps=GATED_NORM_EPS, tied=True)
        n_embd = sizes["n_embd"]
        users = read_users(config)
        n_shared = min(config.integer("num_mem_blocks", default=1), len(users))
        transformers = Transformers.read(config, "shared_transformer", n_embd, users, n_shared)
        heads, ff_rank = transformers.heads, config.integer("adapter_rank", default=128)
        adapted = config.boolean("use_shared_attention_adapter", default=False)
        if adapted and heads.n_kv != heads.n_head:
            raise config.wrong("num_key_value_heads", f"{heads.n_head}, as adapters need")
        turned = config.boolean("use_mem_rope", default=False)
        if turned:
            heads.require_even(config)
        config.expects("hybrid_layer_ids", list(users))
        bias = config.boolean("add_bias_linear", default=False)
        least = config.number("time_step_min", default=0.001, positive=False)
        # use_conv_bias and time_step_limit are keys that its model does not read
        plain = Config({**config.data, "use_conv_bias": True, "time_step_limit": None}, config.where, config.looked)
        ssm = replace(Ssm.read(plain, n_embd), bias_in=bias, bias_out=bias, limits=(max(least, 0.0), math.inf))
        return cls(
            **sizes,
            transformers=transformers,
            ff_rank=ff_rank,
            attention_rank=ff_rank if adapted else 0,
            freq_base=read_plain_rope(config),
            n_rot=heads.d_head if turned else 0,
            n_block=n_shared,
            bias=bias,
            ssm=ssm,
        )

    def values(self) -> dict[str, Any]:
        gated_eps = GATED_NORM_EPS if self.eps != GATED_NORM_EPS else None
        return super().values() | {"gated_eps": gated_eps}

    def mixer(self, hf: str, blk: str) -> Iterator[Row]:
        return self.ssm.rows(hf, blk, self.n_embd)

    def feed_forward(self, hf: str, blk: str) -> Iterator[Row]:
        n, n_ff = self.n_embd, self.transformers.n_ff
        for source, target, *shape in (("gate_up_proj", "ffn_up", 2 * n_ff, n), ("down_proj", "ffn_down", n, n_ff)):
            yield row(f"{hf}{source}.weight", f"{blk}{target}.weight", *shape)
            if self.bias:
                yield row(f"{hf}{source}.bias", f"{blk}{target}.bias", shape[0])

    def adapters(self, i: int) -> Iterator[Row]:
        """The adapters that layer i adds to matrices of its block, each as two factors. Every block has a list of
        adapters, one for each layer that would use it if all were shared."""
        n, t, blk = self.n_embd, self.transformers, f"blk.{i}."
        k, shared = t.users.index(i), t.block(i)
        others = [t.users[j] for j in range(k % self.n_block, len(t.users), self.n_block) if t.users[j] != i]
        adapted = [("feed_forward.gate_up_proj", "ffn_up", 2 * t.n_ff, n, self.ff_rank)]
        for part in "qkv" if self.attention_rank else "":
            adapted.append((f"self_attn.linear_{part}", f"attn_{part}", 2 * n, 2 * n, self.attention_rank))
        for source, target, n_out, n_in, rank in adapted:
            for half, letter, shape in ((0, "a", (rank, n_in)), (1, "b", (n_out, rank))):
                name = f"{source}_adapter_list.{k}.{half}.weight"
                factor = row(shared + name, f"{blk}{target}_lora_{letter}.weight", *shape)
                unread = tuple(f"model.layers.{j}.{t.name}.{name}" for j in others)
                # a layer with its own block reads only the list of that block
                yield t.again(factor) if t.n_shared == self.n_block else replace(factor, unread=unread)
