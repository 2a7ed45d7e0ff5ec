"""Keys of Laguna. n_rot_local: values of a head that RoPE rotates on `local` layers; 0: as on the others. n_ff_shared:
width of the shared expert; 0: as n_shared experts together."""

from .experts import SIGMOID, RoutedHparams
from .hparams import key
from .mellum import MellumHparams


class LagunaHparams(MellumHparams, RoutedHparams):
    n_head: tuple[int, ...] = key("attention.head_count", per_layer=True, minimum=1)  # type: ignore[assignment]
    d_head: int = key("attention.key_length", minimum=1)
    local: tuple[bool, ...] = key("attention.sliding_window_pattern", 4, pattern=True, first=True)
    n_rot_local: int = key("rope.dimension_count_swa", 0)
    n_shared: int = key("expert_shared_count", 1)
    n_ff_shared: int = key("expert_shared_feed_forward_length", 0)
    weights_norm: bool = key("expert_weights_norm", False)
    gating: int = key("expert_gating_func", SIGMOID)
