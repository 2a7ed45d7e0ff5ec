"""Mixtures of experts in float64."""

from collections.abc import Callable

import numpy as np
from reference.recurrent import F64


def softmax(x: F64) -> F64:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def choose(scores: F64, n_used: int, n_group: int = 1, n_group_used: int = 1) -> list[int]:
    """Indices of the best n_used of scores [expert], ascending. Only the n_group_used groups with the largest sums of
    their two best scores count; of equal scores the lower index wins."""
    groups = scores.reshape(n_group, -1)
    if n_group > 1:
        best_two = np.sort(groups, axis=1)[:, -2:].sum(1)
        kept = np.argsort(-best_two, kind="stable")[:n_group_used]
        masked = np.full_like(groups, -np.inf)
        masked[kept] = groups[kept]
        groups = masked
    return sorted(np.argsort(-groups.reshape(-1), kind="stable")[:n_used].tolist())


def mixture(
    x: F64,
    scores: F64,
    bias: F64 | float,
    n_used: int,
    expert: Callable[[F64, int], F64],
    norm: bool = True,
    groups: tuple[int, int] = (1, 1),
) -> F64:
    """The sum of the best n_used experts by scores + bias, weighted by their scores, which are divided by their sum if
    `norm`. expert(x [1, n], number) returns its rows; groups: as in `choose`."""
    rows = []
    for t in range(len(x)):
        best = choose(scores[t] + bias, n_used, *groups)
        total = scores[t, best].sum() if norm else 1.0
        rows.append(sum(scores[t, e] / total * expert(x[t : t + 1], e)[0] for e in best))
    return np.stack(rows)


def sparse_mixer(logits: F64, n_used: int, jitter: float) -> dict[int, float]:
    """Experts of one token with their weights, by arXiv:2409.12136 for inference."""
    weights: dict[int, float] = {}
    left = logits.copy()
    for _ in range(n_used):
        best, top = int(left.argmax()), left.max()
        near = (top - logits) / np.maximum(np.abs(logits), top) <= 2 * jitter
        weights[best] = 1 / np.exp(left - top)[near].sum()
        left[best] = -np.inf
    return weights
