"""Keys of Kimi K3. A layer without heads of keys has the delta rule. n_latent 0: experts read the token's rows;
n_block: layers that share a bank; lowest: logarithm of the lowest decay of a state, 0: none."""

from .hparams import key
from .kimi_linear import LOWEST, KimiLinearHparams


class KimiK3Hparams(KimiLinearHparams):
    lowest: float = key("kda.gate_lower_bound", 0.0, minimum=-LOWEST)
    n_latent: int = key("expert_latent_length", 0)
    n_block: int = key("attn_res.block_size", minimum=1)
    beta: float = key("activation.situ_beta")
    linear_beta: float = key("activation.situ_linear_beta")
