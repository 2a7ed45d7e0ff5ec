"""nanochat: norms without weights, also of the embedding and of queries and keys, squared ReLUs. Of Andrej Karpathy."""

from hybrid.quant.ggml.families.nanochat import NanoChatHparams

from ..kernels.attention.rope import NEOX
from ..layers.head_norm import NormWeights
from .arcee import Arcee


class NanoChat(Arcee):
    """nanochat. The file has ones as weights of norms."""

    name = "nanochat"
    hparams = NanoChatHparams
    style = NEOX
    normed = NormWeights.NONE
    norm_after_rope = True
    rms_of_embedding = True
