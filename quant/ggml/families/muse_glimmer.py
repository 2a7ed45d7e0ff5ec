"""Keys of Muse Glimmer. `local` layers have a window and positions, the others have neither. post_eps: of the norms
after the parts of a layer. logit_scale: factor of the logits, before their cap."""

from .hparams import Scales, key
from .llama import LlamaHparams


class MuseGlimmerHparams(LlamaHparams):
    window: int = key("attention.sliding_window", 0)
    local: tuple[bool, ...] = key("attention.sliding_window_pattern", 4, pattern=True)
    post_eps: float = key("hybrid.attention.post_norm_rms_epsilon", 1e-8)
    logit_scale: float = key("logit_scale", minimum=1e-6)
    logit_cap: float = key("final_logit_softcapping", 0.0)

    @property
    def scales(self) -> Scales:
        return Scales(logits=1 / self.logit_scale)
