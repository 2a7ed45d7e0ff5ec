"""Keys of OLMo Hybrid. A layer without heads of keys has the delta rule: n_ssm_head heads of d_inner / n_ssm_head
values, which share n_group heads of keys. beta_scale: 2 where its transitions may have negative eigenvalues."""

from .hparams import TransformerHparams, key
from .mamba2 import SsmHparams


class OlmoHybridHparams(TransformerHparams, SsmHparams):
    n_rot: int = key("rope.dimension_count", 0)  # 0: no positions
    freq_base: float = key("rope.freq_base", 10000.0, minimum=1)
    beta_scale: float = key("ssm.beta_scale", 1.0)
    gated_eps: float = key("ssm.norm_rms_epsilon", 0.0)  # 0: eps
