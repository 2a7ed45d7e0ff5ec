"""Keys of Inkling 2. n_block: layers that share a bank; limit: the largest length of queries and keys, state_limit: of
states; gate_limit, up_limit: of the two factors of the experts' gates."""

from .hparams import key
from .inkling import LeaningHparams


class Inkling2Hparams(LeaningHparams):
    n_block: int = key("attn_res.block_size", minimum=1)
    limit: float = key("attention.max_length")
    state_limit: float = key("attention.max_state_length")
    gate_limit: float = key("activation.situ_beta")
    up_limit: float = key("activation.situ_linear_beta")
    logit_cap: float = key("final_logit_softcapping", 0.0)
