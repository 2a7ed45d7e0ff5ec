"""Keys of Granite 4 H and Bamba."""

from .granite import GraniteHparams
from .mamba2 import Mamba2Hparams


class GraniteHybridHparams(GraniteHparams, Mamba2Hparams):
    """A layer without heads of keys is a Mamba-2 layer."""
