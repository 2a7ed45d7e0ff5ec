"""Qwen3.5 (text): gated delta rule, gated attention on every fourth layer; dense or with experts. Of Qwen.

In images a position has three numbers; in text these are equal, and RoPE is the plain one.
"""

from .qwen3next import Qwen3Next


class Qwen35(Qwen3Next):
    """Qwen3.5, dense. Heads of the delta rule that share keys are n_group apart."""

    name = "qwen35"
    grouped = False


class Qwen35Moe(Qwen35):
    """Qwen3.5 with experts, on layers that have a router."""

    name = "qwen35moe"
