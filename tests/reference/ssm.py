"""Recurrent layers in float64: slow and obvious. Twins of infer/kernels/ssm.py, one sequence at a time."""

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]


def silu(x: F64) -> F64:
    return x / (1.0 + np.exp(-x))


def softplus(x: F64) -> F64:
    return np.logaddexp(0.0, x)


def conv1d_silu(x: F64, w: F64, bias: F64, state: F64) -> tuple[F64, F64]:
    """x [tok, C], w [d_conv, C], state [d_conv - 1, C] -> y [tok, C], state after."""
    d_conv = w.shape[0]
    past = np.concatenate([state, x]).astype(np.float64)
    y = np.empty(x.shape)
    for t in range(x.shape[0]):
        y[t] = silu(bias + (past[t : t + d_conv] * w).sum(0))
    return y, past[past.shape[0] - (d_conv - 1) :]


def mamba1_scan(x: F64, dt: F64, dt_bias: F64, A: F64, D: F64, B: F64, C: F64, z: F64, state: F64) -> tuple[F64, F64]:
    """x, dt, z [tok, channel]; A, state [channel, d_state]; B, C [tok, d_state] -> y [tok, channel], state after."""
    h = np.array(state, np.float64)
    y = np.empty(x.shape)
    for t in range(x.shape[0]):
        delta = softplus(dt[t].astype(np.float64) + dt_bias)
        h = np.exp(delta[:, None] * A) * h + (delta * x[t])[:, None] * B[t]
        y[t] = (h @ C[t].astype(np.float64) + D * x[t]) * silu(z[t].astype(np.float64))
    return y, h
