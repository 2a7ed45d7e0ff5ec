"""Keys of Intern-S2-Mobius. Layer i has the experts that are stored with layer i % n_bank."""

from .hparams import key
from .qwen3next import Qwen3NextHparams


class MobiusHparams(Qwen3NextHparams):
    n_bank: int = key("expert_bank_count", minimum=1)
