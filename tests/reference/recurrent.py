"""Recurrent layers in float64: slow and obvious. Counterparts of
infer/kernels/{conv,mamba1,mamba2,delta,rglru,gated_norm}.py, one sequence at a time."""

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]


def sigmoid(x: F64) -> F64:
    return np.exp(-np.logaddexp(0.0, -x))


def silu(x: F64) -> F64:
    return x * sigmoid(x)


def softplus(x: F64) -> F64:
    return np.logaddexp(0.0, x)


def conv1d(x: F64, w: F64, bias: F64, state: F64) -> tuple[F64, F64]:
    """x [tok, C], w [d_conv, C], state [d_conv - 1, C] -> y [tok, C], state after."""
    d_conv = w.shape[0]
    past = np.concatenate([state, x]).astype(np.float64)
    y = np.empty(x.shape)
    for t in range(x.shape[0]):
        y[t] = bias + (past[t : t + d_conv] * w).sum(0)
    return y, past[past.shape[0] - (d_conv - 1) :]


def conv1d_silu(x: F64, w: F64, bias: F64, state: F64) -> tuple[F64, F64]:
    y, after = conv1d(x, w, bias, state)
    return silu(y), after


def conv1d_dynamic(x: F64, w: F64, state: F64) -> tuple[F64, F64]:
    """Convolution of JetBlock: w [tok, d_conv, C], taps of each token."""
    d_conv = w.shape[1]
    past = np.concatenate([state, x]).astype(np.float64)
    y = np.stack([(past[t : t + d_conv] * w[t]).sum(0) for t in range(len(x))])
    return silu(y), past[len(past) - (d_conv - 1) :]


def conv1d_gated(x: F64, before: F64, after: F64, w: F64, bias: F64, state: F64) -> tuple[F64, F64]:
    """Short convolution of LFM2: all [tok, C]; the state holds before * x."""
    y, kept = conv1d(before.astype(np.float64) * x, w, bias, state)
    return after * y, kept


def mamba1_scan(x: F64, dt: F64, dt_bias: F64, A: F64, D: F64, B: F64, C: F64, z: F64, state: F64) -> tuple[F64, F64]:
    """x, dt, z [tok, channel]; A, state [channel, d_state]; B, C [tok, d_state] -> y [tok, channel], state after."""
    h = np.array(state, np.float64)
    y = np.empty(x.shape)
    for t in range(x.shape[0]):
        delta = softplus(dt[t].astype(np.float64) + dt_bias)
        h = np.exp(delta[:, None] * A) * h + (delta * x[t])[:, None] * B[t]
        y[t] = (h @ C[t].astype(np.float64) + D * x[t]) * silu(z[t].astype(np.float64))
    return y, h


def mamba2_steps(dt: F64, dt_bias: F64, A: F64, low: float, high: float) -> tuple[F64, F64]:
    """dt [tok, head] -> step sizes and decays, [tok, head] each."""
    delta = np.clip(softplus(dt.astype(np.float64) + dt_bias), low, high)
    return delta, np.exp(delta * A)


def mamba2_scan(x: F64, delta: F64, decay: F64, D: F64, B: F64, C: F64, z: F64 | None, state: F64) -> tuple[F64, F64]:
    """x, z [tok, head, d_head]; delta, decay [tok, head]; B, C [tok, group, d_state]; state [head, d_head, d_state]."""
    h = np.array(state, np.float64)
    y = np.empty(x.shape)
    share = x.shape[1] // B.shape[1]
    for t in range(x.shape[0]):
        for head in range(x.shape[1]):
            b, c = B[t, head // share].astype(np.float64), C[t, head // share].astype(np.float64)
            h[head] = decay[t, head] * h[head] + np.outer(delta[t, head] * x[t, head], b)
            y[t, head] = h[head] @ c + D[head] * x[t, head].astype(np.float64)
    return (y if z is None else y * silu(z.astype(np.float64))), h


def gated_norm(y: F64, z: F64 | None, weight: F64, eps: float, *, norm_first: bool, act: str = "silu") -> F64:
    """y, z [tok, group, n], weight [group, n] or [n]: RMS norm of each group of y, gated by act(z) before or after."""
    gate = 1.0 if z is None else {"silu": silu, "sigmoid": sigmoid}[act](z.astype(np.float64))
    v = y.astype(np.float64) * (1.0 if norm_first else gate)
    v = v / np.sqrt((v * v).mean(-1, keepdims=True) + eps) * weight
    return v * gate if norm_first else v


def l2_norm(x: F64, eps: float) -> F64:
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + eps)


def delta_rule(q: F64, k: F64, v: F64, gate: F64, beta: F64, state: F64) -> tuple[F64, F64]:
    """q, k [tok, head, d_k] (normalized, q scaled); v [tok, head, d_v]; gate [tok, head, d_k or 1], factors of the
    state; beta [tok, head]; state [head, d_k, d_v] -> y [tok, head, d_v], state after."""
    S = np.array(state, np.float64)
    y = np.empty(v.shape)
    for t in range(v.shape[0]):
        for h in range(v.shape[1]):
            S[h] = gate[t, h][:, None] * S[h]
            S[h] += np.outer(k[t, h], beta[t, h] * (v[t, h] - k[t, h] @ S[h]))
            y[t, h] = q[t, h] @ S[h]
    return y, S


def rg_lru(x: F64, r: F64, r_bias: F64, i: F64, i_bias: F64, rate: F64, state: F64, *, fresh: bool) -> tuple[F64, F64]:
    """x, r, i [tok, C] (gates before bias and sigmoid); rate = -c softplus(Lambda) [C]; state [C]."""
    h = np.array(state, np.float64)
    y = np.empty(x.shape)
    for t in range(x.shape[0]):
        log_a = rate * sigmoid(r[t].astype(np.float64) + r_bias)
        gain = np.ones_like(h) if fresh and t == 0 else np.sqrt(-np.expm1(2.0 * log_a))
        h = np.exp(log_a) * h + gain * sigmoid(i[t].astype(np.float64) + i_bias) * x[t]
        y[t] = h
    return y, h
