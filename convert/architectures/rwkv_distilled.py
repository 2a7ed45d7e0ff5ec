"""QRWKV6 and ARWKV: Qwen2 distilled into RWKV-6 and RWKV-7. arXiv:2501.15570

Time mixing of RWKV-6, as gated linear attention, or of RWKV-7, before Qwen2's feed-forward parts. Tensor names are
from recursal/QRWKV6-* and RWKV-Red-Team/ARWKV-*.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from hybrid.quant.ggml.families.rwkv import Ranks7
from hybrid.quant.ggml.families.rwkv_distilled import Rwkv6Qwen2Hparams

from ..checkpoint import Config
from ..transforms import Transform, transposed
from .blocks import read_layers, swiglu
from .family import Family, Row, Shapes, row, vocabulary_rows
from .rwkv import LERPS_6, RANKS, Rwkv7, channels, read_head_eps
from .unused_fields import NO_POSITIONS

_EMBEDDING = "model.embed_tokens.weight"
_ORDER = [3, 1, 2, 0, 4]  # checkpoints have the parts as rkvwg, GGUF as wkvrg


def _parts_in_order(parts: int, then: Transform) -> Transform:
    """`then` on the whole tensor, whose five parts of `parts` values are put into GGUF's order."""
    return Transform(
        "reorder",
        lambda x, _: np.ascontiguousarray(then.apply(x, 0).reshape(5, parts)[_ORDER]).reshape(x.shape),
        arithmetic=False,
        unit=1 << 30,
    )


def _around(model: "Rwkv6Qwen2 | Arwkv7", time_mix: Callable[[int, str, str], Iterator[Row]]) -> Iterator[Row]:
    """Qwen2's tensors, with time_mix(layer, Hugging Face prefix, GGUF prefix) instead of attention."""
    n = model.n_embd
    yield row(_EMBEDDING, "token_embd.weight", model.n_vocab, n)
    yield row("model.norm.weight", "output_norm.weight", n)
    yield row("lm_head.weight", "output.weight", model.n_vocab, n, otherwise=_EMBEDDING)
    for i in range(model.n_layer):
        hf, blk = f"model.layers.{i}.", f"blk.{i}."
        yield row(hf + "input_layernorm.weight", blk + "attn_norm.weight", n)
        yield row(hf + "post_attention_layernorm.weight", blk + "ffn_norm.weight", n)
        yield from time_mix(i, hf, blk)
        yield from swiglu(hf + "mlp.", blk, n, model.n_ff)


