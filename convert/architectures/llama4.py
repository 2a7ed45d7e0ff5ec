"""Llama 4 (text): attention in chunks with RoPE, on every fourth layer over all tokens without; experts. Of Meta."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.hparams import by_period
from hybrid.quant.ggml.families.llama4 import Llama4Hparams

from ..checkpoint import Config
from ..transforms import columns_from, transposed
from .blocks import MAX_LAYERS, attention_bias_notes, read_kinds, read_layers, swiglu
from .family import Row, Shapes, row
from .llama import LLAMA, Llama
from .smollm3 import PERIOD, read_turned
from .unused_fields import PICTURE_TENSORS, PICTURES

# docs/gguf-extensions.md
KINDS = {kind: kind for kind in ("chunked_attention", "full_attention")}
USUAL_CHUNK = 8192  # llama.cpp knows no other, nor another temperature:
TEMPERATURE = 0.1, 8192
NOT_NORMED = 128  # experts of the model without norms on queries and keys
# transformers' defaults
_DEFAULTS: dict[str, Any] = {"num_attention_heads": 40, "num_key_value_heads": 8}


@dataclass(frozen=True)
class Llama4(Llama):
    """The text model. `turned` layers have RoPE, and usually exactly these are `chunked`."""

    arch = "llama4"
    architectures = ("Llama4ForCausalLM", "Llama4ForConditionalGeneration")
    hparams = Llama4Hparams
    order = (
        f"{LLAMA} n_expert? n_expert_used? .vocab_size n_rot .interleave_moe_layer_step n_ff_expert window chunked? "
        "chunk? turned .hybrid.attention.qk_norm? temperature=temperature/0 period=temperature/1"
    )
    pre = ("llama4",)
    dropped: ClassVar[tuple[str, ...]] = (*PICTURE_TENSORS, "vision_model.", "model.vision_model.")
    conditional: ClassVar[Mapping[str, str]] = {
        **Llama.conditional,
        "rope_theta": "where rope_parameters does not say it",
        "rope_scaling": "where rope_parameters is absent",
        "no_rope_layer_interval": "where no_rope_layers is absent or empty",
        "interleave_moe_layer_step": "where moe_layers is absent",
        "attention_chunk_size": "where a layer is of chunked_attention",
        **dict.fromkeys(("floor_scale", "attn_scale"), "where attn_temperature_tuning is true"),
        **dict.fromkeys(("num_local_experts", "num_experts_per_tok", "intermediate_size"), "where a layer has experts"),
    }
    without_effect: ClassVar[Mapping[str, str]] = {
        **PICTURES,
        "router_jitter_noise": "only training",
    }
    usual_ctx = 131072
    usual_eps = 1e-5
    usual_theta = 500000.0
    usual_head = 128

    n_ff_expert: int
    n_expert: int
    n_expert_used: int
    routed: tuple[bool, ...]  # per layer, whether it has experts
    turned: tuple[bool, ...]
    chunked: tuple[bool, ...]
    chunk: int
    normed: bool  # queries and keys of layers with RoPE
    temperature: tuple[float, int]  # (a, b): without RoPE, queries at p are times 1 + a * log(1 + floor((p + 1) / b))

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        text, tied = config.section("text_config"), {}
        if text.data:
            # transformers asks the outer config
            tied = {"tie_word_embeddings": config.boolean("tie_word_embeddings", default=False)}
        else:
            text = config
        fields = {**_DEFAULTS, **text.data, **tied}
        if fields.get("no_rope_layers") == []:  # as published; transformers takes the default
            del fields["no_rope_layers"]
        whole = Config(fields, text.where, text.looked, text.prefixes)
        return replace(super().read(whole, shapes), n_ff=whole.integer("intermediate_size_mlp", default=16384))

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        n_layer = read_layers(config)
        turned = read_turned(config, n_layer)
        chunked = turned
        if config.get("layer_types") is not None:
            kinds = read_kinds(config, KINDS, "layer_types", n_layer=n_layer)
            chunked = tuple(kind == "chunked_attention" for kind in kinds)
        if any(chunked) and config.data.get("attention_chunk_size", USUAL_CHUNK) is None:
            raise config.wrong("attention_chunk_size", "a number of tokens, for the layers of chunked_attention")
        routed = _read_routed(config, n_layer)
        n_expert = config.integer("num_local_experts", default=16, minimum=int(any(routed)), maximum=4096)
        n_used = config.integer("num_experts_per_tok", default=1, minimum=int(any(routed)), maximum=max(1, n_expert))
        tuned = config.boolean("attn_temperature_tuning", default=True)
        scale, period = config.number("attn_scale", default=TEMPERATURE[0], positive=False), TEMPERATURE[1]
        period = config.integer("floor_scale", default=period)
        if scale < 0:
            raise config.wrong("attn_scale", "a number of at least 0")
        return {
            "n_ff_expert": config.integer("intermediate_size"),
            "n_expert": n_expert,
            "n_expert_used": n_used,
            "routed": routed,
            "turned": turned,
            "chunked": chunked,
            "chunk": config.integer("attention_chunk_size", default=USUAL_CHUNK) if any(chunked) else USUAL_CHUNK,
            "normed": config.boolean("use_qk_norm", default=True),
            "temperature": (scale if tuned else 0.0, period),
        }

    @property
    def _step(self) -> int:
        """The n for which the last of every n layers has experts; 0: none has; -1: there is no such n."""
        fitting = (n for n in range(1, self.n_layer + 1) if self.routed == _last_of(n, self.n_layer))
        return next(fitting, -1) if any(self.routed) else 0

    @property
    def _usually_turned(self) -> tuple[bool, ...]:
        """The layers with RoPE that readers assume."""
        return by_period(PERIOD, self.n_layer) if any(self.chunked) else (True,) * self.n_layer

    def values(self) -> dict[str, Any]:
        return super().values() | {
            "interleave_moe_layer_step": max(0, self._step),
            "window": None if any(self.chunked) else 0,
            "chunked": self.chunked if any(self.chunked) else None,
            "turned": self.turned if self.turned != self._usually_turned else None,
            "hybrid.attention.qk_norm": self.normed if self.normed == (self.n_expert == NOT_NORMED) else None,
            "temperature": self.temperature if self.temperature != TEMPERATURE else (None, None),
        }

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        yield from attention_bias_notes(self.attention_bias)
        if self._step == -1 or not self.n_expert:
            yield "llama.cpp cannot load this file: there the last of every N layers has experts"
        if self.turned != by_period(PERIOD, self.n_layer) and (any(self.chunked) or self.turned[-1]):
            last = f"every layer but each {PERIOD}th" if any(self.chunked) else "every layer but the last"
            yield f"llama.cpp takes {last} to have RoPE: its results differ"
        if any(self.chunked) and self.chunk != USUAL_CHUNK and min(self.chunk, USUAL_CHUNK) < self.n_ctx:
            n = min(self.chunk, USUAL_CHUNK)
            yield f"llama.cpp takes chunks of {USUAL_CHUNK} tokens: beyond {n} tokens its results differ"
        if self.normed != (self.n_expert != NOT_NORMED):
            yield f"llama.cpp takes use_qk_norm = {str(not self.normed).lower()}: it has no key for it"
        if self.temperature != TEMPERATURE and not all(self.turned):
            yield "llama.cpp has no keys for attn_scale and floor_scale in this architecture: its results differ"

    def canonical(self, name: str) -> str:
        name = name.replace("model.language_model.", "model.", 1).removeprefix("language_model.")
        return super().canonical(name)

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        yield from self.heads.rows(hf, blk, self.n_embd, bias=self.attention_bias)

    def feed_forward(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        hf, n, n_ff = hf.replace("mlp.", "feed_forward."), self.n_embd, self.n_ff_expert
        if not self.routed[i]:
            yield from swiglu(hf, blk, n, self.n_ff)
            return
        yield row(hf + "router.weight", blk + "ffn_gate_inp.weight", self.n_expert, n)
        for first, part in enumerate(("gate", "up")):
            yield row(
                hf + "experts.gate_up_proj",
                f"{blk}ffn_{part}_exps.weight",
                self.n_expert,
                n_ff,
                n,
                source_shape=(self.n_expert, n, 2 * n_ff),
                transform=columns_from(n, 2 * n_ff, first * n_ff, n_ff),
            )
        yield row(
            hf + "experts.down_proj",
            blk + "ffn_down_exps.weight",
            self.n_expert,
            n,
            n_ff,
            source_shape=(self.n_expert, n_ff, n),
            transform=transposed(n_ff, n),
        )
        yield from swiglu(hf + "shared_expert.", blk, n, n_ff, "_shexp")


def _last_of(step: int, n_layer: int) -> tuple[bool, ...]:
    return tuple((i + 1) % step == 0 for i in range(n_layer))


def _read_routed(config: Config, n_layer: int) -> tuple[bool, ...]:
    """Per layer, whether it has experts."""
    layers = config.get("moe_layers")
    if layers is None:
        return _last_of(config.integer("interleave_moe_layer_step", default=1, maximum=MAX_LAYERS), n_layer)
    if not isinstance(layers, list) or not all(type(i) is int for i in layers):
        raise config.wrong("moe_layers", "numbers of layers")
    return tuple(i in layers for i in range(n_layer))
