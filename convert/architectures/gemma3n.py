"""Gemma 3n (text): several residual streams, one of them computed by layers, embeddings for every layer, sparse gates.
Of Google."""

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, ClassVar, Self

import numpy as np

from hybrid.quant.ggml.errors import shown
from hybrid.quant.ggml.families.gemma3n import Gemma3nHparams
from hybrid.quant.ggml.families.hparams import by_period

from ..checkpoint import Config
from ..transforms import Transform
from .blocks import HEAD_SIZE, SIZES, Heads, swiglu
from .decoder import Decoder
from .family import Row, Shapes, row
from .gemma import NORMS, Gemma3
from .rope import SCALING, RopeScaling, read_stretching
from .unused_fields import HIDDEN_ACT, PICTURES
from .windows import read_layer_types, read_window

PERIOD = 5  # the last of every N layers sees all tokens, if the config does not say
SPARSE_LAYERS = 10  # default number of first layers with sparse gates
USUAL_SPARSITY = 0.95
# Values without a key in llama.cpp: layers with keys and values, values per layer, rank, inputs.
KEPT, PER_LAYER, RANK, STREAMS = 20, 256, 64, 4
MOST_STREAMS = 64
# Replaces a scale that the checkpoint has and the model does not use.
ONES = Transform("one", lambda x, _: np.ones_like(x), arithmetic=False)


@dataclass(frozen=True)
class PerLayerInputs(Decoder):
    """The part that Gemma 3n and Gemma 4 share: the last layers share keys and values, and a token has an embedding for
    each layer."""

    dropped: ClassVar[tuple[str, ...]] = tuple(
        f"{outer}{tower}."
        for outer in ("", "model.")
        for tower in ("vision_tower", "audio_tower", "embed_vision", "embed_audio")
    )

    heads: Heads
    window: int
    local: tuple[bool, ...]  # per layer, whether it has the window
    n_shared: int  # last layers, which have no keys and values of their own
    n_per_layer: int  # values that a token has for each layer; 0: none
    n_vocab_per_layer: int
    cap: float  # of logits; 0: none

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        text = config.section("text_config")
        if not text.data:
            return cls.read_text(config, shapes)
        config.expects("tie_word_embeddings", True)
        return cls.read_text(text, shapes)

    @classmethod
    @abstractmethod
    def read_text(cls, config: Config, shapes: Shapes) -> Self:
        """Reads the text part of a config."""

    def token_rows(self, n_tokens: int, **more: Any) -> Iterator[Row]:
        """The embeddings for layers, and their projection from the ordinary embeddings."""
        n_table = self.n_layer * self.n_per_layer
        table = "model.embed_tokens_per_layer.weight"
        yield row(table, "per_layer_token_embd.weight", n_tokens, n_table, **more)
        yield row("model.per_layer_model_projection.weight", "per_layer_model_proj.weight", n_table, self.n_embd)
        yield row("model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight", self.n_per_layer)

    def layer_rows(self, hf: str, blk: str) -> Iterator[Row]:
        """How a layer reads its own embedding."""
        n, per = self.n_embd, self.n_per_layer
        yield row(hf + "per_layer_input_gate.weight", blk + "inp_gate.weight", per, n)
        yield row(hf + "per_layer_projection.weight", blk + "proj.weight", n, per)
        yield row(hf + "post_per_layer_input_norm.weight", blk + "post_norm.weight", n)


def read_shared(config: Config, local: Sequence[bool], default: int) -> int:
    """The number of last layers without keys and values of their own."""
    n_layer = len(local)
    n_shared = config.integer("num_kv_shared_layers", default=default, minimum=0, maximum=n_layer - 1)
    if not {*local[n_layer - n_shared :]} <= {*local[: n_layer - n_shared]}:
        raise config.wrong("num_kv_shared_layers", "a layer of each kind before the layers that share")
    return n_shared


def read_heads(config: Config, own: Config, usual: tuple[int, int]) -> Heads:
    """`own`: config with the size of heads and the number of KV heads; `usual`: defaults for it."""
    n_head = config.integer("num_attention_heads", default=8)
    d_head = own.integer("head_dim", default=usual[0], maximum=1 << 16)
    heads = Heads(n_head, own.integer("num_key_value_heads", default=usual[1]), d_head, stated=True)
    if n_head % heads.n_kv:
        raise own.wrong("num_key_value_heads", f"a divisor of the {n_head} attention heads")
    heads.require_even(own)
    return heads


