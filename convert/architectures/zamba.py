"""Zamba: Mamba-1 in several heads, and one transformer block that some layers share in front of it. arXiv:2405.16712

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from hybrid.quant.ggml.types import FileType

from ..checkpoint import Config
from ..transforms import NEGATIVE_EXP, rows_in_order
from .blocks import Heads, read_kinds, read_layers, size_keys, swiglu
from .decoder import Decoder
from .family import Row, Shapes, row
from .mamba import Scan

# "mamba" became "linear_attention" in transformers 5; "attention+mamba" is of the first release
KINDS = {"mamba": "mamba", "linear_attention": "mamba", "hybrid": "hybrid", "attention+mamba": "hybrid"}


@dataclass(frozen=True)
class Transformers:
    """Attention and feed-forward parts in front of some layers. They are `n_shared` blocks: the k-th layer that has one
    uses that of layer users[k % n_shared], where its tensors stand."""

    heads: Heads
    n_ff: int
    users: tuple[int, ...]
    n_shared: int

    @classmethod
    def read(cls, config: Config, n_embd: int, users: tuple[int, ...], n_shared: int) -> Self:
        """The blocks see the layer's rows and the embedding's, side by side."""
        config.expects("hidden_act", "gelu")
        config.expects("attention_hidden_size", 2 * n_embd)
        return cls(
            Heads.read(config, 2 * n_embd), config.integer("intermediate_size", default=4 * n_embd), users, n_shared
        )

    def keys(self, n_layer: int, n_ctx: int, n_embd: int) -> Iterator[tuple[str, Any]]:
        """Sizes of the model and its attention."""
        n_head_kv = self.heads.per_layer([i in self.users for i in range(n_layer)])
        yield from size_keys(n_layer, n_ctx, n_embd, self.n_ff, self.heads.n_head, n_head_kv)
        yield from self.heads.keys()
        yield "attention.scale", math.sqrt(2 / self.heads.d_head)
        yield "shared_block_count", self.n_shared

    def rows(self, i: int, hf: str, shared: str, n_embd: int) -> Iterator[Row]:
        """What layer i has of it, but for the feed-forward part; `shared`: what the block is called."""
        blk = f"blk.{i}."
        yield row(hf + "linear.weight", blk + "shared_out.weight", n_embd, n_embd)
        if i in self.users[: self.n_shared]:
            p = hf + shared
            yield row(p + "input_layernorm.weight", blk + "shared_norm.weight", 2 * n_embd)
            yield row(p + "pre_ff_layernorm.weight", blk + "ffn_norm.weight", n_embd)
            yield from self.heads.rows(p + "self_attn.", blk, n_embd, n_in=2 * n_embd)


@dataclass(frozen=True)
class Zamba(Decoder):
    """One model."""

    arch = "zamba"
    architectures = ("ZambaForCausalLM",)
    in_llama_cpp = False

    transformers: Transformers
    n_ssm_head: int
    scan: Scan

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("hidden_mamba_act", "silu")
        config.expects("mamba_conv_bias", True)
        config.expects("mamba_proj_bias", False)
        sizes = cls.sizes(config, shapes, n_ctx=4096, eps=1e-5, tied=True)
        n_embd = sizes["n_embd"]
        users = read_users(config, periodic=True)
        scan, n_ssm_head = Scan.read(config, n_embd), config.integer("n_mamba_heads", default=2)
        if scan.d_inner % n_ssm_head:
            raise config.wrong("n_mamba_heads", f"a divisor of the {scan.d_inner} channels of a layer")
        return cls(
            **sizes,
            transformers=Transformers.read(config, n_embd, users, 1),
            n_ssm_head=n_ssm_head,
            scan=scan,
        )

    def keys(self, file_type: FileType) -> Iterator[tuple[str, Any]]:
        yield from self.transformers.keys(self.n_layer, self.n_ctx, self.n_embd)
        yield "attention.layer_norm_rms_epsilon", self.eps
        yield from self.scan.keys()
        yield "ssm.head_count", self.n_ssm_head
        yield "general.file_type", int(file_type)
        yield "vocab_size", self.n_vocab

    def rows(self) -> Iterator[Row]:
        n = self.n_embd
        yield from self.outer_rows(self.embedding, "model.final_layernorm.weight")
        for i in range(self.n_layer):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            if i in self.transformers.users:
                yield from self.transformers.rows(i, hf, "shared_transf.", n)
                if i == self.transformers.users[0]:
                    yield from swiglu(hf + "shared_transf.feed_forward.", blk, n, self.transformers.n_ff)
                hf += "mamba_decoder."
            yield row(hf + "input_layernorm.weight", blk + "attn_norm.weight", n)
            yield from self._mamba(hf + "mamba.", blk)

    def _mamba(self, hf: str, blk: str) -> Iterator[Row]:
        """Rows of in_proj are x and z of the same channel in turn; in GGUF all of x stands before z, as in Mamba."""
        c, heads, width = self.scan.d_inner, self.n_ssm_head, self.scan.d_inner // self.n_ssm_head
        taps, n, rank = self.scan.d_conv, self.scan.d_state, self.scan.dt_rank
        apart = rows_in_order(np.arange(2 * c).reshape(c, 2).T.reshape(-1))
        yield row(hf + "in_proj.weight", blk + "ssm_in.weight", 2 * c, self.n_embd, transform=apart)
        yield row(hf + "conv1d.weight", blk + "ssm_conv1d.weight", c, taps, source_shape=(c, 1, taps))
        yield row(hf + "conv1d.bias", blk + "ssm_conv1d.bias", c)
        yield row(hf + "x_proj_weight", blk + "ssm_x.weight", heads, rank + 2 * n, width)
        yield row(hf + "dt_proj_weight", blk + "ssm_dt.weight", heads, width, rank)
        yield row(hf + "dt_proj_bias", blk + "ssm_dt.bias", c, source_shape=(heads, width))
        a_log = (heads, width, n)
        yield row(hf + "A_log", blk + "ssm_a", c, n, transform=NEGATIVE_EXP, source_shape=a_log)
        yield row(hf + "D", blk + "ssm_d", c, source_shape=(heads, width))
        yield row(hf + "out_proj.weight", blk + "ssm_out.weight", self.n_embd, c)


def read_users(config: Config, *, periodic: bool = False) -> tuple[int, ...]:
    """The layers with a transformer block in front. `periodic`: what holds without a list."""
    n_layer = read_layers(config)
    if periodic and config.get("layers_block_type", "layer_types") is None:
        period = config.integer("attn_layer_period", default=6)
        offset = config.integer("attn_layer_offset", default=4, minimum=0)
        users = tuple(i for i in range(n_layer) if i == 2 or (i > 2 and (i - 3) % period == offset))
    else:
        kinds = read_kinds(config, KINDS, "layers_block_type", "layer_types", n_layer=n_layer)
        users = tuple(i for i, kind in enumerate(kinds) if kind == "hybrid")
    if not users:
        raise config.wrong("layers_block_type", "at least one layer of kind hybrid")
    return users
