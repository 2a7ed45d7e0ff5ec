"""Keys of RecurrentGemma. A layer without heads of keys has a recurrence: n_channel channels in n_lru_head heads, each
with its own matrices for the gates."""

from .hparams import Scales, TransformerHparams, key


class RecurrentGemmaHparams(TransformerHparams):
    d_head: int = key("attention.key_length", 0)
    window: int = key("attention.sliding_window", 0)
    n_rot: int = key("rope.dimension_count", 0)
    freq_base: float = key("rope.freq_base", 10000.0, minimum=1)
    n_channel: int = key("lru.width", minimum=1)
    n_lru_head: int = key("lru.head_count", minimum=1)
    d_conv: int = key("ssm.conv_kernel", minimum=2)
    embedding_scale: float = key("embedding_scale", 1.0)
    logit_cap: float = key("final_logit_softcapping", 0.0)

    @property
    def scales(self) -> Scales:
        return Scales(embedding=self.embedding_scale)
