"""RWKV-6 and RWKV-7: recurrent, without attention. arXiv:2404.05892, arXiv:2503.14456"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..layers.rwkv import ChannelMix
from ..layers.rwkv import Rwkv6 as TimeMix6
from ..layers.rwkv import Rwkv7 as TimeMix7
from ..loading.hparams import Hparams, key
from ..loading.weights import Weights
from .base import Family, Part


@dataclass(frozen=True)
class RwkvHparams(Hparams):
    """What all RWKV models have. n_shift: inputs that a layer keeps for the next token."""

    n_ff: int = key("feed_forward_length", minimum=1)
    d_head: int = key("wkv.head_size", minimum=1)
    n_shift: int = key("token_shift_count", 2)
    # of the norm of the heads: 1e-5 times the square of the divisor 8, in every published model
    head_eps: float = key("wkv.norm_epsilon", 64e-5)


@dataclass(frozen=True)
class Ranks6(RwkvHparams):
    """Ranks of the low-rank functions of RWKV-6's time mixing."""

    n_mix: int = key("time_mix_extra_dim", minimum=1)
    n_decay: int = key("time_decay_extra_dim", minimum=1)


@dataclass(frozen=True)
class Ranks7(RwkvHparams):
    """Ranks of the low-rank functions of RWKV-7's time mixing; n_gate 0: no gate."""

    n_decay: int = key("attention.decay_lora_rank", minimum=1)
    n_rate: int = key("attention.iclr_lora_rank", minimum=1)
    n_first: int = key("attention.value_residual_mix_lora_rank", minimum=1)
    n_gate: int = key("attention.gate_lora_rank", 0)

    @property
    def ranks(self) -> tuple[int, int, int, int]:
        """As the layer takes them."""
        return self.n_decay, self.n_rate, self.n_first, self.n_gate


@dataclass(frozen=True)
class Rwkv6Hparams(Ranks6):
    """rescale: the stream is halved every so many layers, 0: never."""

    eps: float = key("attention.layer_norm_epsilon")
    rescale: int = key("rescale_every_n_layers", 0)

    @property
    def halve_every(self) -> int:
        return self.rescale


@dataclass(frozen=True)
class Rwkv7Hparams(Ranks7):
    """Of a model with a gate on every layer."""

    eps: float = key("attention.layer_norm_epsilon")
    n_gate: int = key("attention.gate_lora_rank", minimum=1)


class _Rwkv(Family):
    layer_norms = True
    embedding_norm = "token_embd_norm.weight"

    def parts(self, h: RwkvHparams, i: int, w: Weights, mixer: TimeMix6 | TimeMix7) -> Iterator[Part]:
        if h.n_shift != 2:
            raise w.wrong("token_shift_count", h.n_shift, "2")
        yield "attn_norm.weight", mixer
        yield "attn_norm_2.weight", ChannelMix(i, h.n_embd, h.n_ff, gated=isinstance(mixer, TimeMix6))


class Rwkv6(_Rwkv):
    """RWKV-6, Finch."""

    name = "rwkv6"
    hparams = Rwkv6Hparams

    def block(self, h: Rwkv6Hparams, i: int, w: Weights) -> Iterator[Part]:
        yield from self.parts(h, i, w, TimeMix6(i, h.n_embd, h.d_head, 2, h.head_eps, h.n_mix, h.n_decay))


class Rwkv7(_Rwkv):
    """RWKV-7, Goose."""

    name = "rwkv7"
    hparams = Rwkv7Hparams

    def block(self, h: Rwkv7Hparams, i: int, w: Weights) -> Iterator[Part]:
        yield from self.parts(h, i, w, TimeMix7(i, h.n_embd, h.d_head, 2, h.head_eps, *h.ranks))
