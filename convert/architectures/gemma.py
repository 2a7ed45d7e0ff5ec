"""Gemma 2 and 3 (text): attention over a window on most layers, norms before and behind every part. arXiv:2503.19786"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.errors import UnsupportedError
from hybrid.quant.ggml.types import FileType

from ..checkpoint import Config
from ..transforms import PLUS_ONE
from .blocks import Heads, read_kinds, size_keys, swiglu
from .decoder import Decoder
from .family import Row, Shapes, row

KINDS = {"sliding_attention": "sliding_attention", "full_attention": "full_attention"}
# Norms of a layer: the checkpoint's and GGUF's names.
NORMS = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


@dataclass(frozen=True)
class Gemma2(Decoder):
    """One model of Gemma 2: windows on every other layer, capped scores and logits. arXiv:2408.00118"""

    arch: ClassVar[str] = "gemma2"
    architectures: ClassVar[tuple[str, ...]] = ("Gemma2ForCausalLM",)
    period: ClassVar[int] = 2  # every so many layers one sees all tokens
    normed: ClassVar[bool] = False  # queries and keys
    n_layer_27b: ClassVar[int] = 46  # the size whose scores readers scale by the model's width

    n_ff: int
    heads: Heads
    window: int
    scalar: float  # scores are divided by its root
    caps: tuple[float, float]  # of scores, of logits; 0: none
    rope_theta: float
    rope_theta_local: float
    rope_factor: float  # positions are divided by it where a layer sees all tokens

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("hidden_activation", "gelu_pytorch_tanh")
        config.expects("attention_bias", False)
        config.expects("tie_word_embeddings", True)
        config.expects("use_bidirectional_attention", False)
        sizes = cls.sizes(config, shapes, n_ctx={2: 8192, 6: 131072}[cls.period], tied=True)
        n_layer, n_embd = sizes["n_layer"], sizes["n_embd"]
        heads = Heads.read(config, n_embd)
        heads.require_even(config)
        cls._require_pattern(config, n_layer)
        # transformers 5 has one object for every kind of layer, or one for all
        rope = config.section("rope_parameters", "rope_scaling")
        full, local = rope.section("full_attention"), rope.section("sliding_attention")
        full = full if full.data else rope
        full.expects("rope_type", "default", "linear")
        first = {2: 10000.0, 6: 1000000.0}[cls.period]
        theta = full.number("rope_theta", default=config.number("rope_theta", default=first))
        near = config.number("rope_local_base_freq", default=10000.0)
        caps = tuple(config.number(key, default=0.0) for key in ("attn_logit_softcapping", "final_logit_softcapping"))
        return cls(
            **sizes,
            n_ff=config.integer("intermediate_size"),
            heads=heads,
            window=config.integer("sliding_window", default=4096),
            scalar=config.number("query_pre_attn_scalar", default=256.0),
            caps=(caps[0], caps[1]),
            rope_theta=theta,
            rope_theta_local=theta if cls.period == 2 else local.number("rope_theta", default=near),
            rope_factor=full.number("factor", default=1.0),
        )

    @classmethod
    def _require_pattern(cls, config: Config, n_layer: int) -> None:
        """GGUF's readers know which layers have a window."""
        wanted = ["full_attention" if i % cls.period == cls.period - 1 else "sliding_attention" for i in range(n_layer)]
        config.expects("sliding_window_pattern", cls.period)
        if "layer_types" in config and read_kinds(config, KINDS, "layer_types", n_layer=n_layer) != wanted:
            raise UnsupportedError(
                f"{config.where}: layer_types is not supported unless one layer of {cls.period}, the last, is "
                "full_attention."
            )

    @property
    def _is_scaled_as_usual(self) -> bool:
        usual = self.n_embd // self.heads.n_head if self.n_layer == self.n_layer_27b else self.heads.d_head
        return self.scalar == usual

    def keys(self, file_type: FileType) -> Iterator[tuple[str, Any]]:
        yield from size_keys(self.n_layer, self.n_ctx, self.n_embd, self.n_ff, self.heads.n_head, self.heads.n_kv)
        if self.rope_factor != 1.0:
            yield "rope.scaling.type", "linear"
            yield "rope.scaling.factor", self.rope_factor
        yield "rope.freq_base", self.rope_theta
        if self.rope_theta_local != self.rope_theta:
            yield "rope.freq_base_swa", self.rope_theta_local
        yield "attention.layer_norm_rms_epsilon", self.eps
        yield from self.heads.keys()
        yield "general.file_type", int(file_type)
        for name, cap in zip(("attn_logit_softcapping", "final_logit_softcapping"), self.caps, strict=True):
            if cap or self.period == 2:
                yield name, cap
        yield "attention.sliding_window", self.window
        if not self._is_scaled_as_usual:
            yield "attention.scale", self.scalar**-0.5

    def notes(self) -> Iterator[str]:
        if not self._is_scaled_as_usual:
            yield f"llama.cpp takes another query_pre_attn_scalar than {self.scalar:g}: it has no key for it"

    def rows(self) -> Iterator[Row]:
        n, d_head = self.n_embd, self.heads.d_head
        yield from self.outer_rows(self.embedding, "model.norm.weight", PLUS_ONE)
        for i in range(self.n_layer):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            for source, target in NORMS.items():
                yield row(f"{hf}{source}.weight", f"{blk}{target}.weight", n, transform=PLUS_ONE)
            yield from self.heads.rows(hf + "self_attn.", blk, n)
            for part in "qk" if self.normed else "":
                name = f"{hf}self_attn.{part}_norm.weight"
                yield row(name, f"{blk}attn_{part}_norm.weight", d_head, transform=PLUS_ONE)
            yield from swiglu(hf + "mlp.", blk, n, self.n_ff)


@dataclass(frozen=True)
class Gemma3(Gemma2):
    """Windows on five layers of six, norms on queries and keys, another base of RoPE where there is a window."""

    arch = "gemma3"
    architectures = ("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration")
    dropped = ("vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector.")
    period = 6
    normed = True
    n_layer_27b = 62

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        text = config.section("text_config")
        return super().read(text if text.data else config, shapes)

    def canonical(self, name: str) -> str:
        return name.replace("language_model.model.", "model.", 1).replace("model.language_model.", "model.", 1)
