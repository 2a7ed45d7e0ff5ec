"""The adapters of a matrix in memory: a table of their halves, in the layout of kernels/products/low_rank.py."""

from collections.abc import Callable, Sequence

import numpy as np

from hybrid.quant.ggml.adapter import Adapter

from ..kernels.products.low_rank import TABLE, Entry, HalfType
from ..program.operands import LowRank, round_up

_DTYPES: dict[HalfType, type] = {HalfType.F32: np.float32, HalfType.F16: np.float16, HalfType.BF16: np.uint16}


def low_rank(
    adapters: Sequence[Adapter], keep: Callable[[np.ndarray], int], name: str, n_expert: int, rows: int, n: int
) -> LowRank | None:
    """What the adapters add to a matrix [rows, n], or to each of n_expert; None: nothing.

    keep: returns the address of a copy that stays in memory.
    """
    if not any(name in adapter for adapter in adapters):
        return None
    table = np.zeros((len(adapters), TABLE), np.int64)
    most_rank = 0
    for entry, adapter in zip(table, adapters, strict=True):
        if name not in adapter:
            continue
        pair = adapter.halves(name, n_expert, rows, n)
        kind = _narrowest(pair.a, pair.b)
        a, b = (_stored(laid, kind) for laid in (_inputs(pair.a), _outputs(pair.b)))
        rank = pair.a.shape[1]
        most_rank = max(most_rank, rank)
        entry[Entry.A], entry[Entry.B] = keep(a), keep(b)
        # one matrix may serve all experts
        entry[Entry.A_BYTES], entry[Entry.B_BYTES] = (x.nbytes // len(x) if len(x) > 1 else 0 for x in (a, b))
        entry[Entry.RANK], entry[Entry.KIND] = rank, kind
        entry[Entry.FACTOR] = int(np.float32(pair.factor).view(np.uint32))
    return LowRank(keep(table), len(adapters), most_rank)


def _inputs(a: np.ndarray) -> np.ndarray:
    """A [expert, rank, n] in its layout, one row per expert."""
    n_expert, rank, n = a.shape
    filled = np.zeros((n_expert, round_up(rank, 4), round_up(n, 16)), np.float32)
    filled[:, :rank, :n] = a
    return filled.reshape(n_expert, -1, 4, filled.shape[2] // 16, 16).transpose(0, 1, 3, 2, 4).reshape(n_expert, -1)


def _outputs(b: np.ndarray) -> np.ndarray:
    """B [expert, rows, rank] in its layout, one row per expert."""
    n_expert, rows, rank = b.shape
    whole = rows // 64 * 64
    wide = b[:, :whole].reshape(n_expert, -1, 64, rank).transpose(0, 1, 3, 2).reshape(n_expert, -1)
    rest = np.zeros((n_expert, rank, round_up(rows - whole, 16)), np.float32)
    rest[:, :, : rows - whole] = b[:, whole:].transpose(0, 2, 1)
    return np.concatenate([wide, rest.reshape(n_expert, -1)], axis=1)


def _narrowest(*halves: np.ndarray) -> HalfType:
    """The type of the fewest bytes that holds the values exactly: a step reads all of them."""
    if not any((half.view(np.uint32) & 0xFFFF).any() for half in halves):
        return HalfType.BF16
    with np.errstate(over="ignore"):
        exact = all((half.astype(np.float16).astype(np.float32) == half).all() for half in halves)
    return HalfType.F16 if exact else HalfType.F32


def _stored(values: np.ndarray, kind: HalfType) -> np.ndarray:
    """f32 in a type that holds the values exactly."""
    bits = values.view(np.uint32) >> 16 if kind is HalfType.BF16 else values
    return bits.astype(_DTYPES[kind])
