"""Gemma 4 (text): windows on most layers, shared keys and values, embeddings for every layer, experts. Of Google."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.errors import UnsupportedError, shown
from hybrid.quant.ggml.families.gemma4 import Gemma4Hparams
from hybrid.quant.ggml.families.hparams import by_period

from ..checkpoint import Config
from .blocks import HEAD_SIZE, SIZES, Heads, swiglu
from .family import Keyed, Row, Shapes, row
from .gemma import NORMS
from .gemma3n import PerLayerInputs, read_heads, read_shared
from .layer_ropes import LayerRopes
from .rope import SCALING
from .unused_fields import HIDDEN_ACT, PICTURES
from .windows import read_layer_types, read_window

PER_LAYER = "per_layer_config"
# Norms of a layer with experts: the checkpoint's and GGUF's names.
EXPERT_NORMS = {
    "post_feedforward_layernorm_1": "post_ffw_norm_1",
    "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
    "post_feedforward_layernorm_2": "post_ffw_norm_2",
}
PERIOD = 6  # the last of every N layers sees all tokens, if the config does not say


@dataclass(frozen=True)
class Experts(Keyed):
    """The experts, the same on all layers."""

    n_expert: int
    n_expert_used: int
    n_ff_expert: int

    @classmethod
    def read(cls, config: Config) -> "Experts":
        n = config.integer("num_experts", maximum=4096)
        return cls(n, config.integer("top_k_experts", maximum=n), config.integer("moe_intermediate_size"))


@dataclass(frozen=True)
class Gemma4(PerLayerInputs):
    """One model of Gemma 4."""

    arch = "gemma4"
    architectures = ("Gemma4ForCausalLM", "Gemma4ForConditionalGeneration")
    hparams = Gemma4Hparams
    order = (
        f"{SIZES} freq_base freq_base_local {SCALING} eps n_expert n_expert_used {HEAD_SIZE} .general.file_type "
        "logit_cap=cap? window n_shared n_per_layer local d_head_local .attention.value_length_swa=d_head_local "
        "n_ff_expert n_rot=d_head n_rot_local=d_head_local together?"
    )
    understood = (PER_LAYER,)
    conditional: ClassVar[Mapping[str, str]] = {
        "layer_types": "of all layers but the last, which sees all tokens whatever it says",
        "global_head_dim": "where per_layer_config is absent",
        "num_global_key_value_heads": "where attention_k_eq_v is true and per_layer_config is absent",
        "vocab_size_per_layer_input": "where hidden_size_per_layer_input is not 0",
        "use_double_wide_mlp": "where num_kv_shared_layers is not 0",
        **dict.fromkeys(("num_experts", "top_k_experts", "moe_intermediate_size"), "where enable_moe_block is true"),
    }
    without_effect: ClassVar[Mapping[str, str]] = {
        **HIDDEN_ACT,
        **PICTURES,
        **dict.fromkeys(
            ("audio_config", "boa_token_id", "eoa_token_index"), "only sound: the text's part of the model is converted"
        ),
        **dict.fromkeys(("rope_theta", "rope_scaling"), "transformers takes rope_parameters alone"),
    }

    n_ff: int
    heads_full: Heads  # of layers that see all tokens; `heads`: of layers with a window
    ropes: LayerRopes
    tied_values: bool  # layers that see all tokens use keys as values
    double_wide: bool  # layers that share have feed-forward parts twice as wide
    experts: Experts | None
    together: bool  # on layers with a window the tokens of a picture see each other

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        if config.section("text_config").data:
            config.expects(PER_LAYER, {})  # the text part has its own
        return super().read(config, shapes)

    @classmethod
    def read_text(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("hidden_activation", "gelu_pytorch_tanh")
        config.expects("attention_bias", False)
        config.expects("use_bidirectional_attention", None, "vision")
        sizes = cls.sizes(config, shapes, n_ctx=131072, tied=True)
        n_layer = sizes["n_layer"]
        # transformers makes the last layer see all tokens, whatever the list says
        local = (*(read_layer_types(config, n_layer) or by_period(PERIOD, n_layer))[:-1], False)
        window = read_window(config, 512)
        if any(local) and not window:
            raise config.wrong("sliding_window", "a number of tokens, for the layers of sliding_attention")
        tied_values = config.boolean("attention_k_eq_v", default=False)
        heads = read_heads(config, config, (256, 4))
        heads_full = _read_full_heads(config, heads, local, tied_values)
        n_shared = read_shared(config, local, 0)
        n_per_layer = config.integer("hidden_size_per_layer_input", default=256, minimum=0)
        return cls(
            **sizes,
            n_ff=config.integer("intermediate_size"),
            heads=heads,
            heads_full=heads_full,
            window=window,
            local=local,
            ropes=LayerRopes.read(config.section("rope_parameters"), heads_full.d_head, 0.25),
            tied_values=tied_values,
            n_shared=n_shared,
            double_wide=config.boolean("use_double_wide_mlp", default=False) and n_shared > 0,
            n_per_layer=n_per_layer,
            n_vocab_per_layer=_read_tokens_per_layer(config, sizes["n_vocab"]) if n_per_layer else 0,
            experts=Experts.read(config) if config.boolean("enable_moe_block", default=False) else None,
            cap=config.number("final_logit_softcapping", default=0.0),
            together=config.get("use_bidirectional_attention") == "vision",
        )

    def values(self) -> dict[str, Any]:
        n_ff = [self._n_ff(i) for i in range(self.n_layer)] if self.double_wide else self.n_ff
        n_kv = [self._heads(i).n_kv for i in range(self.n_layer)] if self.heads != self.heads_full else self.heads.n_kv
        sizes = {"d_head": self.heads_full.d_head, "d_head_local": self.heads.d_head}
        return sizes | {"n_ff": n_ff, "n_head": self.heads.n_head, "n_head_kv": n_kv}

    def notes(self) -> Iterator[str]:
        if self.n_vocab_per_layer not in (0, self.n_vocab):
            yield "llama.cpp cannot load this file: its table of embeddings for layers has more rows than tokens"
        sources = self.local[max(0, self.n_layer - self.n_shared - 2) : self.n_layer - self.n_shared]
        if self.n_shared and sources != (True, False):
            yield (
                "llama.cpp takes the keys and values that the last layers share from the two layers in front of them, "
                "the first of which has a window there: its results differ"
            )

    def _heads(self, i: int) -> Heads:
        return self.heads if self.local[i] else self.heads_full

    def _shares(self, i: int) -> bool:
        """Whether layer i uses the keys and values of another layer."""
        return i >= self.n_layer - self.n_shared

    def _n_ff(self, i: int) -> int:
        return self.n_ff * (2 if self.double_wide and self._shares(i) else 1)

    def rows(self) -> Iterator[Row]:
        n = self.n_embd
        yield from self.outer_rows(self.embedding, "model.norm.weight")
        yield from self.ropes.rows()
        if self.n_per_layer:
            yield from self.token_rows(self.n_vocab_per_layer)
        for i in range(self.n_layer):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            for source, target in NORMS.items():
                yield row(f"{hf}{source}.weight", f"{blk}{target}.weight", n)
            yield row(hf + "layer_scalar", blk + "layer_output_scale.weight", 1)
            yield from self._attention(hf + "self_attn.", blk, i)
            yield from swiglu(hf + "mlp.", blk, n, self._n_ff(i))
            if self.experts:
                yield from self._experts(hf, blk, self.experts)
            if self.n_per_layer:
                yield from self.layer_rows(hf, blk)

    def _attention(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        heads, shares = self._heads(i), self._shares(i)
        # published checkpoints have them nevertheless
        unread = tuple(f"{hf}{part}.weight" for part in ("k_proj", "v_proj", "k_norm") if shares)
        absent = {*unread, f"{hf}v_proj.weight"} if self.tied_values and not self.local[i] else {*unread}
        for one in heads.rows(hf, blk, self.n_embd):
            if one.sources[0] not in absent:
                yield replace(one, unread=unread) if one.target == blk + "attn_q.weight" else one
        for part in ("q", "k"):
            if f"{hf}{part}_norm.weight" not in absent:
                yield row(f"{hf}{part}_norm.weight", f"{blk}attn_{part}_norm.weight", heads.d_head)

    def _experts(self, hf: str, blk: str, experts: Experts) -> Iterator[Row]:
        n, n_expert, n_ff = self.n_embd, experts.n_expert, experts.n_ff_expert
        for source, target in EXPERT_NORMS.items():
            yield row(f"{hf}{source}.weight", f"{blk}{target}.weight", n)
        yield row(hf + "router.proj.weight", blk + "ffn_gate_inp.weight", n_expert, n)
        yield row(hf + "router.scale", blk + "ffn_gate_inp.scale", n)
        yield row(hf + "router.per_expert_scale", blk + "ffn_down_exps.scale", n_expert)
        yield row(hf + "experts.gate_up_proj", blk + "ffn_gate_up_exps.weight", n_expert, 2 * n_ff, n)
        yield row(hf + "experts.down_proj", blk + "ffn_down_exps.weight", n_expert, n, n_ff)

    def canonical(self, name: str) -> str:
        return name.replace("model.language_model.", "model.", 1)


def _read_full_heads(config: Config, heads: Heads, local: tuple[bool, ...], tied_values: bool) -> Heads:
    """Heads of layers that see all tokens: transformers 5 gives them per layer, published configs for all of them."""
    each = config.section(PER_LAYER)
    if PER_LAYER not in config:
        d_head = config.integer("global_head_dim", default=512, maximum=1 << 16)
        n_kv = config.integer("num_global_key_value_heads", default=heads.n_kv) if tied_values else heads.n_kv
        if heads.n_head % n_kv:
            raise config.wrong("num_global_key_value_heads", f"a divisor of the {heads.n_head} attention heads")
        full = Heads(heads.n_head, n_kv, d_head, stated=True)
        if d_head % 2:
            raise config.wrong("global_head_dim", "heads of even size, for RoPE")
        return full
    usual = (heads.d_head, heads.n_kv)
    found = [read_heads(config, each.section(str(i)), usual) for i in range(len(local))]
    for i, own in enumerate(found):
        unknown = set(each.section(str(i)).data) - {"head_dim", "num_key_value_heads"}
        if unknown or own != (heads if local[i] else found[-1]):
            raise UnsupportedError(
                f"{config.where}: {PER_LAYER} = {shown(str(each.data), 80)} is not supported, only one head_dim and "
                "one num_key_value_heads for all layers of full_attention are."
            )
    return found[-1]


def _read_tokens_per_layer(config: Config, n_vocab: int) -> int:
    n = config.integer("vocab_size_per_layer_input", default=262144, maximum=1 << 24)
    if n < n_vocab:
        raise config.wrong("vocab_size_per_layer_input", f"one row for each of the {n_vocab} tokens at least")
    return n
