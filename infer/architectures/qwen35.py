"""Qwen3.5 (text): gated delta rule, gated attention on every fourth layer; dense or with experts. Of Qwen."""

from .qwen3next import Qwen3Next


class Qwen35(Qwen3Next):
    """Qwen3.5, dense. Heads of the delta rule that share keys are n_group apart."""

    name = "qwen35"
    grouped = False
    sees_pictures = True


class Qwen35Moe(Qwen35):
    """Qwen3.5 with experts, on layers that have a router."""

    name = "qwen35moe"
