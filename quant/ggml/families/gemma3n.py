"""Keys of Gemma 3n. `local` layers have a window and a base of RoPE of their own. The last n_shared layers have no keys
and values. n_per_layer: values of a token's embedding for each layer."""

from collections.abc import Mapping
from typing import ClassVar

from .gemma import RootScaledHparams
from .hparams import AttentionHparams, key
from .rope import RopeHparams


class SharedKeysHparams(RootScaledHparams, RopeHparams, AttentionHparams):
    """The keys that Gemma 3n and Gemma 4 have in common."""

    in_parts: ClassVar[Mapping[str, int]] = {"per_layer_token_embd.weight": -1, "per_layer_model_proj.weight": 0}
    n_ff: tuple[int, ...] = key("feed_forward_length", per_layer=True, minimum=1)
    d_head: int = key("attention.key_length", minimum=1)
    freq_base_local: float = key("rope.freq_base_swa", 10000.0, minimum=1)
    logit_cap: float = key("final_logit_softcapping", 0.0)


class Gemma3nHparams(SharedKeysHparams):
    window: int = key("attention.sliding_window", minimum=1)
    local: tuple[bool, ...] = key("attention.sliding_window_pattern", 5, pattern=True)
    n_shared: int = key("attention.shared_kv_layers", counts="last")
    n_per_layer: int = key("embedding_length_per_layer_input", minimum=1)
    n_stream: int = key("altup.num_inputs", 4)
    active: int = key("altup.active_idx", 0)

    together = False  # as in Gemma 4
