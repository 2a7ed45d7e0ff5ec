"""Keys of Jamba."""

from .experts import OptionalExpertsHparams
from .hparams import TransformerHparams
from .mamba import Mamba1Hparams


class JambaHparams(TransformerHparams, Mamba1Hparams, OptionalExpertsHparams):
    """A layer without heads of keys is Mamba-1; n_ff is also the width of an expert."""
