"""Layers at the end of a model that use the keys and values of a layer before them."""

from collections.abc import Sequence

from ..loading.weights import Weights


def source_of(i: int, w: Weights, n_shared: int, local: Sequence[bool], n_head_kv: Sequence[int]) -> int:
    """The layer whose keys and values layer i uses: itself, or, of the last n_shared, the last one of its kind that
    has any. FormatError: there is none, or it has another number of heads."""
    first = len(local) - n_shared
    if i < first:
        return i
    same = [j for j in range(first) if local[j] == local[i]]
    if not same or n_head_kv[same[-1]] != n_head_kv[i]:
        expected = f"before layer {i} one that keeps keys and values, with the same window and heads"
        raise w.wrong("attention.shared_kv_layers", n_shared, expected)
    return same[-1]
