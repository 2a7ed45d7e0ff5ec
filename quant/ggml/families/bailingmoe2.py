"""Keys of the linear models of Ling 2.0, and of Ling 2.5. A layer without heads of keys has lightning attention, whose
decays the file has. n_norm_group: groups of values that the norm after it takes apart. d_lightning: values of its
heads."""

from .deepseek2 import DeepSeek2Hparams
from .glm4_moe import Glm4MoeHparams
from .hparams import key


class BailingLinearHparams(Glm4MoeHparams):
    n_norm_group: int = key("hybrid.lightning.group_count", minimum=1)


class BailingMoe25Hparams(DeepSeek2Hparams):
    n_norm_group: int = key("hybrid.lightning.group_count", minimum=1)
    d_lightning: int = key("hybrid.lightning.key_length", minimum=1)
