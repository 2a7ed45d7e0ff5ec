"""Keys of DeepSeek-V4. every: tokens of an entry of each layer, 0: it has none. freq_base and no scaling are for layers
without entries, compressed_base and the scaling for the others. n_hashed: first layers whose experts go by tokens."""

from .experts import ExpertsHparams
from .hparams import key
from .rope import RopeHparams


class DeepSeek4Hparams(ExpertsHparams, RopeHparams):
    n_head: int = key("attention.head_count", minimum=1)
    d_head: int = key("attention.key_length", minimum=1)
    n_rot: int = key("rope.dimension_count", minimum=2)
    q_rank: int = key("attention.q_lora_rank", minimum=1)
    window: int = key("attention.sliding_window", minimum=1)
    every: tuple[int, ...] = key("attention.compress_ratios", per_layer=True, more=True)
    compressed_base: float = key("attention.compress_rope_freq_base", minimum=1)
    n_index_head: int = key("attention.indexer.head_count", minimum=1)
    d_index: int = key("attention.indexer.key_length", minimum=1)
    n_best: int = key("attention.indexer.top_k", minimum=1)
    n_group: int = key("attention.output_group_count", minimum=1)
    out_rank: int = key("attention.output_lora_rank", minimum=1)
    n_stream: int = key("hyper_connection.count", minimum=1)
    n_iter: int = key("hyper_connection.sinkhorn_iterations", minimum=1)
    floor: float = key("hyper_connection.epsilon")
    n_hashed: int = key("hash_layer_count", counts="first")
    n_ff_expert: int = key("expert_feed_forward_length", minimum=1)
    n_shared: int = key("expert_shared_count", minimum=1)
    weights_norm: bool = key("expert_weights_norm")
    weights_scale: float = key("expert_weights_scale")
    gating: int = key("expert_gating_func")
    limit: tuple[float, ...] = key("swiglu_clamp_exp", per_layer=True)
    limit_shared: tuple[float, ...] = key("swiglu_clamp_shexp", per_layer=True)
