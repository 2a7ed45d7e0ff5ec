"""RWKV-6 and RWKV-7: recurrent, without attention. arXiv:2404.05892, arXiv:2503.14456

Tensor names are from RWKV/v6-Finch-* (rwkv6) and fla-hub/rwkv7-* (rwkv7). The other dialect of RWKV-7, and the names
of .pth files, are also read: low-rank matrices w1, w2 with the bias w0 are transposed there.
"""

import math
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.rwkv import Rwkv6Hparams, Rwkv7Hparams

from ..checkpoint import Config
from ..transforms import Transform, scaled, transposed
from .blocks import MAX_LAYERS, read_layers
from .family import Family, Row, Shapes, row, vocabulary_rows
from .unused_fields import NO_POSITIONS

HEAD_NORM_EPS = 64e-5
LERPS_6, _LERPS_7 = "wkvrg", "rwkvag"  # the order of the fused tensor
_RENAMED = (
    # of .pth files
    (r"^emb\.", "model.embeddings."),
    (r"^blocks\.0\.ln0\.", "model.layers.0.pre_norm."),
    (r"^ln_out\.", "model.norm."),
    (r"\.att\.", ".attn."),
    # of Rwkv7ForCausalLM
    (r"^(?:model\.)?blocks\.", "model.layers."),
    (r"^model\.pre_ln\.|^model\.layers\.0\.pre_ln\.", "model.layers.0.pre_norm."),
    (r"^model\.ln_out\.", "model.norm."),
    (r"^head\.", "lm_head."),
    (r"\.(?:self_attn|attention)\.", ".attn."),
    (r"\.attn\.time_mixer\.", ".attn."),
    (r"\.feed_forward\.", ".ffn."),
    (r"\.ln1\.", ".attn_norm."),
    (r"\.ln2\.", ".ffn_norm."),
    (r"\.attn\.ln_x\.", ".attn.g_norm."),
    (r"\.attn\.receptance\.", ".attn.r_proj."),
    (r"\.attn\.key\.", ".attn.k_proj."),
    (r"\.attn\.value\.", ".attn.v_proj."),
    (r"\.attn\.output\.", ".attn.o_proj."),
    (r"\.attn\.([wavg])1$", r".attn.\1_lora.lora.0.weight"),
    (r"\.attn\.([wavg])2$", r".attn.\1_lora.lora.2.weight"),
    (r"\.attn\.([wav])0$", r".attn.\1_lora.lora.2.bias"),
)


def normed(source: str, target: str, n: int) -> Iterator[Row]:
    """Weight and bias of a norm."""
    yield row(source + ".weight", target + ".weight", n)
    yield row(source + ".bias", target + ".bias", n)


def channels(source: str, target: str, n: int) -> Row:
    """A value per channel, often stored as [1, 1, n]."""
    return row(source, target, n, source_shape=(1, 1, n))


def turned_row(source: str, target: str, rows: int, columns: int) -> Row:
    """A matrix of `rows` rows that the checkpoint has transposed."""
    transform = transposed(columns, rows, unit=columns)
    return row(source, target, rows, columns, source_shape=(columns, rows), transform=transform)


def read_head_eps(config: Config) -> float:
    """The epsilon: 1e-5 times the square of a divisor, which is 8 in every published model."""
    return 1e-5 * config.number("head_size_divisor", default=8.0) ** 2


# words of Family.order: ranks of RWKV-7's low-rank functions
RANKS = "n_decay=ranks/0 n_rate=ranks/1 n_first=ranks/2 n_gate=ranks/3"


def head_values(eps: float) -> dict[str, Any]:
    """The epsilon of the heads' norm, if it differs from the readers' default, and zero heads of attention, which
    llama.cpp needs."""
    return {"head_eps": None if math.isclose(eps, HEAD_NORM_EPS) else eps, "attention.head_count": 0}


def head_norm_notes(eps: float) -> Iterator[str]:
    """Notes on llama.cpp's use of it."""
    if not math.isclose(eps, HEAD_NORM_EPS):
        yield f"llama.cpp has no key for the epsilon {eps:g} of the heads' norm and takes {HEAD_NORM_EPS:g}"


