"""Keys of RWKV-4 to RWKV-7."""

from .hparams import Hparams, key


class ShiftHparams(Hparams):
    """Keys of all RWKV models. n_shift: inputs that a layer keeps for the next token."""

    n_ff: int = key("feed_forward_length", minimum=1)
    n_shift: int = key("token_shift_count", 2)


class RwkvHparams(ShiftHparams):
    """Keys of models whose states are matrices."""

    d_head: int = key("wkv.head_size", minimum=1)
    # of the norm of the heads: 1e-5 times the square of the divisor 8, in every published model
    head_eps: float = key("wkv.norm_epsilon", 64e-5)


class Ranks6(RwkvHparams):
    """Ranks of the low-rank functions of RWKV-6's time mixing."""

    n_mix: int = key("time_mix_extra_dim", minimum=1)
    n_decay: int = key("time_decay_extra_dim", minimum=1)


class Ranks7(RwkvHparams):
    """Ranks of the low-rank functions of RWKV-7's time mixing; n_gate 0: no gate."""

    n_decay: int = key("attention.decay_lora_rank", minimum=1)
    n_rate: int = key("attention.iclr_lora_rank", minimum=1)
    n_first: int = key("attention.value_residual_mix_lora_rank", minimum=1)
    n_gate: int = key("attention.gate_lora_rank", 0)

    @property
    def ranks(self) -> tuple[int, int, int, int]:
        """The ranks in the order of the layer's argument."""
        return self.n_decay, self.n_rate, self.n_first, self.n_gate


class Rwkv4Hparams(ShiftHparams):
    """halve_every: the residual stream is halved after every `halve_every` layers; 0: never."""

    eps: float = key("attention.layer_norm_epsilon")
    halve_every: int = key("rescale_every_n_layers", 0)


class Rwkv5Hparams(RwkvHparams):
    """halve_every: as in RWKV-4."""

    eps: float = key("attention.layer_norm_epsilon")
    halve_every: int = key("rescale_every_n_layers", 0)


class Rwkv6Hparams(Ranks6):
    """halve_every: as in RWKV-4."""

    eps: float = key("attention.layer_norm_epsilon")
    halve_every: int = key("rescale_every_n_layers", 0)


class Rwkv7Hparams(Ranks7):
    """Keys of a model with a gate on every layer."""

    eps: float = key("attention.layer_norm_epsilon")
    n_gate: int = key("attention.gate_lora_rank", minimum=1)


class Rwkv7aHparams(Rwkv7Hparams):
    """n_deep: a token's table of a layer is a matrix of n_deep x n_deep; d_key: of the attention beside time mixing, 0:
    none; map_rank: of its maps to keys and values."""

    n_deep: int = key("deep_embed.length", minimum=1)
    d_key: int = key("deep_embed.attention.key_length", 0)
    map_rank: int = key("deep_embed.attention.rank", 0)
