"""The layers before convolved attention (arXiv:2510.04476), in float64 and by definition: counterpart of
infer/kernels/recurrent/conv_windows.py, infer/kernels/rows/head_means.py and the steps between them."""

import numpy as np
from reference.recurrent import F64


def convolve(x: F64, w: F64, bias: F64, n_group: int) -> F64:
    """torch's Conv1d without padding: x [tok, channel], w [channel, channels of a group, tap] -> [tok - taps + 1,
    channel]."""
    taps, size = w.shape[2], w.shape[1]
    n_out = len(w) // n_group
    y = np.empty((len(x) - taps + 1, len(w)))
    for t in range(len(y)):
        for o in range(len(w)):
            g = o // n_out
            y[t, o] = bias[o] + (w[o] * x[t : t + taps, g * size : (g + 1) * size].T).sum()
    return y


def convolved(x: F64, depthwise: tuple[F64, F64], grouped: tuple[F64, F64], n_heads: int) -> F64:
    """Both convolutions, one after the other, of x [tok, channel] with zeros before it."""
    n_zero = depthwise[0].shape[2] + grouped[0].shape[2] - 2
    padded = np.concatenate([np.zeros((n_zero, x.shape[1])), x])
    return convolve(convolve(padded, *depthwise, n_group=x.shape[1]), *grouped, n_group=n_heads)


def means(q: F64, k: F64) -> tuple[F64, F64]:
    """Terms added to queries [tok, head, d] and keys [tok, head_kv, d]."""
    n_rep = q.shape[1] // k.shape[1]
    of_queries = (q + np.repeat(k, n_rep, axis=1)) / 2
    return of_queries, of_queries.reshape(len(q), k.shape[1], n_rep, -1).mean(2)


def unit_length(x: F64) -> F64:
    """Heads scaled to root-mean-square 1, i.e. to length sqrt(d)."""
    length = np.sqrt((x * x).sum(-1, keepdims=True))
    return x * np.sqrt(x.shape[-1]) / np.maximum(length, np.finfo(np.float64).eps)


def delayed(current: F64, before: F64, bias: F64 | float) -> F64:
    """[tok, channel]: this token's values beside the previous token's; before the first token those are the bias."""
    first = np.zeros((1, before.shape[1])) + bias
    return np.concatenate([current, np.concatenate([first, before[:-1]])], axis=1)
