"""Hy3: Qwen3 with experts beside a shared one after the first layers, chosen by sigmoids plus a bias. Of Tencent."""

from typing import Any

from hybrid.quant.ggml.families.hy_v3 import HyV3Hparams

from ..layers.base import Layer, Sum
from ..layers.feed_forward import GatedFeedForward
from ..loading.weights import Weights
from .experts import routed
from .qwen2 import Qwen3


class HyV3(Qwen3):
    """Hy3; layers with a router have experts."""

    name = "hy_v3"
    hparams = HyV3Hparams
    has_heads = True

    def feed_forward(self, h: Any, i: int, w: Weights) -> Layer:
        if f"blk.{i}.ffn_gate_inp.weight" not in w:
            return super().feed_forward(h, i, w)
        return Sum(routed(h, i, w), GatedFeedForward(i, h.n_embd, h.n_ff_shared or h.n_ff_expert, "_shexp"))
