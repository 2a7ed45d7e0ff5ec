"""Muse Glimmer (text): a norm of the embedding, windows on three layers of four, gates after attention. Of Meta."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from hybrid.quant.ggml.families.muse_glimmer import MuseGlimmerHparams

from ..checkpoint import Config
from ..transforms import PLUS_ONE
from .blocks import attention_bias_notes, refuse_scaling
from .family import Row, Shapes, row, text_part
from .gemma import NORMS
from .llama import LLAMA, Llama
from .unused_fields import ONLY_PICTURES, PICTURES, PROJECTOR
from .windows import read_layer_types, read_window, windows_of

POST_EPS = 1e-8  # of the norms after the parts of a layer; llama.cpp has no other, for which we have a key


@dataclass(frozen=True)
class MuseGlimmer(Llama):
    """The text model of Muse Glimmer. Only layers with a window have positions."""

    arch = "muse-glimmer"
    architectures = ("MuseGlimmerForConditionalGeneration",)
    hparams = MuseGlimmerHparams
    order = f"{LLAMA} logit_cap=cap logit_scale window? local? post_eps?"
    pre = ("llama4",)
    dropped: ClassVar[tuple[str, ...]] = ("model.vision_tower.", "model.vision_adapter.", "model.vision_projection.")
    without_effect: ClassVar[Mapping[str, str]] = {**PICTURES, **PROJECTOR, "out_hidden_size": ONLY_PICTURES}
    conditional: ClassVar[Mapping[str, str]] = {**Llama.conditional, "sliding_window": "where a layer has a window"}
    activations = ()
    usual_ctx, usual_eps, usual_head = 131072, 1e-5, 128
    known_windows = True
    norms = NORMS

    cap: float  # of the logits; 0: none
    logit_scale: float
    query_scale: float
    post_eps: float

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        return super().read(text_part(config), shapes)

    @classmethod
    def read_rope(cls, config: Config) -> tuple[Config, float]:
        rope, theta = super().read_rope(config)
        refuse_scaling(rope)
        return rope, theta

    @classmethod
    def read_windows(cls, config: Config, n_layer: int) -> tuple[int, ...]:
        """Without layer_types the last layer sees all tokens, and every fourth one before it."""
        usual = [(n_layer - 1 - i) % 4 != 0 for i in range(n_layer)]
        local = read_layer_types(config, n_layer) or usual
        theta = cls.read_rope(config)[1]
        turned = config.get("layer_rope_theta")
        if (turned or [theta * is_local for is_local in usual]) != [theta * is_local for is_local in local]:
            raise config.wrong("layer_rope_theta", f"{theta:g} for every layer of sliding_attention, 0 for others")
        return windows_of(config, read_window(config, 2048), local)

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        config.expects("hidden_activation", "silu")
        return {
            "cap": config.number("final_logit_softcapping", default=20.0),
            "logit_scale": config.number("output_multiplier", default=0.19611613513818404),
            "query_scale": config.number("qk_scale_factor", default=3.87),
            "post_eps": config.number("post_norm_eps", default=POST_EPS),
        }

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        yield from attention_bias_notes(self.attention_bias)
        if self.post_eps != POST_EPS:
            yield f"llama.cpp takes post_norm_eps = {POST_EPS:g} whatever the file says"
        if self.tied:
            yield "llama.cpp cannot load this file: it wants an output matrix apart from the embedding"

    def rows(self) -> Iterator[Row]:
        for one in super().rows():
            after_one = one.target.startswith("blk.") and one.target.endswith("_norm.weight") and one.sources
            yield replace(one, transform=PLUS_ONE) if after_one else one

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        yield from super().attention(hf, blk)
        for part, scale in (("q", self.query_scale), ("k", 1.0)):
            values = np.full(self.heads.d_head, scale, np.float32)
            yield Row(f"{blk}attn_{part}_norm.weight", values.shape, (), constant=values)
        n_gate = self.heads.n_head * self.heads.d_head
        yield row(hf + "gate_proj.weight", blk + "attn_gate.weight", n_gate, self.n_embd)

    def canonical(self, name: str) -> str:
        return super().canonical(name.replace("model.language_model.", "model.", 1))
