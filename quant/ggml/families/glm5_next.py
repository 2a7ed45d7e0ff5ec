"""Keys of GLM-5.3-Flash. full: per layer, whether it chooses tokens itself. lowest: logarithm of the lowest decay; 0:
no limit."""

from .hparams import key
from .kimi_linear import LOWEST, KimiLinearHparams


class Glm5NextHparams(KimiLinearHparams):
    lowest: float = key("kda.gate_lower_bound", 0.0, minimum=-LOWEST)
    index_eps: float = key("attention.layer_norm_epsilon", 1e-6)
    n_index_head: int = key("attention.indexer.head_count", minimum=1)
    d_index: int = key("attention.indexer.key_length", minimum=1)
    n_chosen: int = key("attention.indexer.top_k", minimum=1)
    n_pool: int = key("attention.indexer.kpool", minimum=1)
    with_tail: bool = key("attention.indexer.kpool_select_tail", True)
    full: tuple[bool, ...] = key("attention.indexer.types", 0, pattern=True)
    n_stream: int = key("hyper_connection.count")
    n_iter: int = key("hyper_connection.sinkhorn_iterations")
    floor: float = key("hyper_connection.epsilon")
    limit: tuple[float, ...] = key("swiglu_clamp_exp", 0.0, per_layer=True)  # 0: none
    limit_shared: tuple[float, ...] = key("swiglu_clamp_shexp", 0.0, per_layer=True)  # and of dense layers
