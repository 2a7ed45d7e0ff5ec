"""The entries that an indexer selects, in float64: slow and obvious. Counterparts of
infer/kernels/attention/selection.py, one token at a time."""

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]


def index_scores(q: F64, keys: F64, scale: float, weights: F64 | None = None) -> F64:
    """q [head, n], keys [entry, n], weights [head] -> [entry]."""
    by_head = np.maximum(0, scale * (q @ keys.T))
    return by_head.sum(0) if weights is None else weights @ by_head


def best(scores: npt.NDArray, n_best: int) -> list[int]:
    """The n_best entries with the largest scores, ascending; of equal ones the first; n_best 0: all."""
    order = sorted(range(len(scores)), key=lambda e: (-scores[e], e))
    return sorted(order[:n_best] if n_best else order)


def tokens_of(chosen: list[int], every: int, pos: int) -> list[int]:
    """Tokens of the selected entries, and those up to `pos` after the last complete group."""
    tail = range((pos + 1) // every * every, pos + 1)
    return [*(t for e in chosen for t in range(e * every, (e + 1) * every)), *tail]


def entries_and_window(chosen: list[int], window: int, pos: int) -> list[int]:
    """~e of selected entries, and the last `window` tokens up to `pos`."""
    return [*sorted(~e for e in chosen), *range(max(0, pos + 1 - window), pos + 1)]
