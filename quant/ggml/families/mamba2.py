"""Keys of Mamba-2, also of models that have it on some layers."""

from .hparams import Hparams, key


class SsmHparams(Hparams):
    """n_ssm_head heads of d_inner / n_ssm_head values on n_group groups of B and C, or heads of keys, of d_state."""

    d_conv: int = key("ssm.conv_kernel", minimum=2)
    d_inner: int = key("ssm.inner_size", minimum=1)
    d_state: int = key("ssm.state_size", minimum=1)
    n_ssm_head: int = key("ssm.time_step_rank", minimum=1)
    n_group: int = key("ssm.group_count", minimum=1)


class Mamba2Hparams(SsmHparams):
    # keys that only our converter writes: limits of the step size, and the norm's epsilon where it differs
    dt_min: float = key("ssm.time_step_min", 0.0)
    dt_max: float = key("ssm.time_step_max", 0.0)  # 0: none
    gated_eps: float = key("ssm.norm_rms_epsilon", 0.0)  # 0: eps
