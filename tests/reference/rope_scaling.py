"""RoPE scaled to longer contexts, by the papers' formulas: slow and obvious."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def scaling(config: dict[str, Any], n_rot: int, theta: float, n_tok: int) -> tuple[NDArray[np.float64], float]:
    """Divisors of the frequencies of pairs, [n_rot / 2], and the factor of cos and sin, for a text of n_tok."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope = rope.get("full_attention", rope)
    kind = rope.get("rope_type") or rope.get("type") or "default"
    n_pairs = n_rot // 2
    original = config.get("original_max_position_embeddings") or rope.get("original_max_position_embeddings")
    if kind == "llama3":
        return _llama3(rope, n_pairs, theta, original), 1.0
    if kind == "linear":
        return np.full(n_pairs, float(rope["factor"])), 1.0
    if kind == "longrope":
        ratio = config["max_position_embeddings"] / original
        usual = math.sqrt(1 + math.log(ratio) / math.log(original)) if ratio > 1 else 1.0
        chosen = rope["long_factor"] if n_tok > original else rope["short_factor"]
        return np.asarray(np.float32(chosen), np.float64), rope.get("short_mscale") or rope.get(
            "attention_factor"
        ) or usual
    if kind == "yarn":
        return _yarn(rope, n_pairs, theta, original)
    if kind == "llama3":
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        turns = original * theta ** -(np.arange(n_pairs) / n_pairs) / (2 * np.pi)  # rotations in the original context
        kept = np.clip((turns - low) / (high - low), 0, 1)
        return 1 / (kept + (1 - kept) / rope["factor"]), 1.0
    assert kind == "default" or (kind == "dynamic" and n_tok <= config["max_position_embeddings"]), kind
    return np.ones(n_pairs), 1.0


def _llama3(rope: dict[str, Any], n_pairs: int, theta: float, original: int) -> NDArray[np.float64]:
    """Pairs with fewer than low_freq_factor rotations in the original context rotate `factor` times slower, pairs with
    more than high_freq_factor as before, others between."""
    factor, low, high = rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"]
    factors = np.ones(n_pairs)
    for i in range(n_pairs):
        turns = original * theta ** (-i / n_pairs) / (2 * math.pi)
        if turns < low:
            factors[i] = factor
        elif turns < high:
            share = (turns - low) / (high - low)
            factors[i] = 1 / ((1 - share) / factor + share)
    return factors


def _yarn(rope: dict[str, Any], n_pairs: int, theta: float, original: int) -> tuple[NDArray[np.float64], float]:
    """arXiv:2309.00071: a pair's rotations in the original context determine how far it is interpolated."""
    factor = rope["factor"]

    def pair_of(turns: float) -> float:
        # the pair, as a real number, with this many rotations: original = turns * 2 pi * theta ** (pair / n_pairs)
        return n_pairs * math.log(original / (turns * 2 * math.pi)) / math.log(theta)

    first, last = pair_of(rope.get("beta_fast") or 32), pair_of(rope.get("beta_slow") or 1)
    if rope.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * n_pairs - 1)
    factors = np.empty(n_pairs)
    for i in range(n_pairs):
        stretched = min(max((i - first) / (last - first), 0.0), 1.0)
        factors[i] = 1 / (stretched / factor + (1 - stretched))

    def magnitude(share: float) -> float:
        return 0.1 * share * math.log(factor) + 1

    usual = magnitude(1.0)
    if rope.get("mscale") and rope.get("mscale_all_dim"):
        usual = magnitude(rope["mscale"]) / magnitude(rope["mscale_all_dim"])
    return factors, rope.get("attention_factor") or usual