@dataclass(frozen=True)
class Rwkv6Qwen2(Family):
    """QRWKV6: time mixing of RWKV-6 with the sizes of Qwen2's attention: n_kv heads of keys for n_head.
    arXiv:2505.03005"""

    arch = "rwkv6qwen2"
    architectures = ("RWKV6Qwen2ForCausalLM",)
    hparams = Rwkv6Qwen2Hparams
    order = (
        "n_ctx_train n_embd n_layer d_head n_mix n_decay n_ff .general.file_type eps n_shift n_kv .attention.head_count"
    )
    n_shift = 1
    conditional: ClassVar[Mapping[str, str]] = {"attention_bias": "where the tensors do not show it"}
    without_effect: ClassVar[Mapping[str, str]] = NO_POSITIONS
    pre = ("qwen2",)

    n_vocab: int
    tied: bool
    n_layer: int
    n_embd: int
    n_ff: int
    n_head: int
    n_kv: int
    n_mix: int
    n_decay: int
    eps: float
    biased: bool

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("hidden_act", "silu")
        config.expects("use_rope", False)
        config.expects("gate_rank_type", 1)
        config.expects("balance_state", True, 1)
        for key in ("groupnorm_att", "attention_output_bias"):
            config.expects(key, False, 0)
        n, n_head = config.integer("hidden_size"), config.integer("num_attention_heads")
        n_kv = config.integer("num_key_value_heads", default=n_head)
        if n % n_head:
            raise config.wrong("num_attention_heads", f"a divisor of the hidden size {n}")
        if n_head % n_kv:
            raise config.wrong("num_key_value_heads", f"a divisor of the {n_head} attention heads")
        bias = "model.layers.0.self_attn.q_proj.bias"
        biased = config.boolean("attention_bias", default=True)
        return cls(
            n_vocab=vocabulary_rows(config, shapes, _EMBEDDING),
            tied=config.boolean("tie_word_embeddings", default=False),
            n_layer=read_layers(config),
            n_embd=n,
            n_ff=config.integer("intermediate_size"),
            n_head=n_head,
            n_kv=n_kv,
            n_mix=config.integer("lora_rank_tokenshift", default=64 if n >= 4096 else 32),
            n_decay=config.integer("lora_rank_decay", default=128 if n >= 4096 else 64),
            eps=config.number("rms_norm_eps", default=1e-6),
            biased=bias in shapes if shapes else biased,
        )

    def values(self) -> dict[str, Any]:
        return {"d_head": self.n_embd // self.n_head, "attention.head_count": 0}  # llama.cpp needs the latter

    def rows(self) -> Iterator[Row]:
        return _around(self, lambda _, hf, blk: self._time_mix(hf + "self_attn.", blk + "time_mix_"))

    def _time_mix(self, hf: str, blk: str) -> Iterator[Row]:
        n, mix, decay, n_value = self.n_embd, self.n_mix, self.n_decay, self.n_embd // self.n_head * self.n_kv
        yield channels(hf + "time_maa_x", blk + "lerp_x.weight", n)
        sources = tuple(f"{hf}time_maa_{part}" for part in LERPS_6)
        yield Row(blk + "lerp_fused.weight", (5, 1, 1, n), sources, group=hf)
        yield row(
            hf + "time_maa_w1",
            blk + "w1.weight",
            5 * mix,
            n,
            source_shape=(n, 5 * mix),
            transform=_parts_in_order(mix * n, transposed(n, 5 * mix)),
        )
        yield row(
            hf + "time_maa_w2",
            blk + "w2.weight",
            5,
            n,
            mix,
            source_shape=(5, mix, n),
            transform=_parts_in_order(mix * n, transposed(mix, n)),
        )
        yield channels(hf + "time_decay", blk + "decay.weight", n)
        for source, target, rows, columns in (("w1", "decay_w1", decay, n), ("w2", "decay_w2", n, decay)):
            yield row(
                f"{hf}time_decay_{source}",
                f"{blk}{target}.weight",
                rows,
                columns,
                source_shape=(columns, rows),
                transform=transposed(columns, rows, unit=columns),
            )
        for source, target, size in (("q", "receptance", n), ("k", "key", n_value), ("v", "value", n_value)):
            yield row(f"{hf}{source}_proj.weight", f"{blk}{target}.weight", size, n)
            if self.biased:
                yield row(f"{hf}{source}_proj.bias", f"{blk}{target}.bias", size)
        yield row(hf + "gate.weight", blk + "gate.weight", n, n)
        yield row(hf + "o_proj.weight", blk + "output.weight", n, n)


@dataclass(frozen=True)
class Arwkv7(Rwkv7):
    """ARWKV. arXiv:2501.15570"""

    arch = "arwkv7"
    architectures: ClassVar[tuple[str, ...]] = ("RwkvHybridForCausalLM",)
    hparams = Ranks7
    order = (
        f"n_ctx_train n_embd n_layer eps d_head {RANKS} n_ff .general.file_type n_shift .attention.head_count head_eps"
    )
    n_shift = 1
    pre = ("qwen2",)
    conditional: ClassVar[Mapping[str, str]] = {"wkv_has_group_norm": "where the tensors do not show it"}
    without_effect: ClassVar[Mapping[str, str]] = {
        **NO_POSITIONS,
        **dict.fromkeys(("num_attention_heads", "num_key_value_heads"), "of the model it was made from"),
    }
    dropped: ClassVar[tuple[str, ...]] = tuple(f"model.layers.0.self_attn.time_mixer.v{j}" for j in range(3))

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("hidden_act", "silu")
        config.expects("wkv_version", 7)
        config.expects("wkv_layers", "full", "all")
        n, d_head = config.integer("hidden_size"), config.integer("head_size", default=64)
        if n % d_head:
            raise config.wrong("head_size", f"a divisor of the hidden size {n}")
        first = "model.layers.0.attn."
        gate = config.boolean("wkv_has_gate", default=True)
        # no key says these in published configs
        usual = {"decay": 64, "iclr": 64, "value_residual_mix": 32, "gate": 128}
        ranks = {
            name: config.integer(f"lora_rank_{name}", default=rank, maximum=1 << 16) for name, rank in usual.items()
        }
        normed = first + "g_norm.weight"
        has_norm = config.boolean("wkv_has_group_norm", default=True)
        return cls(
            n_vocab=vocabulary_rows(config, shapes, _EMBEDDING),
            tied=config.boolean("tie_word_embeddings", default=False),
            n_layer=read_layers(config),
            n_embd=n,
            n_ff=config.integer("intermediate_size"),
            d_head=d_head,
            ranks=(ranks["decay"], ranks["iclr"], ranks["value_residual_mix"], ranks["gate"] if gate else 0),
            eps=config.number("rms_norm_eps", default=1e-6),
            turned=True,
            fused=first + "x_x" in shapes,
            normed=normed in shapes if shapes else has_norm,
            head_eps=read_head_eps(config),
        )

    def rows(self) -> Iterator[Row]:
        return _around(self, lambda i, hf, blk: self.time_mix(i, hf + "attn.", blk + "time_mix_"))
