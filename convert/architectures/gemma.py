"""Gemma 1, 2 and 3 (text): in the later two attention over a window on most layers, norms before and after every part.
arXiv:2503.19786"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.errors import UnsupportedError
from hybrid.quant.ggml.families.gemma import Gemma2Hparams, Gemma3Hparams, GemmaHparams
from hybrid.quant.ggml.families.hparams import by_period

from ..checkpoint import Config
from ..transforms import PLUS_ONE
from .blocks import HEAD_SIZE, SIZES, Heads, read_rope, refuse_scaling, swiglu
from .decoder import Decoder
from .family import Row, Shapes, row
from .llama import LLAMA, Llama
from .rope import SCALING, RopeScaling, read_stretching
from .unused_fields import HIDDEN_ACT, PICTURE_TENSORS, PICTURES
from .windows import read_layer_types, read_window

# Norms of a layer: the checkpoint's and GGUF's names.
NORMS = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


@dataclass(frozen=True)
class Gemma(Llama):
    """One model of the first Gemma: a Llama with GELU in its gates and a scaled embedding. arXiv:2403.08295"""

    arch = "gemma"
    architectures = ("GemmaForCausalLM",)
    hparams = GemmaHparams
    order = LLAMA
    pre = ()
    activations = ("gelu_pytorch_tanh", "gelu")  # both by the tanh formula, as in transformers
    conditional: ClassVar[Mapping[str, str]] = {}
    without_effect: ClassVar[Mapping[str, str]] = {
        "hidden_activation": "hidden_act counts, as in transformers",
        "mlp_bias": "it has no such biases",
    }
    usually_tied = True
    usual_ctx, usual_head = 8192, 256

    @classmethod
    def read_biases(cls, config: Config) -> dict[str, Any]:
        config.expects("attention_bias", False)
        config.expects("tie_word_embeddings", True)
        config.expects("use_bidirectional_attention", False)
        return {"attention_bias": False, "mlp_bias": False}

    def rows(self) -> Iterator[Row]:
        for one in super().rows():
            yield replace(one, transform=PLUS_ONE) if one.target.endswith("_norm.weight") else one

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        yield from self.heads.rows(hf, blk, self.n_embd)


@dataclass(frozen=True)
class Gemma2(Decoder):
    """One model of Gemma 2: windows on every other layer, capped scores and logits. arXiv:2408.00118

    Readers know the usual order of layers; another one is a key: `sliding_window_pattern`."""

    arch: ClassVar[str] = "gemma2"
    architectures: ClassVar[tuple[str, ...]] = ("Gemma2ForCausalLM",)
    hparams: ClassVar[type[Any]] = Gemma2Hparams
    order = (
        f"{SIZES} {SCALING} freq_base freq_base_local eps {HEAD_SIZE} .general.file_type attention_cap=caps/0 "
        "logit_cap=caps/1 window local? attention_scale"
    )
    period: ClassVar[int] = 2  # the last of every N layers sees all tokens, if the config does not say
    usual_caps: ClassVar[tuple[float, float]] = (50.0, 30.0)  # default caps of scores and logits
    norms: ClassVar[Mapping[str, str]] = NORMS
    normed: ClassVar[bool] = False  # whether queries and keys have norms
    bidirectional: ClassVar[bool] = False  # whether tokens see those after them
    without_effect: ClassVar[Mapping[str, str]] = HIDDEN_ACT
    n_layer_27b: ClassVar[int] = 46  # the size whose scores readers scale by the model's width

    n_ff: int
    heads: Heads
    window: int
    local: tuple[bool, ...]  # per layer, whether it has the window
    scalar: float  # scores are divided by its root
    caps: tuple[float, float]  # of scores, of logits; 0: none
    freq_base: float
    freq_base_local: float
    scaling: RopeScaling  # Gemma 3: of layers that see all tokens

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("hidden_activation", "gelu_pytorch_tanh")
        config.expects("attention_bias", False)
        config.expects("tie_word_embeddings", True)
        if cls.bidirectional and not config.boolean("use_bidirectional_attention", default=False):
            raise UnsupportedError(
                f"{config.where}: use_bidirectional_attention is not true: this model generates text. Name it "
                "Gemma3ForCausalLM in architectures."
            )
        config.expects("use_bidirectional_attention", cls.bidirectional)
        sizes = cls.sizes(config, shapes, n_ctx={2: 8192, 6: 131072}[cls.period], tied=True)
        n_layer, n_ctx = sizes["n_layer"], sizes["n_ctx"]
        heads = Heads.read(config, sizes["n_embd"])
        heads.require_even(config)
        local, window = cls.read_local(config, n_layer), read_window(config, 4096)
        if any(local) and not window:
            raise config.wrong("sliding_window", "a number of tokens, for the layers of sliding_attention")
        rope, theta, theta_local = cls.read_ropes(config)
        return cls(
            **sizes,
            n_ff=config.integer("intermediate_size"),
            heads=heads,
            window=window,
            local=local,
            scalar=config.number("query_pre_attn_scalar", default=256.0),
            caps=cls.read_caps(config),
            freq_base=theta,
            freq_base_local=theta_local,
            scaling=read_stretching(config, rope, theta, heads.d_head, n_ctx),
        )

    @classmethod
    def read_caps(cls, config: Config) -> tuple[float, float]:
        """Caps of scores and of logits; null: no cap; absent: the default cap."""
        keys = zip(("attn_logit_softcapping", "final_logit_softcapping"), cls.usual_caps, strict=True)
        scores, logits = (config.number(key, default=0.0 if key in config.data else usual) for key, usual in keys)
        return scores, logits

    @classmethod
    def read_local(cls, config: Config, n_layer: int) -> tuple[bool, ...]:
        """Per layer, whether it has the window."""
        return tuple(read_layer_types(config, n_layer) or by_period(cls.period, n_layer))

    @classmethod
    def read_ropes(cls, config: Config) -> tuple[Config, float, float]:
        """The settings of RoPE, its base, and its base on layers with a window."""
        rope, theta = read_rope(config)
        return rope, theta, theta

    @property
    def _period(self) -> int:
        """The n for which the last of every n layers sees all tokens; 0: no layer does."""
        fitting = (n for n in range(1, self.n_layer + 2) if self.local == by_period(n, self.n_layer))
        return next(fitting, 0)

    @property
    def _is_scaled_as_usual(self) -> bool:
        usual = self.n_embd // self.heads.n_head if self.n_layer == self.n_layer_27b else self.heads.d_head
        return self.scalar == usual

    def values(self) -> dict[str, Any]:
        return {
            "freq_base_local": self.freq_base_local if self.period == 6 else None,  # Gemma 2 has no such key
            "caps": self.caps if self.period == 2 else [cap or None for cap in self.caps],
            "local": self.local if self.local == by_period(self.period, self.n_layer) else self._period or self.local,
            "attention_scale": None if self._is_scaled_as_usual else self.scalar**-0.5,
        }

    def notes(self) -> Iterator[str]:
        yield from self.scaling.notes
        if not self._is_scaled_as_usual:
            yield f"llama.cpp assumes another query_pre_attn_scalar than {self.scalar:g}: it has no key for it"

    def rows(self) -> Iterator[Row]:
        n, d_head = self.n_embd, self.heads.d_head
        yield from self.outer_rows(self.embedding, "model.norm.weight", PLUS_ONE)
        for i in range(self.n_layer):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            for source, target in self.norms.items():
                yield row(f"{hf}{source}.weight", f"{blk}{target}.weight", n, transform=PLUS_ONE)
            yield from self.heads.rows(hf + "self_attn.", blk, n)
            for part in "qk" if self.normed else "":
                name = f"{hf}self_attn.{part}_norm.weight"
                yield row(name, f"{blk}attn_{part}_norm.weight", d_head, transform=PLUS_ONE)
            yield from swiglu(hf + "mlp.", blk, n, self.n_ff)


@dataclass(frozen=True)
class VaultGemma(Gemma2):
    """VaultGemma: Gemma 2 without norms after the parts of a layer. arXiv:2510.15001"""

    arch = "vaultgemma"
    architectures = ("VaultGemmaForCausalLM",)
    in_llama_cpp = False
    norms: ClassVar[Mapping[str, str]] = {
        source: target for source, target in NORMS.items() if not target.startswith("post")
    }

    def notes(self) -> Iterator[str]:
        yield from Decoder.notes(self)


@dataclass(frozen=True)
class Gemma3(Gemma2):
    """Windows on five layers of six, norms on queries and keys, another RoPE base on layers with a window."""

    arch = "gemma3"
    hparams: ClassVar[type[Any]] = Gemma3Hparams
    usual_caps = (0.0, 0.0)
    architectures: ClassVar[tuple[str, ...]] = ("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration")
    dropped: ClassVar[tuple[str, ...]] = PICTURE_TENSORS
    conditional: ClassVar[Mapping[str, str]] = {
        "sliding_window_pattern": "where layer_types is absent",
        **dict.fromkeys(("rope_theta", "rope_local_base_freq"), "where rope_parameters does not say it"),
    }
    without_effect: ClassVar[Mapping[str, str]] = {
        **HIDDEN_ACT,
        **PICTURES,
        "_sliding_window_pattern": "transformers writes it beside layer_types, and reads it nowhere",
    }
    period = 6
    normed = True
    n_layer_27b = 62

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        text = config.section("text_config")
        config.expects("tie_word_embeddings", True)
        return super().read(text if text.data else config, shapes)

    @classmethod
    def read_local(cls, config: Config, n_layer: int) -> tuple[bool, ...]:
        period = config.integer("sliding_window_pattern", default=cls.period)
        return tuple(read_layer_types(config, n_layer) or by_period(period, n_layer))

    @classmethod
    def read_ropes(cls, config: Config) -> tuple[Config, float, float]:
        """transformers 5 has an object per kind of layer; older configs have one for layers without a window."""
        rope = config.section("rope_parameters", "rope_scaling")
        full, local = rope.section("full_attention"), rope.section("sliding_attention")
        refuse_scaling(local)
        theta = (full if full.data else rope).number("rope_theta", default=config.number("rope_theta", default=1e6))
        near = config.number("rope_local_base_freq", default=10000.0)
        return full if full.data else rope, theta, local.number("rope_theta", default=near)

    def canonical(self, name: str) -> str:
        return name.replace("language_model.model.", "model.", 1).replace("model.language_model.", "model.", 1)
