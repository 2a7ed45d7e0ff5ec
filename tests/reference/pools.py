"""Pools of groups of tokens in float64, from the whole sequence at once."""

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]


def pool(u: F64, z: F64 | None, ape: F64 | None, every: int, *, overlapping: bool = False) -> F64:
    """u, z [tok, n] (overlapping: [tok, 2 n]), ape [every, same width] -> entries of the complete groups, [group,
    n]."""
    groups = len(u) // every
    u = u[: groups * every].reshape(groups, every, u.shape[1])
    if z is None:
        z = np.zeros_like(u)
    else:
        z = z[: groups * every].reshape(u.shape) + (0 if ape is None else ape)
    if overlapping:
        n = u.shape[2] // 2
        u, z = (_beside_the_one_before(x, n, absent) for x, absent in ((u, 0.0), (z, -np.inf)))
    weights = np.exp(z - z.max(axis=1, keepdims=True, initial=-np.inf))
    return (weights / weights.sum(axis=1, keepdims=True) * u).sum(axis=1)


def _beside_the_one_before(x: F64, n: int, absent: float) -> F64:
    """[group, every, 2 n] -> [group, 2 every, n]: first halves of the previous group, second halves of this group."""
    before = np.concatenate([np.full_like(x[:1, :, :n], absent), x[:-1, :, :n]])
    return np.concatenate([before, x[:, :, n:]], axis=1)
