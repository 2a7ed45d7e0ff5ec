"""Keys of Granite 3. n_expert 0: dense; n_ff_shared: width of an expert that every token uses, 0: no such expert."""

from .experts import OptionalExpertsHparams
from .hparams import Scales, TransformerHparams, key
from .rope import RopeHparams


class GraniteHparams(RopeHparams, TransformerHparams, OptionalExpertsHparams):
    n_ff_shared: int = key("expert_shared_feed_forward_length", 0)
    # of these, 0 stands for "none", as in llama.cpp
    embedding_scale: float = key("embedding_scale", 0.0)
    residual_scale: float = key("residual_scale", 0.0)
    logit_scale: float = key("logit_scale", 0.0)
    attention_scale: float = key("attention.scale", 0.0)
    uses_rope: bool = key("rope.scaling.finetuned", True)  # llama.cpp reuses a key of another meaning
    n_rot: int = key("rope.dimension_count", 0)
    # per layer, which features of a picture are added before it, if not the first ones, which are its tokens; -1: none
    deepstack: tuple[int, ...] = key("deepstack_mapping", (), values=0, minimum=-1)

    @property
    def scales(self) -> Scales:
        return Scales(self.embedding_scale or 1.0, self.residual_scale or 1.0, self.logit_scale or 1.0)
