"""Zamba: Mamba-1 in several heads, and one transformer block that some layers share before it. arXiv:2405.16712

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from hybrid.quant.ggml.families.zamba import ZambaHparams

from ..checkpoint import Config, Dtype, StoredTensor
from ..transforms import NEGATIVE_EXP, rows_in_order
from .blocks import HEAD_SIZE, SILU, SIZES, Heads, check_rows, conv1d, read_kinds, read_layers, swiglu
from .decoder import Decoder
from .family import Keyed, Row, Shapes, row
from .mamba import SCAN, Scan
from .unused_fields import STEP_SIZES

# "mamba" became "linear_attention" in transformers 5; "attention+mamba" is of the first release
KINDS = {"mamba": "mamba", "linear_attention": "mamba", "hybrid": "hybrid", "attention+mamba": "hybrid"}


@dataclass(frozen=True)
class Transformers(Keyed):
    """Attention and feed-forward parts before some layers. There are `n_shared` blocks: the k-th layer with a block
    uses the block of layer users[k % n_shared], where its tensors are stored. `name`: of a block in checkpoints.

    torch files, and safetensors of some tools, repeat a block for every layer that uses it. Models whose output matrix
    is not the embedding may have a separate block for every layer: transformers then shares nothing.
    """

    name: str
    heads: Heads
    n_ff: int
    users: tuple[int, ...]
    n_shared: int

    @classmethod
    def read(cls, config: Config, name: str, n_embd: int, users: tuple[int, ...], n_shared: int) -> Self:
        """The blocks. A block's input is the layer's rows and the embedding's, side by side."""
        config.expects("hidden_act", "gelu")
        config.expects("attention_hidden_size", 2 * n_embd)
        n_ff = config.integer("intermediate_size", default=4 * n_embd)
        return cls(name, Heads.read(config, 2 * n_embd), n_ff, users, n_shared)

    def values(self) -> dict[str, Any]:
        attention_scale = math.sqrt(2 / self.heads.d_head)
        return self.heads.values() | {"n_ff": self.n_ff, "n_shared": self.n_shared, "attention_scale": attention_scale}

    def block(self, i: int) -> str:
        """The prefix in the checkpoint of the block before layer i."""
        return self._prefix(self.users[self.users.index(i) % self.n_shared])

    def _prefix(self, i: int) -> str:
        return f"model.layers.{i}.{self.name}."

    def again(self, template: Row) -> Row:
        """The row of a block's tensor, with the names of the layers that may repeat it."""
        (source,) = template.sources
        layer = int(source.removeprefix("model.layers.").partition(".")[0])
        k, name = self.users.index(layer) % self.n_shared, source.removeprefix(self._prefix(layer))
        others = tuple(self._prefix(i) + name for i in self.users[k :: self.n_shared] if i != layer)
        return replace(template, copies=others)

    def rows(self, i: int, n_embd: int, feed_forward: Iterator[Row]) -> Iterator[Row]:
        """The block's tensors that layer i has, without adapters; `feed_forward`: that part of a block."""
        blk, p = f"blk.{i}.", self._prefix(i)
        yield row(f"model.layers.{i}.linear.weight", blk + "shared_out.weight", n_embd, n_embd)
        if i in self.users[: self.n_shared]:
            yield self.again(row(p + "input_layernorm.weight", blk + "shared_norm.weight", 2 * n_embd))
            yield self.again(row(p + "pre_ff_layernorm.weight", blk + "ffn_norm.weight", n_embd))
            yield from map(self.again, self.heads.rows(p + "self_attn.", blk, n_embd, n_in=2 * n_embd))
            yield from map(self.again, feed_forward)

    def settled(self, rows: Iterable[Row], stored: Mapping[str, StoredTensor]) -> Self:
        """With a block for every layer, if the repeated tensors differ."""
        for block_row in rows:
            names = (*block_row.sources, *block_row.copies) if block_row.copies else ()
            copies = [stored[name] for name in names if name in stored]
            if any(isinstance(copy.dtype, Dtype) and not copy.same_bytes(copies[0]) for copy in copies[1:]):
                return replace(self, n_shared=len(self.users))
        return self


