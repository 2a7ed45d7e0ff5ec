"""Keys of Inkling; Inkling 2 shares most. `local` layers see `window` tokens and have heads of d_head_local
values. On the others queries at p are times 1 + temperature * log(max(1, (p + 1) / period)); period 0: they are not.
The last n_shared of n_expert experts are of every token, and n_expert_used counts them."""

from .experts import ExpertsHparams
from .hparams import Scales, key


class LeaningHparams(ExpertsHparams):
    n_head: tuple[int, ...] = key("attention.head_count", per_layer=True, minimum=1)
    n_head_kv: tuple[int, ...] = key("attention.head_count_kv", per_layer=True, minimum=1)
    d_head: int = key("attention.key_length", minimum=1)
    d_head_local: int = key("attention.key_length_swa", minimum=1)
    window: int = key("attention.sliding_window", minimum=1)
    local: tuple[bool, ...] = key("attention.sliding_window_pattern", pattern=True)
    temperature: float = key("attention.temperature_scale", 0.1)
    period: int = key("attention.temperature_length", 0)
    d_conv: int = key("ssm.conv_kernel", minimum=2)
    n_ff_expert: int = key("expert_feed_forward_length", minimum=1)
    weights_scale: float = key("expert_weights_scale", 1.0)


class InklingHparams(LeaningHparams):
    n_ff: int = key("feed_forward_length", minimum=1)
    n_shared: int = key("expert_shared_count", 0)
    logit_scale: float = key("logit_scale", 1.0)

    @property
    def scales(self) -> Scales:
        return Scales(logits=self.logit_scale)
