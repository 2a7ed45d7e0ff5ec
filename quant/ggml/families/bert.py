"""Keys of BERT. pooling: how the rows of a text become its embedding; embed.py has the numbers."""

from .gpt2 import Gpt2Hparams
from .hparams import key


class BertHparams(Gpt2Hparams):
    pooling: int = key("pooling_type", 0)
