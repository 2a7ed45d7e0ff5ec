"""Keys of OLMoE and OLMo 2."""

from .experts import ExpertsHparams
from .hparams import key
from .llama import LlamaHparams


class Olmo2Hparams(LlamaHparams):
    """OLMo 3 in llama.cpp's files: `local` layers have a window and unscaled RoPE with another base (0: the same)."""

    window: int = key("attention.sliding_window", 0)
    local: tuple[bool, ...] = key("attention.sliding_window_pattern", 4, pattern=True)
    freq_base_local: float = key("rope.freq_base_swa", 0.0)


class OlmoeHparams(ExpertsHparams, LlamaHparams):
    """n_ff: width of an expert; weights_norm: the used experts' weights are made to add up to 1; clip: limit of
    queries, keys and values, 0: none."""

    weights_norm: bool = key("expert_weights_norm", False)
    clip: float = key("attention.clamp_kqv", 0.0)
