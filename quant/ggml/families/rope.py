"""The keys of rotary positions, and of the ways to stretch them to longer contexts. llama.cpp's keys and formulas;
docs/gguf-extensions.md has the one key that is ours."""

from collections.abc import Container

from .hparams import Hparams, key

FREQS, LONG, SHORT = "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"


class RopeHparams(Hparams):
    """Keys of a model that rotates queries and keys.

    factor      divides positions (linear), or the positions of slow pairs (YaRN); 0, as in llama.cpp: no scaling
    original    the context before scaling; 0: n_ctx_train
    attn_factor multiplies cos and sin
    magnitude   YaRN's own factor of cos and sin; 0: computed from `factor` and `log_share`
    fast, slow  YaRN: pairs that turn more often than `fast` times in the original context stay, pairs that turn less
                often than `slow` times are stretched
    truncate    YaRN: rounds these bounds outwards to whole pairs
    """

    freq_base: float = key("rope.freq_base", 10000.0, minimum=1)
    rope_type: str = key("rope.scaling.type", "linear")
    factor: float = key("rope.scaling.factor", 1.0)
    original: int = key("rope.scaling.original_context_length", 0)
    attn_factor: float = key("rope.scaling.attn_factor", 1.0)
    magnitude: float = key("rope.scaling.yarn_attn_factor", 0.0)
    log_share: float = key("rope.scaling.yarn_log_multiplier", 0.0)
    fast: float = key("rope.scaling.yarn_beta_fast", 32.0)
    slow: float = key("rope.scaling.yarn_beta_slow", 1.0)
    truncate: bool = key("hybrid.rope.scaling.truncate", True)

    @property
    def original_ctx(self) -> int:
        """The context before scaling."""
        return self.original or self.n_ctx_train

    def variant(self, tensors: Container[str], n_ctx: int) -> str:
        """`long RoPE` if the loaded model's context selects the second set of frequencies. The length of a text never
        does, because cached keys stay rotated."""
        return "long RoPE" if LONG in tensors and n_ctx > self.original_ctx else ""

    def usual_context(self, tensors: Container[str]) -> int:
        """With two sets of frequencies, the context of the first: the second also changes the results of short texts,
        so users must ask for it."""
        return min(self.n_ctx_train, self.original_ctx) if LONG in tensors else self.n_ctx_train
