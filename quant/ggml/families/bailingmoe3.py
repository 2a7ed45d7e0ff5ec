"""Keys of Ling 3.0. lowest: logarithm of the lowest decay of a state."""

from .hparams import key
from .kimi_linear import LOWEST, KimiLinearHparams
from .rope import RopeHparams


class BailingMoe3Hparams(RopeHparams, KimiLinearHparams):
    lowest: float = key("kda.gate_lower_bound", minimum=-LOWEST)
    safe_gate: bool = key("kda.safe_gate", True)
