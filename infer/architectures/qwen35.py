"""Qwen3.5 (text): gated delta rule, gated attention on every fourth layer; dense or with experts. Of Qwen.

Its positions are of three kinds in pictures; in text they are one number, and RoPE is the plain one.
"""

from .qwen3next import Qwen3Next


class Qwen35(Qwen3Next):
    """Qwen3.5, dense; heads of the delta rule that share keys are n_group apart."""

    name = "qwen35"
    grouped = False


class Qwen35Moe(Qwen35):
    """With experts; the tensors tell."""

    name = "qwen35moe"
