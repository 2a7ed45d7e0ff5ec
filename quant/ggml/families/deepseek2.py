"""Keys of DeepSeek-V2 and V3. group_best: the score of a group of experts is the sum of so many of its best."""

from .hparams import key
from .latent import LatentHparams
from .rope import RopeHparams


class DeepSeek2Hparams(RopeHparams, LatentHparams):
    weights_norm: bool = key("expert_weights_norm", False)
    group_best: int = key("hybrid.expert_group_best_count", 2, minimum=1)
