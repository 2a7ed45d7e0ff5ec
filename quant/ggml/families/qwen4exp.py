"""Keys of Qwen3.8-Flash-Next. every: tokens of a group that the indexer scores; it chooses budget / every groups.
ple_*: settings of the n-gram embeddings, which the layers of ple.layers have."""

from .hparams import key
from .qwen3next import Qwen3NextHparams


class Qwen4ExpHparams(Qwen3NextHparams):
    n_stream: int = key("hyper_connection.count", minimum=2)
    rank: int = key("hyper_connection.low_rank", minimum=1)
    n_index_head: int = key("attention.indexer.head_count", minimum=1)
    d_index: int = key("attention.indexer.key_length", minimum=1)
    budget: int = key("attention.indexer.top_k", minimum=1)
    every: tuple[int, ...] = key("attention.compress_ratios", per_layer=True)
    ple_gram: int = key("ple.ngram_size", 0)
    ple_each: int = key("ple.heads_per_ngram", 0)
    ple_taps: int = key("ple.conv_kernel", 0)
    ple_end: int = key("ple.eos_token_id", 0)
    d_row: int = key("embedding_length_per_layer_input", 0)
    silu_gate: bool = key("hybrid.ssm.silu_gate", False)  # of the delta rule, in place of the sigmoid
