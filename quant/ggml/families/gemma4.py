"""Keys of Gemma 4. `local` layers have a window, heads of d_head_local values and a base of RoPE of their own. The last
n_shared layers have no keys and values. n_per_layer: values of a token's embedding for each layer, 0: it has none.
together: on `local` layers the tokens of a picture see each other."""

from .experts import OptionalExpertsHparams
from .gemma3n import SharedKeysHparams
from .hparams import key


class Gemma4Hparams(SharedKeysHparams, OptionalExpertsHparams):
    d_head_local: int = key("attention.key_length_swa", minimum=1)
    window: int = key("attention.sliding_window")
    local: tuple[bool, ...] = key("attention.sliding_window_pattern", pattern=True)
    n_rot: int = key("rope.dimension_count", 0)
    n_rot_local: int = key("rope.dimension_count_swa", 0)
    n_shared: int = key("attention.shared_kv_layers", 0, counts="last")
    n_per_layer: int = key("embedding_length_per_layer_input", 0)
    together: bool = key("hybrid.attention.pictures_together", False)
    n_ff_expert: int = key("expert_feed_forward_length", 0)
