"""Keys of Falcon-H1. Every layer has attention and Mamba-2."""

from .hparams import TransformerHparams, key
from .mamba2 import Mamba2Hparams
from .rope import RopeHparams


class FalconH1Hparams(RopeHparams, TransformerHparams, Mamba2Hparams):
    d_head: int = key("attention.key_length", 0)
    norm_first: bool = key("ssm.norm_before_gate", False)  # a key that only our converter writes
