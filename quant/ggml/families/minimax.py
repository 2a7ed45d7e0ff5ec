"""Keys of MiniMax-01. The norm of a layer's input times `kept` replaces the residual stream, to which the layer's
result times `share` is added: for layers with softmax attention, with lightning attention, and with experts. kept 0:
residual_scale; share 0: 1."""

from .experts import ExpertsHparams
from .hparams import TransformerHparams, key
from .rope import RopeHparams


class MiniMaxHparams(ExpertsHparams, RopeHparams, TransformerHparams):
    d_head: int = key("attention.key_length", 0)
    n_rot: int = key("rope.dimension_count", 0)
    windows: tuple[int, ...] = key("hybrid.attention.sliding_window", 0, per_layer=True)
    residual_scale: float = key("residual_scale")
    kept_attention: float = key("hybrid.attention.residual_scale", 0.0)
    kept_lightning: float = key("hybrid.lightning.residual_scale", 0.0)
    kept_feed_forward: float = key("hybrid.feed_forward.residual_scale", 0.0)
    share_attention: float = key("hybrid.attention.output_scale", 0.0)
    share_lightning: float = key("hybrid.lightning.output_scale", 0.0)
    share_feed_forward: float = key("hybrid.feed_forward.output_scale", 0.0)
    lightning_eps: float = key("hybrid.lightning.norm_rms_epsilon", 0.0)  # 0: eps
