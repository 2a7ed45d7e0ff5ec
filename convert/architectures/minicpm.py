"""MiniCPM: Llama with three factors; MiniCPM-SALA: on most layers lightning attention, on the others attention with
gates. arXiv:2404.06395"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.minicpm import MiniCpmHparams, MiniCpmSalaHparams

from ..checkpoint import Config
from .blocks import Heads, read_kinds, read_layers
from .family import Family, Row, Shapes, row
from .lightning import decay_row, slopes
from .llama import LLAMA, Llama

SCALES = "embedding_scale residual_scale logit_scale"  # words of Family.order
# of sparse_config
SPARSE = ("block_size", "init_blocks", "kernel_size", "kernel_stride", "topk", "use_nope", "window_size")
LIGHTNING, ATTENTION = "lightning", "attention"
KINDS = {
    **dict.fromkeys(("lightning", "lightning_attn", "lightning-attn"), LIGHTNING),
    "minicpm4": ATTENTION,
}
LIGHTNING_SCALES = {"1/sqrt(d)": -0.5, "1/d": -1.0}  # powers of the size of a head


@dataclass(frozen=True)
class MiniCpm(Llama):
    """One model of MiniCPM 1, 2, 4 or 4.1, without experts."""

    arch = "minicpm"
    architectures: ClassVar[tuple[str, ...]] = ("MiniCPMForCausalLM",)
    hparams: ClassVar[type[Any]] = MiniCpmHparams
    order = f"{LLAMA} {SCALES} dense_len?"
    without_effect: ClassVar[Mapping[str, str]] = {
        "mup_denominator": "the number of layers counts, as in the published code",
        "shift_labels": "only training",
        **dict.fromkeys((f"sparse_config.{name}" for name in SPARSE), "of sparse attention, before which contexts end"),
    }
    rope_kinds: ClassVar[dict[str, str]] = {"su": "longrope"}
    usually_tied = True

    scales: Mapping[str, float]
    dense_len: int  # tokens of the shortest text for which attention is sparse; 0: it never is

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        model = super().read(config, shapes)
        return replace(model, n_ctx=min(model.n_ctx, model.dense_len - 1)) if model.dense_len else model

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        for key, expected in {"num_experts": 0, "lightning_layerwise_decay": False}.items():
            config.expects(key, expected)
        n_layer, n_embd = read_layers(config), config.integer("hidden_size")
        scales = {
            "embedding_scale": config.number("scale_emb", default=1.0),
            "residual_scale": config.number("scale_depth", default=1.0) / math.sqrt(n_layer),
            "logit_scale": n_embd / config.number("dim_model_base", default=1.0),
        }
        return {"scales": scales, "dense_len": _dense_len(config)}

    def values(self) -> dict[str, Any]:
        return {**super().values(), **self.scales}

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if self.dense_len:
            yield (
                f"sparse_config: from {self.dense_len} tokens on this model's attention is sparse, which is not "
                f"supported: contexts end at {self.n_ctx}"
            )


@dataclass(frozen=True)
class MiniCpmSala(MiniCpm):
    """One model of MiniCPM-SALA. Its layers differ in gates, norms and RoPE."""

    arch = "minicpm-sala"
    architectures = ("MiniCPMSALAForCausalLM",)
    hparams = MiniCpmSalaHparams
    order = f"{LLAMA} n_rot {SCALES} dense_len? turned? lightning_scale?"
    in_llama_cpp = False
    usually_tied = False
    usual_ctx = 32768

    lightning: tuple[bool, ...] = ()  # per layer
    turned: tuple[bool, ...] = ()  # per layer, whether it has RoPE
    normed: bool = True  # queries and keys of lightning attention
    normed_after: bool = False  # its results
    gates: tuple[bool, bool] = (False, False)  # of lightning attention, and of attention
    lightning_scale: float = 0.0

    @classmethod
    def read_biases(cls, config: Config) -> dict[str, Any]:
        config.expects("attention_bias", False)
        return {"attention_bias": False, "mlp_bias": False}

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        n_layer, heads = read_layers(config), Heads.read(config, config.integer("hidden_size"))
        for key, expected in {
            **dict.fromkeys(("lightning_nh", "lightning_nkv"), heads.n_head),
            "lightning_head_dim": heads.d_head,
        }.items():
            if config.integer(key, default=expected) != expected:
                raise config.wrong(key, f"{expected}, as for attention")
        if "lightning_nkv" not in config and heads.n_kv != heads.n_head:
            raise config.wrong("lightning_nkv", f"{heads.n_head}, as many as heads of queries")
        kinds = read_kinds(config, KINDS, "mixer_types", n_layer=n_layer)
        turned = {
            LIGHTNING: config.boolean("lightning_use_rope", default=True),
            ATTENTION: config.boolean("attn_use_rope", default=True),
        }
        config.expects("lightning_scale", *LIGHTNING_SCALES)
        scale = LIGHTNING_SCALES[config.string("lightning_scale", default="1/sqrt(d)")]
        return {
            **super().read_more(config),
            "lightning": tuple(kind == LIGHTNING for kind in kinds),
            "turned": tuple(turned[kind] for kind in kinds),
            "normed": config.boolean("qk_norm", default=True),
            "normed_after": config.boolean("use_output_norm", default=False),
            "gates": tuple(config.boolean(key, default=False) for key in ("use_output_gate", "attn_use_output_gate")),
            "lightning_scale": 0.0 if scale == LIGHTNING_SCALES["1/sqrt(d)"] else float(heads.d_head**scale),
        }

    def values(self) -> dict[str, Any]:
        return {**super().values(), "n_head_kv": self.heads.per_layer([not there for there in self.lightning])}

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        yield from Family.notes(self)

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        lightning, heads = self.lightning[int(blk.split(".")[1])], self.heads
        n_inner = heads.n_head * heads.d_head
        yield from (replace(heads, n_kv=heads.n_head) if lightning else heads).rows(hf, blk, self.n_embd)
        if self.gates[0 if lightning else 1]:
            gate = "z_proj" if lightning else "o_gate"
            yield row(f"{hf}{gate}.weight", blk + "attn_gate.weight", n_inner, self.n_embd)
        if not lightning:
            return
        if self.normed:
            yield from heads.norm_rows(hf, blk)
        if self.normed_after:
            yield row(hf + "o_norm.weight", blk + "attn_norm_2.weight", n_inner)
        yield decay_row(blk, slopes(heads.n_head))


def _dense_len(config: Config) -> int:
    """The first number of tokens for which attention is sparse; 0: for none."""
    if config.get("sparse_config") is None:
        return 0
    return config.section("sparse_config").integer("dense_len", default=8192, minimum=2)