@dataclass(frozen=True)
class Shifted(Family):
    """Models with the tensors' names of transformers' RwkvForCausalLM; rescale: the stream is halved after every
    `rescale` layers."""

    without_effect: ClassVar[Mapping[str, str]] = {
        **NO_POSITIONS,
        "num_attention_heads": "the size of a head says their number",
        "model_version": "only a name",
        "context_length": NO_POSITIONS["rope_theta"],
    }

    n_vocab: int
    tied: bool
    n_layer: int
    n_embd: int
    n_ff: int
    rescale: int
    eps: float

    @staticmethod
    def sizes(config: Config, shapes: Shapes, ratio: float) -> dict[str, Any]:
        """The fields above; ratio: of the width of the channel mix, if the config does not state it."""
        n = config.integer("hidden_size")
        config.expects("attention_hidden_size", n)
        return {
            "n_vocab": vocabulary_rows(config, shapes, "rwkv.embeddings.weight"),
            "tied": config.boolean("tie_word_embeddings", default=False),
            "n_layer": read_layers(config),
            "n_embd": n,
            "n_ff": config.integer("intermediate_size", default=int(n * ratio) // 32 * 32),
            "rescale": max(0, config.integer("rescale_every", default=6, minimum=-MAX_LAYERS, maximum=MAX_LAYERS)),
            "eps": config.number("layer_norm_epsilon", default=1e-5),
        }

    def rows(self) -> Iterator[Row]:
        n, embedding = self.n_embd, "rwkv.embeddings.weight"
        yield row(embedding, "token_embd.weight", self.n_vocab, n)
        yield from normed("rwkv.blocks.0.pre_ln", "token_embd_norm", n)
        yield from normed("rwkv.ln_out", "output_norm", n)
        yield row("head.weight", "output.weight", self.n_vocab, n, otherwise=embedding)
        for i in range(self.n_layer):
            hf, blk = f"rwkv.blocks.{i}.", f"blk.{i}."
            yield from normed(hf + "ln1", blk + "attn_norm", n)
            yield from normed(hf + "ln2", blk + "attn_norm_2", n)
            yield from self.time_mix(hf + "attention.", blk + "time_mix_", self._halved(i))
            yield from self.channel_mix(hf + "feed_forward.", blk + "channel_mix_", self._halved(i))

    def _halved(self, i: int) -> Transform | None:
        """The transform of what layer i adds to the residual stream, which is halved after every `rescale` layers."""
        times = i // self.rescale if self.rescale else 0
        return scaled(0.5**times) if times else None

    @abstractmethod
    def time_mix(self, hf: str, blk: str, halved: Transform | None) -> Iterator[Row]:
        """The tensors that replace attention; `halved`: of the output matrix."""

    def channel_mix(self, hf: str, blk: str, halved: Transform | None) -> Iterator[Row]:
        """The matrices of the channel mix."""
        n, n_ff = self.n_embd, self.n_ff
        yield row(hf + "key.weight", blk + "key.weight", n_ff, n)
        yield row(hf + "value.weight", blk + "value.weight", n, n_ff, transform=halved)
        yield row(hf + "receptance.weight", blk + "receptance.weight", n, n)


def read_head_size(config: Config, n_embd: int) -> int:
    """The size of a head, which divides the width."""
    d_head = config.integer("head_size", default=64)
    if n_embd % d_head:
        raise config.wrong("head_size", f"a divisor of the hidden size {n_embd}")
    return d_head


@dataclass(frozen=True)
class Rwkv6(Shifted):
    """One model of RWKV-6; n_mix, n_decay: ranks of the low-rank functions of token shift and decay."""

    arch = "rwkv6"
    architectures = ("Rwkv6ForCausalLM",)
    hparams = Rwkv6Hparams
    order = (
        "n_ctx_train n_embd n_layer eps halve_every=rescale d_head n_mix n_decay n_ff .general.file_type "
        ".attention.head_count head_eps"
    )

    d_head: int
    n_mix: int
    n_decay: int
    head_eps: float  # of the norm of the heads

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        sizes = cls.sizes(config, shapes, 3.5)
        n = sizes["n_embd"]
        # no config key says these; llama.cpp's converter takes the defaults
        first = "rwkv.blocks.0.attention."
        mix = shapes.get(first + "time_maa_w2", (5, 64 if n == 4096 else 32, n))
        decay = shapes.get(first + "time_decay_w2", (128 if n == 4096 else 64, n))
        return cls(
            **sizes,
            d_head=read_head_size(config, n),
            n_mix=mix[-2] if len(mix) > 1 else 1,
            n_decay=decay[0],
            head_eps=read_head_eps(config),
        )

    def values(self) -> dict[str, Any]:
        return head_values(self.head_eps)

    def notes(self) -> Iterator[str]:
        yield from head_norm_notes(self.head_eps)

    def time_mix(self, hf: str, blk: str, halved: Transform | None) -> Iterator[Row]:
        n, mix, decay = self.n_embd, self.n_mix, self.n_decay
        yield channels(hf + "time_maa_x", blk + "lerp_x.weight", n)
        sources = tuple(f"{hf}time_maa_{part}" for part in LERPS_6)
        yield Row(blk + "lerp_fused.weight", (5, 1, 1, n), sources, group=hf)
        for source, target, rows, columns in (
            ("time_maa_w1", "w1", 5 * mix, n),
            ("time_decay_w1", "decay_w1", decay, n),
            ("time_decay_w2", "decay_w2", n, decay),
        ):
            yield turned_row(hf + source, f"{blk}{target}.weight", rows, columns)
        yield row(
            hf + "time_maa_w2", blk + "w2.weight", 5, n, mix, transform=transposed(mix, n), source_shape=(5, mix, n)
        )
        yield channels(hf + "time_decay", blk + "decay.weight", n)
        yield row(hf + "time_faaaa", blk + "first.weight", n // self.d_head, self.d_head)
        for part in ("receptance", "key", "value", "gate"):
            yield row(f"{hf}{part}.weight", f"{blk}{part}.weight", n, n)
        yield row(hf + "output.weight", blk + "output.weight", n, n, transform=halved)
        yield from normed(hf + "ln_x", blk + "ln", n)

    def channel_mix(self, hf: str, blk: str, halved: Transform | None) -> Iterator[Row]:
        for part in "kr":
            yield channels(f"{hf}time_maa_{part}", f"{blk}lerp_{part}.weight", self.n_embd)
        yield from super().channel_mix(hf, blk, halved)


def _rank(config: Config, n_embd: int, exponent: float, factor: float, *keys: str) -> int:
    usual = max(1, round(n_embd**exponent * factor / 32)) * 32
    return config.integer(*keys, default=usual, maximum=1 << 16)


@dataclass(frozen=True)
class Rwkv7(Family):
    """RWKV-7. arXiv:2503.14456"""

    arch = "rwkv7"
    architectures: ClassVar[tuple[str, ...]] = ("RWKV7ForCausalLM", "Rwkv7ForCausalLM")
    hparams: ClassVar[type[Any]] = Rwkv7Hparams
    order = f"n_ctx_train n_embd n_layer eps d_head {RANKS} n_ff .general.file_type .attention.head_count head_eps"
    dropped: ClassVar[tuple[str, ...]] = (
        "model.layers.0.attn.v_lora.",
        *(f"model.layers.0.attention.v{j}" for j in range(3)),
    )
    conditional: ClassVar[Mapping[str, str]] = {"hidden_ratio": "where intermediate_size is absent"}
    without_effect: ClassVar[Mapping[str, str]] = {
        **NO_POSITIONS,
        **dict.fromkeys(
            ("attn_mode", "fuse_norm", "fuse_cross_entropy", "fuse_linear_cross_entropy", "use_l2warp"),
            "only how it is computed, or training",
        ),
        **dict.fromkeys(("num_heads", "value_dim"), "other sizes are refused with the tensors' shapes"),
    }

    n_vocab: int
    tied: bool
    n_layer: int
    n_embd: int
    n_ff: int
    d_head: int
    ranks: tuple[int, int, int, int]  # of decay (w), learning rate (a), value residual (v), gate (g; 0: no gate)
    eps: float
    turned: bool  # the low-rank matrices are [in, out]
    fused: bool  # the weights of the token shift are one tensor, x_x
    normed: bool  # whether heads have a norm
    head_eps: float  # of the heads' norm

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("hidden_act", "sqrelu")
        config.expects("norm_bias", True)
        config.expects("norm_first", True)
        config.expects("attn")
        n = config.integer("hidden_size")
        config.expects("attention_hidden_size", n)
        d_head = config.integer("head_size", "head_dim", default=64)
        if n % d_head:
            raise config.wrong(config.named("head_size", "head_dim"), f"a divisor of {n}")
        ratio = config.number("hidden_ratio", default=4.0)
        decay = _rank(config, n, 0.5, 1.8, "lora_rank_decay", "decay_low_rank_dim")
        first = "model.layers.0.attn."
        eps = config.number("layer_norm_epsilon", "norm_eps", default=1e-5)
        # in the dialect with head_dim, the epsilon of the heads' norm follows from it
        head_eps = read_head_eps(config) if "head_size" in config else d_head * eps
        return cls(
            n_vocab=vocabulary_rows(config, shapes, "model.embeddings.weight"),
            tied=config.boolean("tie_word_embeddings", default=False),
            n_layer=read_layers(config),
            n_embd=n,
            n_ff=config.integer("intermediate_size", default=int(n * ratio)),
            d_head=d_head,
            ranks=(
                decay,
                _rank(config, n, 0.5, 1.8, "lora_rank_iclr", "a_low_rank_dim"),
                _rank(config, n, 0.5, 1.3, "lora_rank_value_residual_mix", "v_low_rank_dim"),
                _rank(config, n, 0.8, 0.6, "lora_rank_gate", "gate_low_rank_dim"),
            ),
            eps=eps,
            turned=shapes.get(first + "w_lora.lora.0.weight") == (n, decay),
            fused=first + "x_x" in shapes,
            normed=True,
            head_eps=head_eps,
        )

    def values(self) -> dict[str, Any]:
        return head_values(self.head_eps)

    def notes(self) -> Iterator[str]:
        if self.normed:
            yield from head_norm_notes(self.head_eps)

    def canonical(self, name: str) -> str:
        for pattern, replacement in _RENAMED:
            name = re.sub(pattern, replacement, name)
        return name

    def rows(self) -> Iterator[Row]:
        n, n_ff, embedding = self.n_embd, self.n_ff, "model.embeddings.weight"
        yield row(embedding, "token_embd.weight", self.n_vocab, n)
        yield from normed("model.layers.0.pre_norm", "token_embd_norm", n)
        yield from normed("model.norm", "output_norm", n)
        yield row("lm_head.weight", "output.weight", self.n_vocab, n, otherwise=embedding)
        for i in range(self.n_layer):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            yield from normed(hf + "attn_norm", blk + "attn_norm", n)
            yield from normed(hf + "ffn_norm", blk + "attn_norm_2", n)
            yield from self.time_mix(i, hf + "attn.", blk + "time_mix_")
            yield channels(hf + "ffn.x_k", blk + "channel_mix_lerp_k.weight", n)
            yield row(hf + "ffn.key.weight", blk + "channel_mix_key.weight", n_ff, n)
            yield row(hf + "ffn.value.weight", blk + "channel_mix_value.weight", n, n_ff)

    def time_mix(self, i: int, hf: str, blk: str) -> Iterator[Row]:
        """The tensors of layer i that replace attention."""
        n, lerps = self.n_embd, _LERPS_7 if self.ranks[3] else _LERPS_7.removesuffix("g")
        shape = (len(lerps), 1, 1, n)
        if self.fused:
            yield row(hf + "x_x", blk + "lerp_fused.weight", *shape, source_shape=(len(lerps), n))
        else:
            yield Row(blk + "lerp_fused.weight", shape, tuple(f"{hf}x_{part}" for part in lerps), group=hf)
        for part, rank in zip("wavg", self.ranks, strict=True):
            if not rank or (part == "v" and i == 0):
                continue
            # the first layer has no such tensors, but llama.cpp wants some, of the shapes of the learning rate's
            names = "va" if part == "a" and i == 0 else part
            for name in names:
                yield from self._low_rank(f"{hf}{part}_lora.lora.", blk + name, rank, biased=part != "g")
        for source, target in (("r", "receptance"), ("k", "key"), ("v", "value"), ("o", "output")):
            yield row(f"{hf}{source}_proj.weight", f"{blk}{target}.weight", n, n)
        for part in ("k_k", "k_a"):
            yield channels(hf + part, f"{blk}{part}.weight", n)
        yield row(hf + "r_k", blk + "r_k.weight", n, source_shape=(n // self.d_head, self.d_head))
        if self.normed:
            yield from normed(hf + "g_norm", blk + "ln", n)

    def _low_rank(self, hf: str, blk: str, rank: int, *, biased: bool) -> Iterator[Row]:
        n = self.n_embd
        if biased:
            yield channels(hf + "2.bias", blk + "0.weight", n)
        for source, target, rows, columns in (("0.weight", "1", rank, n), ("2.weight", "2", n, rank)):
            if self.turned:
                yield turned_row(hf + source, f"{blk}{target}.weight", rows, columns)
            else:
                yield row(hf + source, f"{blk}{target}.weight", rows, columns)
