"""Keys of GigaChat 3.5. recurrent: per layer, whether it has the delta rule; gated_eps: of the norm before its gate."""

from .deepseek2 import DeepSeek2Hparams
from .hparams import key
from .mamba2 import SsmHparams


class GigaChat35Hparams(DeepSeek2Hparams, SsmHparams):
    recurrent: tuple[bool, ...] = key("attention.recurrent_layers", pattern=True)
    limit: tuple[float, ...] = key("swiglu_clamp_exp", 0.0, per_layer=True)  # 0: none
    limit_shared: tuple[float, ...] = key("swiglu_clamp_shexp", 0.0, per_layer=True)  # and of dense layers
    gated_eps: float = key("ssm.norm_rms_epsilon", 0.0)  # 0: eps
