"""Jet-Nemotron: the delta rule with a dynamic convolution, attention over a window and over all tokens.
arXiv:2508.15884

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from hybrid.quant.ggml.families.jet_nemotron import JetNemotronHparams

from ..checkpoint import Config
from ..transforms import NEGATIVE_EXP, rows_in_order
from .blocks import HEAD_SIZE, SIZES, Heads, check_rows, read_kinds, read_rope, swiglu
from .decoder import Decoder
from .family import Row, Shapes, row
from .rope import SCALING, RopeScaling, read_stretching

KINDS = {"jet": "jet", "swa": "swa", "attn": "attn"}
_OWN = "efficient_attention_config"


@dataclass(frozen=True)
class JetNemotron(Decoder):
    """One model."""

    arch = "jet-nemotron"
    architectures = ("JetNemotronForCausalLM",)
    hparams = JetNemotronHparams
    order = (
        f"{SIZES} freq_base {SCALING} eps {HEAD_SIZE} .general.file_type window? local? .vocab_size d_conv d_state=d_k "
        "n_group=n_jet_head n_ssm_head=n_jet_head d_inner=n_value n_taps gated_eps"
    )
    pre = ("qwen2",)
    in_llama_cpp = False
    without_effect: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys((f"{_OWN}.jet.mode", f"{_OWN}.jet.dconv_implementation"), "only how it is computed"),
        "max_window_layers": "layer_types says which layers have the window",
    }
    conditional: ClassVar[Mapping[str, str]] = {f"{_OWN}.swa.window_size": "where a layer has the window"}

    n_ff: int
    heads: Heads
    kinds: tuple[str, ...]  # of the layers
    window: int
    freq_base: float
    scaling: RopeScaling
    d_conv: int
    n_jet_head: int
    d_k: int
    d_v: int
    n_taps: int
    gated_eps: float

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("hidden_act", "silu")
        config.expects("use_mrope", False)
        sizes = cls.sizes(config, shapes, n_ctx=32768, tied=True)
        kinds = ["attn"] * sizes["n_layer"]
        if config.get("layer_types") is not None:
            kinds = read_kinds(config, KINDS, "layer_types", n_layer=sizes["n_layer"])
        own = config.section(_OWN)
        jet, swa = own.section("jet"), own.section("swa")
        window = swa.integer("window_size") if "swa" in kinds else 0
        heads = Heads.read(config, sizes["n_embd"])
        heads.require_even(config)
        rope, theta = read_rope(config, 1e6)
        n_jet_head, d_k = jet.integer("num_heads", default=6), jet.integer("head_dim", default=256)
        wider = jet.number("expand_v", default=2.0)
        d_v = int(d_k * wider)
        if not d_v or not math.isclose(d_k * wider, d_v, rel_tol=1e-5):
            raise jet.wrong("expand_v", f"a factor that makes a whole number of head_dim = {d_k}")
        check_rows(jet, n_jet_head * d_v, shapes, "num_heads", "head_dim", "expand_v")
        n_taps = n_jet_head * d_v // jet.integer("dconv_generator_reduction", default=8)
        if not n_taps:
            raise jet.wrong("dconv_generator_reduction", f"at most {n_jet_head * d_v}, the width of the values")
        return cls(
            **sizes,
            n_ff=config.integer("intermediate_size"),
            heads=heads,
            kinds=tuple(kinds),
            window=window,
            freq_base=theta,
            scaling=read_stretching(config, rope, theta, heads.d_head, sizes["n_ctx"]),
            d_conv=jet.integer("conv_size", default=4, minimum=2),
            n_jet_head=n_jet_head,
            d_k=d_k,
            d_v=d_v,
            n_taps=n_taps,
            gated_eps=_read_eps(jet),
        )

    @property
    def n_value(self) -> int:
        """Values of all heads of a JetBlock."""
        return self.n_jet_head * self.d_v

    def values(self) -> dict[str, Any]:
        return {
            "n_head_kv": self.heads.per_layer([kind != "jet" for kind in self.kinds]),
            "local": [kind == "swa" for kind in self.kinds] if self.window else None,
            "n_value": self.n_value,
        }

    def rows(self) -> Iterator[Row]:
        n = self.n_embd
        yield from self.outer_rows(self.embedding, "model.norm.weight")
        for i, kind in enumerate(self.kinds):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            yield row(hf + "input_layernorm.weight", blk + "attn_norm.weight", n)
            yield row(hf + "post_attention_layernorm.weight", blk + "ffn_norm.weight", n)
            if kind == "jet":
                yield from self._jet(hf + "self_attn.", blk)
            else:
                yield from self.heads.rows(hf + "self_attn.", blk, n, bias=True, out_bias=False)
            yield from swiglu(hf + "mlp.", blk, n, self.n_ff)

    def _jet(self, hf: str, blk: str) -> Iterator[Row]:
        """The rows that make taps are by channel in the checkpoint, by tap in the file."""
        n, n_value, n_key, n_head = self.n_embd, self.n_value, self.n_jet_head * self.d_k, self.n_jet_head
        lengths = (n_key, n_key, n_value)
        sources = tuple(f"{hf}{part}_proj.weight" for part in "qkv")
        yield Row(blk + "attn_qkv.weight", (sum(lengths), n), sources, lengths=lengths)
        yield row(hf + "g_proj.weight", blk + "attn_gate.weight", n_value, n)
        yield row(hf + "b_proj.weight", blk + "ssm_beta.weight", n_head, n)
        yield row(hf + "a_proj.weight", blk + "ssm_alpha.weight", n_head, n)
        yield row(hf + "A_log", blk + "ssm_a", n_head, transform=NEGATIVE_EXP)
        yield row(hf + "dt_bias", blk + "ssm_dt.bias", n_head)
        n_out, generator = self.d_conv * n_value, hf + "dynamic_conv1d.kernel_generator."
        by_tap = rows_in_order(np.arange(n_out).reshape(n_value, self.d_conv).T.reshape(-1))
        yield row(generator + "w1.weight", blk + "ssm_taps_in.weight", self.n_taps, n)
        yield row(generator + "w2.weight", blk + "ssm_taps_out.weight", n_out, self.n_taps, transform=by_tap)
        yield row(generator + "w2.bias", blk + "ssm_taps_out.bias", n_out, transform=by_tap)
        yield row(hf + "o_norm.weight", blk + "ssm_norm.weight", self.d_v)
        yield row(hf + "o_proj.weight", blk + "ssm_out.weight", n, n_value)


def _read_eps(jet: Config) -> float:
    """norm_eps, which published configs have as a string."""
    value = jet.get("norm_eps")
    try:
        eps = 1e-5 if value is None else float(value)
    except (TypeError, ValueError):
        eps = math.nan
    if not 0 < eps < 1:
        raise jet.wrong("norm_eps", "a small positive number")
    return eps
