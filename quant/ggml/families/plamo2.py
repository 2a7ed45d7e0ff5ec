"""Keys of PLaMo 2. A layer without heads of keys is a Mamba layer. windows: tokens that a token of a layer sees, 0:
all."""

from .hparams import key
from .rope import RopeHparams


class Plamo2Hparams(RopeHparams):
    n_ff: int = key("feed_forward_length", minimum=1)
    n_head: tuple[int, ...] = key("attention.head_count", per_layer=True)
    n_head_kv: tuple[int, ...] = key("attention.head_count_kv", per_layer=True)
    d_head: int = key("attention.key_length", minimum=1)
    n_rot: int = key("rope.dimension_count", 0)  # 0: d_head
    windows: tuple[int, ...] = key("hybrid.attention.sliding_window", 0, per_layer=True)
    head_eps: float = key("hybrid.attention.head_norm_rms_epsilon", 0.0)  # 0: eps
    d_conv: int = key("ssm.conv_kernel", minimum=2)
    d_inner: int = key("ssm.inner_size", minimum=1)
    d_state: int = key("ssm.state_size", minimum=1)
    n_ssm_head: int = key("ssm.time_step_rank", minimum=1)

    @property
    def dt_rank(self) -> int:
        """No key says it; llama.cpp takes the same for granted."""
        return max(64, self.n_embd // 16)