@dataclass(frozen=True)
class SharedBlocks(Decoder):
    """The part that Zamba and Zamba2 share: Mamba layers, some with a transformer block before them."""

    in_llama_cpp = False

    transformers: Transformers

    def values(self) -> dict[str, Any]:
        t = self.transformers
        return {"n_head_kv": t.heads.per_layer([i in t.users for i in range(self.n_layer)])}

    def settled(self, stored: Mapping[str, StoredTensor]) -> Self:
        return self if self.tied else replace(self, transformers=self.transformers.settled(self.rows(), stored))

    def rows(self) -> Iterator[Row]:
        yield from self.outer_rows(self.embedding, "model.final_layernorm.weight")
        for i in range(self.n_layer):
            hf, blk, t = f"model.layers.{i}.", f"blk.{i}.", self.transformers
            if i in t.users:
                yield from t.rows(i, self.n_embd, self.feed_forward(t.block(i) + "feed_forward.", blk))
                yield from self.adapters(i)
                hf += "mamba_decoder."
            yield row(hf + "input_layernorm.weight", blk + "attn_norm.weight", self.n_embd)
            yield from self.mixer(hf + "mamba.", blk)

    def feed_forward(self, hf: str, blk: str) -> Iterator[Row]:
        """The feed-forward part of a block."""
        return swiglu(hf, blk, self.n_embd, self.transformers.n_ff)

    def adapters(self, i: int) -> Iterator[Row]:
        """The adapters that layer i adds to matrices of its block."""
        yield from ()

    @abstractmethod
    def mixer(self, hf: str, blk: str) -> Iterator[Row]:
        """The Mamba part of a layer."""


@dataclass(frozen=True)
class Zamba(SharedBlocks):
    """One model."""

    arch = "zamba"
    architectures = ("ZambaForCausalLM",)
    hparams = ZambaHparams
    order = f"{SIZES} {HEAD_SIZE} attention_scale n_shared eps {SCAN} n_ssm_head .general.file_type .vocab_size"
    conditional: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("attn_layer_period", "attn_layer_offset"), "where layers_block_type and layer_types are absent"
    )
    without_effect: ClassVar[Mapping[str, str]] = STEP_SIZES

    n_ssm_head: int
    scan: Scan

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("hidden_mamba_act", *SILU)
        sizes = cls.sizes(config, shapes, n_ctx=4096, eps=1e-5, tied=True)
        n_embd = sizes["n_embd"]
        users = read_users(config, periodic=True)
        scan, n_ssm_head = Scan.read(config, n_embd), config.integer("n_mamba_heads", default=2)
        if scan.d_inner % n_ssm_head:
            raise config.wrong("n_mamba_heads", f"a divisor of the {scan.d_inner} channels of a layer")
        check_rows(config, 2 * scan.d_inner, shapes, "hidden_size", "mamba_expand")
        return cls(
            **sizes,
            transformers=Transformers.read(config, "shared_transf", n_embd, users, 1),
            n_ssm_head=n_ssm_head,
            scan=scan,
        )

    def mixer(self, hf: str, blk: str) -> Iterator[Row]:
        """In in_proj, rows of x and z of the same channel alternate; in GGUF all of x comes before z, as in Mamba."""
        c, heads, width = self.scan.d_inner, self.n_ssm_head, self.scan.d_inner // self.n_ssm_head
        n, rank = self.scan.d_state, self.scan.dt_rank
        apart = rows_in_order(np.arange(2 * c).reshape(c, 2).T.reshape(-1))
        yield row(hf + "in_proj.weight", blk + "ssm_in.weight", 2 * c, self.n_embd, transform=apart)
        yield from conv1d(hf, blk, c, self.scan.d_conv, bias=self.scan.conv_bias)
        yield row(hf + "x_proj_weight", blk + "ssm_x.weight", heads, rank + 2 * n, width)
        yield row(hf + "dt_proj_weight", blk + "ssm_dt.weight", heads, width, rank)
        yield row(hf + "dt_proj_bias", blk + "ssm_dt.bias", c, source_shape=(heads, width))
        a_log = (heads, width, n)
        yield row(hf + "A_log", blk + "ssm_a", c, n, transform=NEGATIVE_EXP, source_shape=a_log)
        yield row(hf + "D", blk + "ssm_d", c, source_shape=(heads, width))
        yield row(hf + "out_proj.weight", blk + "ssm_out.weight", self.n_embd, c)
        yield from self.scan.biases(hf, blk, self.n_embd, apart)


def read_users(config: Config, *, periodic: bool = False) -> tuple[int, ...]:
    """The layers with a transformer block before them. `periodic`: without a list in the config."""
    n_layer = read_layers(config)
    if periodic and config.get("layers_block_type", "layer_types") is None:
        period = config.integer("attn_layer_period", default=6)
        offset = config.integer("attn_layer_offset", default=4, minimum=0)
        users = tuple(i for i in range(n_layer) if i == 2 or (i > 2 and (i - 3) % period == offset))
    else:
        kinds = read_kinds(config, KINDS, "layers_block_type", "layer_types", n_layer=n_layer)
        users = tuple(i for i, kind in enumerate(kinds) if kind == "hybrid")
    if not users:
        raise config.wrong(config.named("layers_block_type", "layer_types"), "at least one layer of kind hybrid")
    return users
