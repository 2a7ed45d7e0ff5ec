"""Keys of Mamba-1, also of models that have it on some layers."""

from .hparams import Hparams, key


class Mamba1Hparams(Hparams):
    """Keys of a model with Mamba-1 on some or all layers."""

    d_conv: int = key("ssm.conv_kernel", minimum=2)
    d_inner: int = key("ssm.inner_size", minimum=1)
    d_state: int = key("ssm.state_size", minimum=1)
    dt_rank: int = key("ssm.time_step_rank", minimum=1)


class MambaHparams(Mamba1Hparams):
    """dt_b_c_rms: norms on dt, B and C, as Falcon-Mamba has them."""

    dt_b_c_rms: bool = key("ssm.dt_b_c_rms", False)
    dt_b_c_eps: float = key("ssm.dt_b_c_rms_epsilon", 0.0)  # 0: eps; a key that only our converter writes
