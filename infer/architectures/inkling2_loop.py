"""Inkling 2 with loops: a token passes the layers in the middle several times. Of Thinking Machines.

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

from hybrid.quant.ggml.families.inkling2_loop import Inkling2LoopHparams

from ..layers.looped_residual import Loop, LoopedResidual, LoopedStreams
from ..loading.weights import Weights
from .base import Part
from .inkling2 import Inkling2, banks, feed_forward, mixer


class Inkling2Loop(Inkling2):
    """Inkling 2 with loops. Later passes are blocks of their own, with the weights of the first."""

    name = "inkling2_loop"
    hparams: ClassVar[type[Any]] = Inkling2LoopHparams

    def streams(self, h: Inkling2LoopHparams) -> LoopedStreams:  # type: ignore[override]
        loop = Loop(h.first, h.end, h.n_pass)
        return LoopedStreams(banks(h, h.n_layer - loop.n_more), loop)

    def block(self, h: Inkling2LoopHparams, i: int, w: Weights) -> Iterator[Part]:  # type: ignore[override]
        loop = Loop(h.first, h.end, h.n_pass)
        if not loop.first < loop.end <= h.n_layer - loop.n_more:
            raise h.wrong(w.gguf, "end", f"more than loop.first, and room for all passes in {h.n_layer} blocks")
        if loop.first % h.n_block or loop.end % h.n_block:
            raise h.wrong(w.gguf, "first", f"a multiple of attn_res.block_size = {h.n_block}, as loop.end")
        place, number = loop.place(i)
        shared = banks(h, h.n_layer - loop.n_more)
        if f"blk.{place if number else i}.attn_rel_b.weight" not in w:
            raise h.wrong(w.gguf, "first", "the first layer whose weights several blocks use")
        if not number:
            # later passes, which may be in another stage, use them
            w.ignore(*(name for name in w.gguf.tensors if name.startswith(f"blk.{i}.msg_")))
            yield from self.once(h, i, w, place, h.n_layer - loop.n_more)
            return
        attention, experts = mixer(h, i, w, place, True), feed_forward(h, i, place)
        yield (
            "",
            LoopedResidual(
                attention, place, "attn_norm.weight", "attn_res_score.weight", shared, place=place, loop=loop,
                names=("q", "k", "v"), own=not h.local[i], begins=place == loop.first,
            ),
        )  # fmt: skip
        yield (
            "",
            LoopedResidual(
                experts, place, "ffn_norm.weight", "ffn_res_score.weight", shared, True, place, loop, ("ffn",)
            ),
        )
