"""Opt.Gear: a Gemma 3 with gated short convolutions of keys and values instead of attention on most layers.
arXiv:2608.01034"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.gear import GearHparams

from ..checkpoint import Config
from ..transforms import PLUS_ONE
from .blocks import HEAD_SIZE, read_kinds, swiglu
from .family import Row, Shapes, row
from .gemma import NORMS, Gemma3
from .rope import SCALING

KINDS = {kind: kind for kind in ("full_attention", "sliding_attention", "conv_mixer")}
USUAL: Mapping[str, Any] = {"sliding_window": 512}  # of mlx-lm's configuration class


@dataclass(frozen=True)
class Gear(Gemma3):
    """One model."""

    arch = "gear"
    architectures: ClassVar[tuple[str, ...]] = ("GearForCausalLM",)
    hparams = GearHparams
    in_llama_cpp: ClassVar[bool] = False
    order = (
        f"n_layer n_ctx_train n_embd n_ff n_head n_head_kv {SCALING} freq_base freq_base_local eps {HEAD_SIZE} "
        ".general.file_type .vocab_size attention_cap=caps/0 logit_cap=caps/1 window local d_conv n_kv=heads/n_kv "
        "attention_scale"
    )
    dropped: ClassVar[tuple[str, ...]] = ()
    without_effect: ClassVar[Mapping[str, str]] = {"hidden_act": "hidden_activation counts, as in mlx-lm"}
    conditional: ClassVar[Mapping[str, str]] = {
        "rope_theta": "where rope_parameters does not say it",
        **dict.fromkeys(("rope_local_base_freq", "sliding_window"), "where a layer has a window"),
    }
    n_layer_27b = 0

    attention: tuple[bool, ...] = ()  # per layer
    d_conv: int = 0

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config = Config({**USUAL, **config.data}, config.where, config.looked, config.prefixes)
        model = super().read(config, shapes)
        kinds = read_kinds(config, KINDS, "layer_types", n_layer=model.n_layer)
        return replace(
            model,
            attention=tuple(kind != "conv_mixer" for kind in kinds),
            d_conv=config.integer("conv_L_cache", default=3, minimum=2),
            scalar=config.number("query_pre_attn_scalar", default=float(model.heads.d_head)),
        )

    @classmethod
    def read_local(cls, config: Config, n_layer: int) -> tuple[bool, ...]:
        kinds = read_kinds(config, KINDS, "layer_types", n_layer=n_layer)
        return tuple(kind == "sliding_attention" for kind in kinds)

    def values(self) -> dict[str, Any]:
        own: dict[str, Any] = {"n_head_kv": self.heads.per_layer(self.attention), "local": self.local}
        if not any(self.local):
            own |= dict.fromkeys(("local", "window", "freq_base_local"))
        return super().values() | own

    def notes(self) -> Iterator[str]:
        yield from self.scaling.notes
        yield "llama.cpp cannot load this file: it has no such architecture"

    def rows(self) -> Iterator[Row]:
        n, heads = self.n_embd, self.heads
        yield from self.outer_rows(self.embedding, "model.norm.weight", PLUS_ONE)
        for i in range(self.n_layer):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            for source, target in NORMS.items():
                yield row(f"{hf}{source}.weight", f"{blk}{target}.weight", n, transform=PLUS_ONE)
            mixer = hf + ("self_attn." if self.attention[i] else "local_mixer.")
            yield from heads.rows(mixer, blk, n)
            for norm in heads.norm_rows(mixer, blk):
                yield replace(norm, transform=PLUS_ONE)
            n_shared = heads.n_kv * heads.d_head
            for name in () if self.attention[i] else ("key", "value"):
                source, target = f"{mixer}{name}_conv.weight", f"{blk}ssm_conv1d_{name[0]}.weight"
                yield row(source, target, n_shared, self.d_conv, source_shape=(n_shared, 1, self.d_conv))
            yield from swiglu(hf + "mlp.", blk, n, self.n_ff)