@dataclass(frozen=True)
class Gemma3n(PerLayerInputs):
    """The text model."""

    arch = "gemma3n"
    architectures = ("Gemma3nForCausalLM", "Gemma3nForConditionalGeneration")
    hparams = Gemma3nHparams
    order = (
        f"{SIZES} {SCALING} freq_base freq_base_local eps {HEAD_SIZE} .general.file_type logit_cap=cap? window active "
        "n_stream n_per_layer n_shared .activation_sparsity_scale local"
    )
    conditional: ClassVar[Mapping[str, str]] = {
        "rope_theta": "where rope_parameters does not say it",
        "rope_scaling": "where rope_parameters is absent",
        "rope_local_base_freq": "where rope_parameters does not say it",
    }
    without_effect: ClassVar[Mapping[str, str]] = {
        **HIDDEN_ACT,
        **PICTURES,
        "altup_coef_clip": "only training",
        **dict.fromkeys(
            (
                "audio_config",
                "audio_soft_tokens_per_image",
                "vision_soft_tokens_per_image",
                "boa_token_id",
                "eoa_token_id",
                "eoa_token_index",
            ),
            "only pictures and sound: the text's part of the model is converted",
        ),
    }

    n_ff: tuple[int, ...]
    freq_base: float
    freq_base_local: float
    scaling: RopeScaling  # of layers that see all tokens
    stored: bool  # the checkpoint has keys and values of layers that share other layers'
    n_stream: int
    active: int  # the stream that layers compute on
    scaled: bool  # a scale is applied to the active stream before the embeddings of layers read it
    rank: int  # of the low-rank residual beside attention
    sparsity: tuple[float, ...]  # per layer, the share of gates that are ignored; 0: none

    @classmethod
    def read_text(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("hidden_activation", "gelu_pytorch_tanh")
        config.expects("attention_bias", False)
        config.expects("tie_word_embeddings", True)
        sizes = cls.sizes(config, shapes, n_ctx=32768, tied=True)
        n_layer = sizes["n_layer"]
        heads = read_heads(config, config, (256, 2))
        local = tuple(read_layer_types(config, n_layer) or by_period(PERIOD, n_layer))
        window = read_window(config, 512)
        if not window:
            raise config.wrong("sliding_window", "a number of tokens, for the layers of sliding_attention")
        n_shared = read_shared(config, local, 15)
        n_stream = config.integer("altup_num_inputs", default=STREAMS, minimum=2, maximum=MOST_STREAMS)
        rope, theta, theta_local = Gemma3.read_ropes(config)
        return cls(
            **sizes,
            n_ff=_read_widths(config, n_layer),
            heads=heads,
            window=window,
            local=local,
            freq_base=theta,
            freq_base_local=theta_local,
            scaling=read_stretching(config, rope, theta, heads.d_head, sizes["n_ctx"]),
            n_shared=n_shared,
            stored=any(name.endswith(f"layers.{n_layer - 1}.self_attn.k_proj.weight") for name in shapes),
            n_per_layer=config.integer("hidden_size_per_layer_input", default=PER_LAYER),
            n_vocab_per_layer=config.integer("vocab_size_per_layer_input", default=262144, maximum=1 << 24),
            n_stream=n_stream,
            active=config.integer("altup_active_idx", default=0, minimum=0, maximum=n_stream - 1),
            scaled=config.boolean("altup_correct_scale", default=True),
            rank=config.integer("laurel_rank", default=RANK),
            sparsity=_read_sparsity(config, n_layer),
            cap=config.number("final_logit_softcapping", default=_usual_cap(config)),
        )

    def values(self) -> dict[str, Any]:
        return {"activation_sparsity_scale": [_deviations(share) for share in self.sparsity]}

    def notes(self) -> Iterator[str]:
        yield from self.scaling.notes
        known = {
            "hidden_size_per_layer_input": (self.n_per_layer, PER_LAYER),
            "laurel_rank": (self.rank, RANK),
            "altup_num_inputs": (self.n_stream, STREAMS),
        }
        other = [f"{name} = {usual}" for name, (n, usual) in known.items() if n != usual]
        if other:
            yield f"llama.cpp cannot load this file: there {' and '.join(other)}"
        elif self.n_vocab_per_layer > self.n_vocab:
            yield "llama.cpp cannot load this file: its table of embeddings for layers has more rows than tokens"
        elif self.n_shared and not self.stored:
            yield "llama.cpp cannot load this file: there layers have keys and values of their own that it does not use"
        first = self.n_layer - self.n_shared
        if first != min(KEPT, self.n_layer) or (self.n_shared and self.local[first - 2 : first] != (True, False)):
            yield (
                f"llama.cpp takes the keys and values of all layers from the {KEPT + 1}th on from the two before it, "
                "of which the first has a window: its results differ"
            )
        if self.sparsity != _usual_sparsity(SPARSE_LAYERS, self.n_layer):
            usual = f"the first {SPARSE_LAYERS} layers to be sparse, by {USUAL_SPARSITY:g}"
            yield f"llama.cpp takes {usual}: its results differ"
        if self.n_vocab_per_layer < self.n_vocab:
            yield (
                f"tokens from {self.n_vocab_per_layer} on, of pictures and sounds, have no embeddings for layers: "
                "zeros, as llama.cpp's converter writes them; transformers takes token 0's"
            )

    def canonical(self, name: str) -> str:
        return name.replace("language_model.model.", "model.", 1).replace("model.language_model.", "model.", 1)

    def rows(self) -> Iterator[Row]:
        n = self.n_embd
        yield from self.outer_rows(self.embedding, "model.norm.weight")
        yield from self.scaling.rows()
        padding = max(0, self.n_vocab - self.n_vocab_per_layer)
        source_shape = (self.n_vocab_per_layer, self.n_layer * self.n_per_layer) if padding else None
        yield from self.token_rows(self.n_vocab_per_layer + padding, source_shape=source_shape, padding=padding)
        for source, target in (("altup_projections", "altup_proj"), ("altup_unembed_projections", "altup_unembd_proj")):
            names = tuple(f"model.{source}.{i}.weight" for i in range(self.n_stream - 1))
            yield Row(target + ".weight", (len(names), n, n), names, group=f"model.{source}.")
        for i in range(self.n_layer):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            for source, target in NORMS.items():
                yield row(f"{hf}{source}.weight", f"{blk}{target}.weight", n)
            yield from self._attention(hf + "self_attn.", blk, i)
            yield from swiglu(hf + "mlp.", blk, n, self.n_ff[i])
            yield from self._streams(hf + "altup.", blk)
            yield row(hf + "laurel.linear_left.weight", blk + "laurel_l.weight", self.rank, n)
            yield row(hf + "laurel.linear_right.weight", blk + "laurel_r.weight", n, self.rank)
            yield row(hf + "laurel.post_laurel_norm.weight", blk + "laurel_post_norm.weight", n)
            yield from self.layer_rows(hf, blk)

    def _attention(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        absent = i >= self.n_layer - self.n_shared and not self.stored
        for one in (*self.heads.rows(hf, blk, self.n_embd), *self.heads.norm_rows(hf, blk)):
            if not absent or not one.sources[0].startswith((hf + "k_", hf + "v_")):
                yield one

    def _streams(self, hf: str, blk: str) -> Iterator[Row]:
        n, h = self.n_embd, self.n_stream
        scale = None if self.scaled else ONES
        yield row(hf + "correct_output_scale", blk + "altup_correct_scale.weight", n, transform=scale)
        yield row(hf + "modality_router.weight", blk + "altup_router.weight", h, n)
        yield row(hf + "correction_coefs.weight", blk + "altup_correct_coef.weight", h, h)
        yield row(hf + "prediction_coefs.weight", blk + "altup_predict_coef.weight", h * h, h)
        yield row(hf + "router_norm.weight", blk + "altup_router_norm.weight", n)


def _read_widths(config: Config, n_layer: int) -> tuple[int, ...]:
    """The width of each layer's feed-forward part."""
    stated = config.get("intermediate_size")
    if not isinstance(stated, list):
        return (config.integer("intermediate_size", default=16384),) * n_layer
    if len(stated) != n_layer or not all(type(n) is int and 0 < n < 1 << 24 for n in stated):
        raise config.wrong("intermediate_size", f"{n_layer} widths, or one for all layers")
    return tuple(stated)


def _usual_sparsity(n_sparse: int, n_layer: int) -> tuple[float, ...]:
    return tuple(USUAL_SPARSITY if i < n_sparse else 0.0 for i in range(n_layer))


def _read_sparsity(config: Config, n_layer: int) -> tuple[float, ...]:
    """The share of gates of each layer that are ignored; 0 or less: none, as in transformers."""
    stated = config.get("activation_sparsity_pattern")
    if stated is None:
        return _usual_sparsity(SPARSE_LAYERS if n_layer > SPARSE_LAYERS else 0, n_layer)
    numbers = isinstance(stated, list) and all(type(x) in (int, float) and 0 <= x < 1 for x in stated)
    if not numbers or len(stated) != n_layer:
        raise config.wrong(
            "activation_sparsity_pattern", f"{n_layer} shares from 0 to less than 1, not {shown(stated)}"
        )
    return tuple(map(float, stated))


def _usual_cap(config: Config) -> float:
    """The cap: absent: the default; null: none."""
    return 0.0 if "final_logit_softcapping" in config.data else 30.0


def _deviations(share: float) -> float:
    """The threshold, in standard deviations above the mean, that leaves out this share of a normal distribution."""
    rounded = float(np.float32(share))  # as torch sees it
    return NormalDist().inv_cdf(rounded) if 0 < rounded < 1 else -math.inf
