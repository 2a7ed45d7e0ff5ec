"""Keys of DeepSeek-V2 and V3. group_best: a group of experts is scored by the sum of its `group_best` best scores."""

from .hparams import key
from .latent import LatentHparams
from .rope import RopeHparams


class DeepSeek2Hparams(RopeHparams, LatentHparams):
    weights_norm: bool = key("expert_weights_norm", False)
    group_best: int = key("hybrid.expert_group_best_count", 2, minimum=1)
