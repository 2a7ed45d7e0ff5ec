"""Keys of Jet-Nemotron. A layer without heads of keys is a JetBlock: n_ssm_head heads of d_inner / n_ssm_head values,
and as many of keys; n_taps values make the taps of a token. `local`: layers whose tokens see the last `window`."""

from .hparams import TransformerHparams, key
from .mamba2 import SsmHparams
from .rope import RopeHparams


class JetNemotronHparams(RopeHparams, TransformerHparams, SsmHparams):
    d_head: int = key("attention.key_length", minimum=1)
    window: int = key("attention.sliding_window", 0)
    local: tuple[bool, ...] = key("attention.sliding_window_pattern", 0, pattern=True)
    n_taps: int = key("ssm.taps_length", minimum=1)
    gated_eps: float = key("ssm.norm_rms_epsilon")
