"""Ling 1: Llama with experts, some of them for every token. arXiv:2503.05139"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from hybrid.quant.ggml.families.dots1 import Dots1Hparams

from ..checkpoint import Config
from ..transforms import Transform, interleave_rope
from .blocks import routed_experts
from .family import Row, TensorBlock, row
from .llama import LLAMA, Llama

LEAST_NORM = 1e-7


@dataclass(frozen=True)
class BailingMoe(Llama):
    """One model of Ling or Ring 1 or 1.5."""

    arch = "bailingmoe"
    architectures = ("BailingMoeForCausalLM",)
    hparams = Dots1Hparams
    order = f"{LLAMA} n_expert n_expert_used n_rot n_dense .vocab_size n_ff_expert n_shared weights_scale weights_norm"
    embedding = "model.word_embeddings.weight"
    pre = ("bailingmoe",)
    without_effect: ClassVar[Mapping[str, str]] = {
        "output_dropout": "only training",
        "norm_softmax": "no model's code reads it",
        "max_window_layers": "no layer has a window",
    }
    n_dense: ClassVar[int] = 0  # layers without experts

    n_expert: int
    n_expert_used: int
    n_ff_expert: int
    n_shared: int
    weights_norm: bool
    norm_head: bool  # columns of the output matrix are divided by their lengths
    weights_scale: float = 1.0

    @classmethod
    def read_biases(cls, config: Config) -> dict[str, Any]:
        for key in ("use_bias", "use_qkv_bias", "use_qk_norm", "moe_router_enable_expert_bias", "multi_gate"):
            config.expects(key, False)
        return {"attention_bias": False, "mlp_bias": False}

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        for key, expected in {
            "score_function": "softmax",
            "first_k_dense_replace": cls.n_dense,
            "partial_rotary_factor": 1.0,
            "n_group": 1,
            "routed_scaling_factor": 1.0,
        }.items():
            config.expects(key, expected)
        if config.boolean("tie_word_embeddings", default=False):
            config.expects("norm_head", False)
        n_expert, n_ff = config.integer("num_experts", maximum=4096), config.integer("moe_intermediate_size")
        config.expects("moe_shared_expert_intermediate_size", n_ff)
        return {
            "n_expert": n_expert,
            "n_expert_used": config.integer("num_experts_per_tok", maximum=n_expert),
            "n_ff_expert": n_ff,
            "n_shared": config.integer("num_shared_experts"),
            "weights_norm": config.boolean("norm_topk_prob", default=True),
            "norm_head": config.boolean("norm_head", default=False),
        }

    def notes(self) -> Iterator[str]:
        yield from self.scaling.notes
        if self.tied:
            yield "llama.cpp cannot load this file: it wants an output matrix apart from the embedding"

    @property
    def _n_heads(self) -> tuple[int, int, int]:
        """Heads of queries, of keys and of values."""
        return self.heads.n_head, self.heads.n_kv, self.heads.n_kv

    def parts(self, name: str, shape: tuple[int, ...]) -> Iterator[TensorBlock]:
        if name.endswith(".query_key_value.weight"):
            first = 0
            for i, n_head in enumerate(self._n_heads):
                n = n_head * self.heads.d_head
                yield TensorBlock(f"{name}.{i}", (first, 0), (n, self.n_embd))
                first += n

    def rows(self) -> Iterator[Row]:
        for each in super().rows():
            normed = self.norm_head and each.target == "output.weight"
            yield replace(each, transform=_unit_columns(self.n_vocab)) if normed else each

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        hf, n, d_head = hf.removesuffix("self_attn.") + "attention.", self.n_embd, self.heads.d_head
        for i, (part, n_head) in enumerate(zip("qkv", self._n_heads, strict=True)):
            turned = None if part == "v" else interleave_rope(d_head)
            source, target = f"{hf}query_key_value.weight.{i}", f"{blk}attn_{part}.weight"
            yield row(source, target, n_head * d_head, n, transform=turned)
        yield row(hf + "dense.weight", blk + "attn_output.weight", n, self.heads.n_head * d_head)

    def feed_forward(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        yield from routed_experts(hf, blk, self.n_expert, self.n_embd, self.n_ff_expert, self.n_shared, "")


def _unit_columns(n_rows: int) -> Transform:
    """Divides every column of a matrix of n_rows rows by its length."""

    def apply(x: np.ndarray, _: int) -> np.ndarray:
        wide = x.astype(np.float64)
        unit: np.ndarray = wide / np.maximum(np.sqrt((wide * wide).sum(0)), LEAST_NORM)
        return unit.astype(np.float32)

    return Transform("unit columns", apply, arithmetic=True, unit=n_rows)
