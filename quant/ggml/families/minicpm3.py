"""Keys of MiniCPM3. llama.cpp has its three factors as constants: a file with others has them, and only we read them.
residual_scale: 0: 1.4 / sqrt(layers); logit_scale: 0: n_embd / 256; d_value: of a head; 0: n_embd / n_head."""

import math

from .hparams import Scales, TransformerHparams, key
from .rope import RopeHparams


class MiniCpm3Hparams(RopeHparams, TransformerHparams):
    rank: int = key("attention.kv_lora_rank", minimum=1)
    q_rank: int = key("attention.q_lora_rank", 0)
    d_key: int = key("attention.key_length", minimum=1)
    d_value: int = key("attention.value_length", 0)
    n_rot: int = key("rope.dimension_count")
    latent_eps: float = key("hybrid.attention.latent_norm_rms_epsilon", 0.0)  # 0: eps
    embedding_scale: float = key("embedding_scale", 12.0)
    residual_scale: float = key("residual_scale", 0.0)
    logit_scale: float = key("logit_scale", 0.0)

    @property
    def scales(self) -> Scales:
        residual = self.residual_scale or 1.4 / math.sqrt(self.n_layer)
        return Scales(self.embedding_scale, residual, self.logit_scale or self.n_embd / 256)
