"""Keys of LongCat-Flash. n_idle: number of experts that return their input; they come last."""

from .hparams import key
from .latent import LatentHparams
from .rope import RopeHparams


class LongcatFlashHparams(RopeHparams, LatentHparams):
    n_idle: int = key("expert_zero_count", 0)
    weights_norm: bool = key("expert_weights_norm", False)
