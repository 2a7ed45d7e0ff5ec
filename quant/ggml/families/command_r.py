"""Keys of Command R. Logits are times logit_scale, 0 stands for 1."""

from .hparams import Scales, key
from .llama import LayerNormLlamaHparams


class CommandRHparams(LayerNormLlamaHparams):
    logit_scale: float = key("logit_scale", 0.0)

    @property
    def scales(self) -> Scales:
        return Scales(logits=1 / self.logit_scale if self.logit_scale else 1.0)
