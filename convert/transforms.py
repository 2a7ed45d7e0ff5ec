"""Transforms of weights on their way into the file, in pieces of whole rows.

A tensor is seen as [rows, columns]: its first dimension by the product of the others (a vector is [n, 1]).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np


@dataclass(frozen=True)
class Transform:
    """`apply(x [n, columns], first_row) -> [n, columns]` (or fewer columns), for any n that is a multiple of `unit`.

    arithmetic: reads and gives f32; otherwise it only moves elements, of any type.
    along: "rows" if every column is transformed alike and linearly, "columns" if every row is: for a LoRA adapter it is
    then applied to B, or to A. Other transforms cannot be applied to adapters.
    """

    name: str
    apply: Callable[[np.ndarray, int], np.ndarray]
    arithmetic: bool
    unit: int = 1
    along: Literal["rows", "columns", ""] = ""


def _negative_exp(x: np.ndarray, _: int) -> np.ndarray:
    with np.errstate(over="ignore"):  # an infinite result is reported with the tensor's name
        return (-np.exp(x.astype(np.float64))).astype(np.float32)


# Checkpoints store the logarithm of a state-space layer's decay, GGUF the decay itself. Computed in f64.
NEGATIVE_EXP = Transform("-exp", _negative_exp, arithmetic=True)


def plus(offset: float) -> Transform:
    """Adds a number, in f64."""
    return Transform(f"{offset:g} +", lambda x, _: (x.astype(np.float64) + offset).astype(np.float32), arithmetic=True)


def _positive_exp(x: np.ndarray, _: int) -> np.ndarray:
    return -_negative_exp(x, _)


# Where the decay is bounded, its rate is stored unchanged.
POSITIVE_EXP = Transform("exp", _positive_exp, arithmetic=True)


# RMS norms of some families multiply by 1 + weight.
PLUS_ONE = plus(1)
# Checkpoints of RWKV-4 and 5 store the share of a token in its mixture with the one before, GGUF the other's share.
ONE_MINUS = Transform("1 -", lambda x, _: (1 - x.astype(np.float64)).astype(np.float32), arithmetic=True)


def rows_in_order(order: np.ndarray, then: Transform | None = None) -> Transform:
    """Row order[i] becomes row i, then `then` is applied. Needs all rows at once."""
    after = then.apply if then else lambda x, _: x
    arithmetic = then.arithmetic if then else False
    along: Literal["rows", ""] = "rows" if then is None or then.along == "rows" else ""
    return Transform("reorder", lambda x, first: after(x[order], first), arithmetic, unit=len(order), along=along)


def transposed(n: int, columns: int = 0, *, unit: int = 1) -> Transform:
    """Transposes matrices of n x columns (n = 0: square), each stored in `unit` rows of the tensor."""
    m = columns or n
    return Transform(
        "transpose",
        lambda x, _: np.ascontiguousarray(x.reshape(-1, n, m).swapaxes(1, 2)).reshape(x.shape),
        arithmetic=False,
        unit=unit,
    )


def turned_over(n: int) -> Transform:
    """A matrix of n rows becomes one of n columns, with its values in the same order. Needs all rows at once."""
    return Transform("transpose", lambda x, _: np.ascontiguousarray(x.T), arithmetic=False, unit=n)


def every_other_row(rows: int, first: int) -> Transform:
    """For matrices of `rows` rows, each stored in one row of the tensor: rows first, first + 2 and so on."""
    return Transform(
        "selection",
        lambda x, _: np.ascontiguousarray(x.reshape(len(x), rows, -1)[:, first::2]).reshape(len(x), -1),
        arithmetic=False,
    )


def alternate_rows(rows: int, first: int) -> Transform:
    """For matrices of `rows` rows: rows first, first + 2 and so on."""
    return Transform(
        "selection",
        lambda x, _: np.ascontiguousarray(x.reshape(-1, rows, x.shape[1])[:, first::2]).reshape(-1, x.shape[1]),
        arithmetic=False,
        unit=rows,
    )


def columns_from(n: int, columns: int, first: int, count: int) -> Transform:
    """For matrices of n x columns, each stored in one row of the tensor: `count` columns from `first`, as rows."""

    def apply(x: np.ndarray, _: int) -> np.ndarray:
        chosen = x.reshape(len(x), n, columns)[:, :, first : first + count]
        return np.ascontiguousarray(chosen.swapaxes(1, 2)).reshape(len(x), -1)

    return Transform("selection", apply, arithmetic=False)


def every_other_column(n: int, columns: int, first: int) -> Transform:
    """For matrices of n x columns, each stored in one row of the tensor: columns first, first + 2, ... as rows."""

    def apply(x: np.ndarray, _: int) -> np.ndarray:
        chosen = x.reshape(len(x), n, columns)[:, :, first::2]
        return np.ascontiguousarray(chosen.swapaxes(1, 2)).reshape(len(x), -1)

    return Transform("selection", apply, arithmetic=False)


def columns_in_order(order: np.ndarray) -> Transform:
    """Column order[i] becomes column i."""
    return Transform("reorder", lambda x, _: np.ascontiguousarray(x[:, order]), arithmetic=False, along="columns")


def interleave_rope(d_head: int, n_rot: int = 0) -> Transform:
    """Reorders rows of q and k from Hugging Face's RoPE order (row j is rotated with row j + n_rot / 2 of its head) to
    llama.cpp's for the architecture `llama` (row 2j with row 2j + 1). Rows of a head from n_rot on stay; n_rot = 0: all
    rows."""
    turned = n_rot or d_head

    def apply(x: np.ndarray, _: int) -> np.ndarray:
        heads = x.reshape(-1, d_head, x.shape[1]).copy()
        halves = heads[:, :turned].reshape(-1, 2, turned // 2, x.shape[1])
        heads[:, :turned] = halves.swapaxes(1, 2).reshape(-1, turned, x.shape[1])
        return heads.reshape(x.shape)

    return Transform("interleave", apply, arithmetic=False, unit=d_head, along="rows")


def scaled(factors: float | np.ndarray) -> Transform:
    """Multiplies all rows with one factor, or each with its own (f64 [rows]). Computed in f64."""

    def apply(x: np.ndarray, first: int) -> np.ndarray:
        some = factors if isinstance(factors, float) else factors[first : first + len(x), None]
        with np.errstate(over="ignore"):  # an infinite result is reported with the tensor's name
            return (x.astype(np.float64) * some).astype(np.float32)

    return Transform("the product with a multiplier", apply, arithmetic=True, along="rows")


def colours_first(side: int) -> Transform:
    """For rows that are patches: values [row, column, colour] become [colour, row, column]."""
    return columns_in_order(np.arange(side * side * 3).reshape(-1, 3).T.reshape(-1))
