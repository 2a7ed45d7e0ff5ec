"""Keys of GPT-NeoX and Pythia. exact: GELU by its definition, otherwise by its tanh formula, as in llama.cpp."""

from .gpt2 import Gpt2Hparams
from .hparams import key
from .rope import RopeHparams


class GptNeoxHparams(Gpt2Hparams, RopeHparams):
    n_rot: int = key("rope.dimension_count", 0)  # 0: all values of a head
    parallel: bool = key("use_parallel_residual")
    exact: bool = key("hybrid.feed_forward.exact_gelu", False)
