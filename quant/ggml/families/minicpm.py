"""Keys of MiniCPM. dense_len: tokens of the shortest context in which attention is sparse, which is not supported; 0:
attention never is.

MiniCPM-SALA: a layer without heads of keys has lightning attention, whose decays the file has; its results are
multiplied with lightning_scale, 0: 1 / sqrt(d_head). turned: layers with RoPE."""

from .hparams import Scales, key
from .llama import LlamaHparams


class MiniCpmHparams(LlamaHparams):
    embedding_scale: float = key("embedding_scale")
    residual_scale: float = key("residual_scale")
    logit_scale: float = key("logit_scale")
    dense_len: int = key("hybrid.attention.dense_length", 0)

    @property
    def scales(self) -> Scales:
        return Scales(self.embedding_scale, self.residual_scale, self.logit_scale)


class MiniCpmSalaHparams(MiniCpmHparams):
    turned: tuple[bool, ...] = key("hybrid.rope.layer_pattern", 0, pattern=True)
    lightning_scale: float = key("hybrid.lightning.scale", 0.0)
