"""Keys of DeepSeek-V3.2: n_index_head index queries of d_index values choose n_chosen tokens."""

from .deepseek2 import DeepSeek2Hparams
from .hparams import key


class DeepSeek32Hparams(DeepSeek2Hparams):
    n_index_head: int = key("attention.indexer.head_count", minimum=1)
    d_index: int = key("attention.indexer.key_length", minimum=1)
    n_chosen: int = key("attention.indexer.top_k", minimum=1)
