"""MiniCPM: Llama with three factors; MiniCPM-SALA: on most layers lightning attention, on the others attention with
gates. arXiv:2404.06395"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

from hybrid.quant.ggml.errors import UnsupportedError
from hybrid.quant.ggml.families.minicpm import MiniCpmHparams, MiniCpmSalaHparams

from ..kernels.attention.rope import NEOX
from ..layers.attention import Rope
from ..layers.base import Gate
from ..layers.head_norm import HeadNorm
from ..layers.lightning import RotaryLightning
from ..loading.weights import Weights
from .base import Part, head_size
from .llama import Llama


class MiniCpm(Llama):
    """MiniCPM 1, 2, 4 and 4.1."""

    name = "minicpm"
    hparams: ClassVar[type[Any]] = MiniCpmHparams

    def block(self, h: Any, i: int, w: Weights) -> Iterator[Part]:
        if 0 < h.dense_len <= w.n_ctx:
            raise UnsupportedError(
                f"{w.gguf.path.name}: a context of {w.n_ctx} tokens is not supported, only of up to {h.dense_len - 1}: "
                "in a longer one this model's attention is sparse. Give a smaller context."
            )
        yield from super().block(h, i, w)


class MiniCpmSala(MiniCpm):
    """MiniCPM-SALA. The tensors of a layer tell its gates and norms."""

    name = "minicpm-sala"
    hparams = MiniCpmSalaHparams
    style = NEOX

    def block(self, h: Any, i: int, w: Weights) -> Iterator[Part]:
        (name, attention), after = super().block(h, i, w)
        p, d_head = f"blk.{i}.attn_", head_size(h, w, h.d_head)
        gated = p + "gate.weight" in w
        if not h.n_head_kv[i]:
            rope = self.rope(h, i, w, h.n_rot or d_head)
            norm = HeadNorm(h.eps) if p + "q_norm.weight" in w else None
            n_group, sizes = int(p + "norm_2.weight" in w), (i, h.n_embd, h.n_head, d_head)
            attention = RotaryLightning(*sizes, rope, norm, n_group, h.eps, h.lightning_scale, gated=gated)
        elif gated:
            attention = replace(attention, gate=Gate.APART)  # type: ignore[type-var]
        yield name, attention
        yield after

    def rope(self, h: Any, i: int, w: Weights, n_rot: int) -> Rope | None:
        return super().rope(h, i, w, n_rot) if h.turned[i] else None
