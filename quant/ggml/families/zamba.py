"""Keys of Zamba and Zamba2."""

from .hparams import TransformerHparams, key
from .mamba import Mamba1Hparams
from .mamba2 import Mamba2Hparams


class SharedHparams(TransformerHparams):
    """A layer with heads of keys has a transformer block in front of its Mamba; these layers use n_shared blocks in
    turn."""

    d_head: int = key("attention.key_length", minimum=1)
    n_rot: int = key("rope.dimension_count", 0)
    freq_base: float = key("rope.freq_base", 10000.0, minimum=1)
    attention_scale: float = key("attention.scale", 0.0)
    n_shared: int = key("shared_block_count", 1, minimum=1)
    attention_rank: int = key("attention.lora_rank", 0)
    ff_rank: int = key("feed_forward_lora_rank", 0)


class ZambaHparams(SharedHparams, Mamba1Hparams):
    """n_ssm_head: heads of Mamba-1, each with its own projection to dt, B and C."""

    n_ssm_head: int = key("ssm.head_count", minimum=1)


class Zamba2Hparams(SharedHparams, Mamba2Hparams):
    """The keys of shared blocks and of Mamba-2."""
