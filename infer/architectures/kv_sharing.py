"""Layers at the end of a model that use the keys and values of an earlier layer: Gemma 3n and Gemma 4."""

from typing import Any

from hybrid.quant.ggml.families.gemma3n import Gemma3nHparams
from hybrid.quant.ggml.families.gemma4 import Gemma4Hparams

from ..layers.attention import Attention, Rope
from ..layers.head_norm import HeadNorm
from ..layers.shared_keys import BorrowedKeys, NormedValues
from ..loading.weights import Weights


def sharing_attention(
    h: Gemma3nHparams | Gemma4Hparams, i: int, w: Weights, d_head: int, rope: Rope, *, tied: bool = False
) -> Attention:
    """Attention of layer i. tied: values are the keys."""
    source, n_head_kv = _source_of(h, i, w), h.n_head_kv[i]
    sizes: dict[str, Any] = {"window": h.window if h.local[i] else 0, "norm": HeadNorm(h.eps), "scale": 1.0}
    sizes["together"] = h.together and h.local[i]
    if source == i:
        return NormedValues(i, h.n_embd, h.n_head, n_head_kv, d_head, rope, **sizes, tied=tied)
    # files may have these although they are not used
    w.ignore(*(f"blk.{i}.attn_{part}.weight" for part in ("k", "v", "k_norm")))
    return BorrowedKeys(source, h.n_embd, h.n_head, n_head_kv, d_head, rope, block=i, **sizes)


def _source_of(h: Gemma3nHparams | Gemma4Hparams, i: int, w: Weights) -> int:
    """The layer whose keys and values layer i uses: itself, or for the last n_shared layers the last of its kind (local
    or global) before them. Raises FormatError if none exists or it has another number of heads."""
    first = len(h.local) - h.n_shared
    if i < first:
        return i
    same = [j for j in range(first) if h.local[j] == h.local[i]]
    if not same or h.n_head_kv[same[-1]] != h.n_head_kv[i]:
        expected = f"before layer {i} one that keeps keys and values, with the same window and heads"
        raise h.wrong(w.gguf, "n_shared", expected)
    return same[-1]
