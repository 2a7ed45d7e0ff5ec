"""Keys of LFM2."""

from .experts import ExpertsHparams
from .hparams import TransformerHparams, key
from .rope import RopeHparams


class Lfm2Hparams(RopeHparams, TransformerHparams):
    """A layer without heads of keys is a convolution over d_conv tokens."""

    d_conv: int = key("shortconv.l_cache", minimum=2)


class Lfm2MoeHparams(ExpertsHparams, Lfm2Hparams):
    """The first n_dense layers have no experts; weights_scale: factor of the experts' sum; weights_norm: the used
    experts' weights are made to add up to 1."""

    n_dense: int = key("leading_dense_block_count", 0, counts="first")
    n_ff_expert: int = key("expert_feed_forward_length", minimum=1)
    weights_norm: bool = key("expert_weights_norm", True)
    weights_scale: float = key("expert_weights_scale", 1.0)
