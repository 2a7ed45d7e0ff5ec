"""Keys of Ling 2.0's linear models. A layer without heads of keys has lightning attention, whose decays the file has.
n_norm_group: groups of values that the norm after it takes apart."""

from .glm4_moe import Glm4MoeHparams
from .hparams import key


class BailingLinearHparams(Glm4MoeHparams):
    n_norm_group: int = key("hybrid.lightning.group_count", minimum=1)
