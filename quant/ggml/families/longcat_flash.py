"""Keys of LongCat-Flash. n_idle: number of experts that return their input; they come last.

n_gram, n_each, n_row, base, end: of its n-gram embeddings, see infer/layers/ngram_embedding.py; n_gram 0: none.
"""

from .hparams import key
from .latent import LatentHparams
from .rope import RopeHparams


class LongcatFlashHparams(RopeHparams, LatentHparams):
    n_idle: int = key("expert_zero_count", 0)
    weights_norm: bool = key("expert_weights_norm", False)
    n_gram: int = key("ngram.size", 0)
    n_each: int = key("ngram.count", 0)
    n_row: int = key("ngram.rows", 0)
    base: int = key("ngram.base", 0)
    end: int = key("ngram.end_token_id", 0)
