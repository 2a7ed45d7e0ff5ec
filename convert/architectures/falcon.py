"""Falcon: layer norms, no gates, the feed-forward part beside attention, few heads of keys. arXiv:2311.16867"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from hybrid.quant.ggml.families.falcon import FalconHparams

from ..checkpoint import Config
from ..transforms import rows_in_order
from .blocks import Heads, check_rows, read_rope
from .decoder import Decoder
from .family import Row, Shapes, row
from .rope import SCALING, RopeScaling, read_stretching
from .ungated import EXACT, GELUS, gelu_notes, norm_rows


@dataclass(frozen=True)
class Falcon(Decoder):
    """One model. `two_norms`: attention and the feed-forward part have separate norms (40B and 180B)."""

    arch = "falcon"
    architectures = ("FalconForCausalLM",)
    hparams = FalconHparams
    order = (
        f"n_ctx_train .tensor_data_layout n_embd n_ff n_layer n_head n_head_kv freq_base {SCALING} eps "
        ".general.file_type exact?"
    )
    pre = ("falcon",)
    embedding = "transformer.word_embeddings.weight"
    conditional: ClassVar[Mapping[str, str]] = {
        "num_kv_heads": "where heads do not share one head of keys",
        "num_ln_in_parallel_attn": "where new_decoder_architecture is true",
        "multi_query": "where new_decoder_architecture is false",
        "rope_theta": "where rope_parameters does not say it",
    }

    n_ff: int
    heads: Heads
    two_norms: bool
    freq_base: float
    scaling: RopeScaling
    gelu: str

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("activation", *GELUS)
        config.expects("alibi", False)
        config.expects("bias", False)
        config.expects("parallel_attn", True)
        sizes = cls.sizes(
            config,
            shapes,
            n_ctx=2048,
            eps=1e-5,
            tied=True,
            spelled={"eps": ("layer_norm_epsilon",), "n_embd": ("n_embed", "hidden_size")},
        )
        new = config.boolean("new_decoder_architecture", default=False)
        n_norm = config.integer("num_ln_in_parallel_attn", default=2, maximum=2) if new else 1
        rope, theta = read_rope(config)
        heads = _heads(config, sizes["n_embd"], new)
        n_rows = (heads.n_head + 2 * heads.n_kv) * heads.d_head
        check_rows(config, n_rows, shapes, "hidden_size", "num_attention_heads", "num_kv_heads")
        return cls(
            **sizes,
            n_ff=config.integer("ffn_hidden_size", default=4 * sizes["n_embd"]),
            heads=heads,
            two_norms=n_norm == 2,
            freq_base=theta,
            scaling=read_stretching(config, rope, theta, heads.d_head, sizes["n_ctx"]),
            gelu=config.string("activation", default="gelu"),
        )

    def values(self) -> dict[str, Any]:
        # llama.cpp's name for the order of attn_qkv
        return {"tensor_data_layout": "jploski", "exact": self.gelu == EXACT}

    def notes(self) -> Iterator[str]:
        yield from self.scaling.notes
        yield from gelu_notes(self.gelu)

    def rows(self) -> Iterator[Row]:
        n, heads, d = self.n_embd, self.heads, self.heads.d_head
        # the checkpoint has, for each head of keys, its queries, then itself, then its values
        groups = np.arange((heads.n_head + 2 * heads.n_kv) * d).reshape(heads.n_kv, -1, d)
        order = np.concatenate([groups[:, part].reshape(-1) for part in (slice(-2), -2, -1)])
        # with two norms, GGUF's attn_norm is the feed-forward part's
        norms = (
            {"ln_mlp": "attn_norm", "ln_attn": "attn_norm_2"} if self.two_norms else {"input_layernorm": "attn_norm"}
        )
        yield from self.outer_rows(self.embedding, "transformer.ln_f.weight")
        yield row("transformer.ln_f.bias", "output_norm.bias", n)
        for i in range(self.n_layer):
            hf, blk = f"transformer.h.{i}.", f"blk.{i}."
            yield from norm_rows(hf, blk, n, norms)
            qkv, turned = hf + "self_attention.query_key_value.weight", rows_in_order(order)
            yield row(qkv, blk + "attn_qkv.weight", len(order), n, transform=turned)
            yield row(hf + "self_attention.dense.weight", blk + "attn_output.weight", n, n)
            yield row(hf + "mlp.dense_h_to_4h.weight", blk + "ffn_up.weight", self.n_ff, n)
            yield row(hf + "mlp.dense_4h_to_h.weight", blk + "ffn_down.weight", n, self.n_ff)


def _heads(config: Config, n_embd: int, new: bool) -> Heads:
    n_head = config.integer("num_attention_heads")
    shared = not new and config.boolean("multi_query", default=True)
    n_kv = 1 if shared else config.integer("num_kv_heads", default=n_head)
    if n_embd % n_head:
        raise config.wrong("num_attention_heads", f"a divisor of the hidden size {n_embd}")
    if n_head % n_kv or not (new or shared or n_kv == n_head):
        raise config.wrong("num_kv_heads", f"a divisor of the {n_head} attention heads" if new else f"{n_head}")
    config.expects("head_dim", n_embd // n_head)
    heads = Heads(n_head, n_kv, n_embd // n_head)
    heads.require_even(config)
    return heads
