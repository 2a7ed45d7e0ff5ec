"""PLaMo 2: Mamba-2 and attention in turns, norms around every part. arXiv:2509.04897"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.plamo2 import Plamo2Hparams

from ..checkpoint import Config
from ..transforms import NEGATIVE_EXP, PLUS_ONE, plus
from .blocks import HEAD_SIZE, Heads
from .decoder import Decoder
from .family import Row, Shapes, row
from .unused_fields import PICTURES
from .windows import one_or_each, window_notes

HEAD_EPS = 1e-6  # of the norms on queries and keys, whatever the config says for the others
# The norms of a layer: name in the checkpoint, name in GGUF, the number to add to the stored weights.
NORMS = (
    ("pre_mixer_norm", "attn_norm.weight", PLUS_ONE),
    ("post_mixer_norm", "post_attention_norm", plus(1 / 5)),
    ("pre_mlp_norm", "ffn_norm.weight", PLUS_ONE),
    ("post_mlp_norm", "post_ffw_norm", plus(1 / 5**1.5)),
)
DEFAULTS: dict[str, Any] = {"n_ctx": 2048, "eps": 1e-6, "tied": True}


@dataclass(frozen=True)
class Plamo2(Decoder):
    """One model; transformers has no class for it, so defaults come from its own code."""

    arch = "plamo2"
    architectures = ("Plamo2ForCausalLM", "PLaMo2ForCausalLM")
    hparams = Plamo2Hparams
    order = (
        f".vocab_size n_head_kv n_head n_ctx_train n_embd {HEAD_SIZE} n_layer eps freq_base d_state d_conv n_ssm_head "
        "d_inner .ssm.group_count n_ff .general.file_type windows? head_eps"
    )
    tokenizer_hint = "pfnet/plamo-2-1b"
    conditional: ClassVar[Mapping[str, str]] = {
        "attention_window_size": "where a layer with attention is not one of full_attention_idx",
        "mamba_step": "where mamba_enabled is true",
    }
    without_effect: ClassVar[Mapping[str, str]] = {
        **PICTURES,
        **dict.fromkeys(("image_feature_size", "image_proj_type"), "only pictures"),
        **dict.fromkeys(("fp8_accum_dtype", "linear_type"), "only how products are computed in training"),
        "sliding_window": "attention_window_size counts, of which its own code makes it",
    }

    n_ff: int
    heads: Heads
    attention: tuple[bool, ...]  # per layer
    windows: tuple[int, ...]  # per layer, tokens that a token sees, itself included; 0: all
    freq_base: float
    d_conv: int
    d_state: int
    n_ssm_head: int

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        for bits in ("eval_attention_n_bit", "eval_mlp_n_bit"):
            config.expects(bits, None)
        sizes = cls.sizes(config, shapes, **DEFAULTS)
        heads = Heads(
            config.integer("num_attention_heads", default=32),
            config.integer("num_key_value_heads", default=4),
            config.integer("hidden_size_per_head", default=128, maximum=1 << 16),
            stated=True,
        )
        if heads.n_head % heads.n_kv:
            raise config.wrong("num_key_value_heads", f"a divisor of the {heads.n_head} attention heads")
        if heads.d_head % 2:
            raise config.wrong("hidden_size_per_head", "heads of even size, for RoPE")
        attention = _attention(config, sizes["n_layer"])
        return cls(
            **sizes,
            n_ff=config.integer("intermediate_size", default=13312),
            heads=heads,
            attention=attention,
            windows=_windows(config, attention),
            freq_base=config.number("rope_theta", default=10000.0),
            d_conv=config.integer("mamba_d_conv", default=4, minimum=2),
            d_state=config.integer("mamba_d_state", default=64),
            n_ssm_head=config.integer("mamba_num_heads", default=64),
        )

    @property
    def d_inner(self) -> int:
        return self.n_ssm_head * self.heads.d_head

    @property
    def dt_rank(self) -> int:
        return max(64, self.n_embd // 16)

    def values(self) -> dict[str, Any]:
        # n_head is not 0 on Mamba layers: if it is 0 in the first layer, llama.cpp rotates 0 values in all, and hangs
        n_head_kv = self.heads.per_layer(self.attention)
        head_eps = HEAD_EPS if self.eps != HEAD_EPS else None
        return {
            "n_head_kv": n_head_kv,
            "ssm.group_count": 0,
            "windows": one_or_each(self.windows),
            "head_eps": head_eps,
        }

    def notes(self) -> Iterator[str]:
        yield from window_notes(self.windows, self.n_ctx)
        if self.eps != HEAD_EPS:
            yield f"llama.cpp normalizes queries and keys with an epsilon of {self.eps:g}: its results differ"

    def rows(self) -> Iterator[Row]:
        n = self.n_embd
        yield from self.outer_rows(self.embedding, "model.norm.weight", PLUS_ONE)
        for i in range(self.n_layer):
            hf, blk = f"model.layers.layers.{i}.", f"blk.{i}."
            for source, target, more in NORMS:
                yield row(f"{hf}{source}.weight", blk + target, n, transform=more)
            yield from (self._attention if self.attention[i] else self._mamba)(hf + "mixer.", blk)
            yield row(hf + "mlp.gate_up_proj.weight", blk + "ffn_up.weight", 2 * self.n_ff, n)
            yield row(hf + "mlp.down_proj.weight", blk + "ffn_down.weight", n, self.n_ff)

    def _attention(self, hf: str, blk: str) -> Iterator[Row]:
        n, n_head, n_kv, d = self.n_embd, self.heads.n_head, self.heads.n_kv, self.heads.d_head
        yield row(hf + "qkv_proj.weight", blk + "attn_qkv.weight", (n_head + 2 * n_kv) * d, n)
        yield row(hf + "q_weight", blk + "attn_q_norm.weight", n_head, d)
        yield row(hf + "k_weight", blk + "attn_k_norm.weight", n_kv, d)
        yield row(hf + "o_proj.weight", blk + "attn_output.weight", n, n_head * d)

    def _mamba(self, hf: str, blk: str) -> Iterator[Row]:
        n, n_inner, taps = self.n_embd, self.d_inner, self.d_conv
        yield row(hf + "in_proj.weight", blk + "ssm_in.weight", 2 * n_inner, n)
        yield row(hf + "conv1d.weight", blk + "ssm_conv1d.weight", n_inner, taps, source_shape=(n_inner, 1, taps))
        yield row(hf + "bcdt_proj.weight", blk + "ssm_x.weight", 2 * self.d_state + self.dt_rank, n_inner)
        yield row(hf + "dt_proj.weight", blk + "ssm_dt.weight", self.n_ssm_head, self.dt_rank)
        yield row(hf + "dt_bias", blk + "ssm_dt.bias", self.n_ssm_head)
        yield row(hf + "A_log", blk + "ssm_a", self.n_ssm_head, transform=NEGATIVE_EXP)
        yield row(hf + "D", blk + "ssm_d", self.n_ssm_head)
        for source, target, size in (("dt", "dt", self.dt_rank), ("B", "b", self.d_state), ("C", "c", self.d_state)):
            yield row(f"{hf}{source}_norm_weight", f"{blk}ssm_{target}_norm", size)
        yield row(hf + "out_proj.weight", blk + "ssm_out.weight", n, n_inner)


def _attention(config: Config, n_layer: int) -> tuple[bool, ...]:
    """Per layer, whether it has attention: the middle one of every mamba_step layers, or the last layer if there are
    fewer."""
    if not config.boolean("mamba_enabled", default=True):
        return (True,) * n_layer
    step = config.integer("mamba_step", default=2, minimum=2)
    if n_layer <= step // 2:
        return tuple(i == n_layer - 1 for i in range(n_layer))
    return tuple(i % step == step // 2 for i in range(n_layer))


def _windows(config: Config, attention: tuple[bool, ...]) -> tuple[int, ...]:
    """Per layer, the window: a token sees attention_window_size tokens before itself."""
    full = config.get("full_attention_idx") or []
    if not isinstance(full, list) or not all(type(i) is int for i in full):
        raise config.wrong("full_attention_idx", "numbers of layers")
    window = config.integer("attention_window_size", default=2048) + 1
    return tuple(window if there and i not in full else 0 for i, there in enumerate(attention))
