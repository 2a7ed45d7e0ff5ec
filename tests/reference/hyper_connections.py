"""Manifold-constrained hyper-connections (arXiv:2512.24880) in float64. x [tok, stream, n] is the residual stream."""

from collections.abc import Callable

import numpy as np
from reference.recurrent import F64, sigmoid


def unit_rms(x: F64, eps: float) -> F64:
    """All streams of a token concatenated, [tok, stream * n], divided by their root mean square."""
    flat = x.reshape(len(x), -1)
    return flat / np.sqrt((flat * flat).mean(1, keepdims=True) + eps)


def doubly_stochastic(c: F64, n_iter: int, floor: float) -> F64:
    """c [tok, stream, stream], positive: columns divided by their sums, then n_iter - 1 times rows and columns."""
    c = c / (c.sum(1, keepdims=True) + floor)
    for _ in range(n_iter - 1):
        c = c / (c.sum(2, keepdims=True) + floor)
        c = c / (c.sum(1, keepdims=True) + floor)
    return c


def hyper_weights(m: F64, base: F64, scale: F64, n_stream: int, n_iter: int, floor: float) -> tuple[F64, F64, F64]:
    """pre and post [tok, stream], comb [tok, stream, stream] from m [tok, (2 + n_stream) n_stream]."""
    h = n_stream
    pre = sigmoid(m[:, :h] * scale[0] + base[:h]) + floor
    post = 2 * sigmoid(m[:, h : 2 * h] * scale[1] + base[h : 2 * h])
    c = (m[:, 2 * h :] * scale[2] + base[2 * h :]).reshape(-1, h, h)
    c = np.exp(c - c.max(2, keepdims=True))
    return pre, post, doubly_stochastic(c / c.sum(2, keepdims=True) + floor, n_iter, floor)


def mixed(x: F64, weights: F64) -> F64:
    """The sum of the streams times their weights [tok, stream]: [tok, n]."""
    return (weights[:, :, None] * x).sum(1)


def written(x: F64, y: F64, post: F64, comb: F64) -> F64:
    """The streams after a sublayer that returned y [tok, n]."""
    return post[:, :, None] * y[:, None] + np.swapaxes(comb, 1, 2) @ x


def hyper_connected(
    x: F64, fn: F64, base: F64, scale: F64, n_iter: int, eps: float, floor: float, sublayer: Callable[[F64], F64]
) -> F64:
    """The streams after a sublayer with its norm, which reads their mix; eps: for the norm of the streams."""
    pre, post, comb = hyper_weights(unit_rms(x, eps) @ fn.T, base, scale, x.shape[1], n_iter, floor)
    return written(x, sublayer(mixed(x, pre)), post, comb)


def learned_collapse(x: F64, fn: F64, base: F64, scale: F64, eps: float, floor: float) -> F64:
    """The streams after the last layer, collapsed to [tok, n]; fn [stream, stream * n]."""
    return mixed(x, sigmoid(unit_rms(x, eps) @ fn.T * scale[0] + base) + floor)
