"""Keys of Kimi Linear. A layer without heads of keys has the delta rule."""

from .experts import SIGMOID
from .hparams import key
from .latent import LatentHparams

LOWEST = 80  # a decay of exp(-80) leaves nothing of a state


class KimiLinearHparams(LatentHparams):
    d_conv: int = key("ssm.conv_kernel", minimum=2)
    d_kda: int = key("kda.head_dim", minimum=1)
    n_kda: int = key("hybrid.kda.head_count", 0)  # 0: as many as of attention
    gating: int = key("expert_gating_func", SIGMOID)
