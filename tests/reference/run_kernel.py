"""Calls a kernel as the engine does: an op record of int64 fields, one call per thread."""

import ctypes
import threading
from typing import Any

import numpy as np

_CALL = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


class Record(np.ndarray):
    """int64 fields that keep the arrays they point to alive."""

    keep: tuple[Any, ...] = ()


def record(kernel: Any, /, **fields: Any) -> Record:
    """The record of an op of `kernel`, as `Recorder.op` makes it from rows.

    Arrays become their addresses; for a kernel with a field for the stride, `x=array` also sets ldx. None counts as not
    given. Counters are created here.
    """
    strides = {
        name: value.strides[0]
        for name, value in fields.items()
        if isinstance(value, np.ndarray) and kernel.layout.find("ld" + name) and "ld" + name not in fields
    }
    arranged = kernel.layout.arranged(fields, strides, lambda: np.zeros(1, np.int64))
    words = [value.ctypes.data if isinstance(value, np.ndarray) else field.word(value) for field, value in arranged]
    op_record = np.array(words, np.int64).view(Record)
    op_record.keep = tuple(value for _, value in arranged)
    return op_record


def run(kernel: Any, fields: np.ndarray, n_threads: int = 1) -> None:
    """Run all threads of one op; `kernel` is a hybrid.infer.kernels.build.jit.Kernel."""
    call = _CALL(kernel.address)
    address = fields.ctypes.data
    if n_threads == 1:
        call(address, 0, 1)
        return
    workers = [threading.Thread(target=call, args=(address, tid, n_threads)) for tid in range(n_threads)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()


def segments(*rows: tuple[int, int, bool | int]) -> tuple[np.ndarray, np.ndarray]:
    """(n tokens, row, before) of each segment of a batch -> ctl, seg.

    before: True: the sequence begins; False: the state is updated in place; a number: row of the previous state.
    """
    table, first = [], 0
    for n, row, before in rows:
        table.append((first, n, row, -1 if before is True else row if before is False else before))
        first += n
    return np.array([first, len(rows), 0], np.int64), np.array(table, np.int64).reshape(-1, 4)


def worst(got: np.ndarray, want: np.ndarray) -> float:
    """Largest error relative to max(1, |want|); NaN anywhere counts as infinite."""
    error = np.abs(got.astype(np.float64) - want) / np.maximum(1.0, np.abs(want))
    return float(np.inf if np.isnan(error).any() else error.max(initial=0.0))


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def guarded(shape: tuple[int, ...], pad: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Rows, each followed by `pad` floats of 7.25 that must not change: whole buffer, view of the rows."""
    whole = np.full((*shape[:-1], shape[-1] + pad), 7.25, np.float32)
    rows = whole[..., : shape[-1]]
    rows[...] = np.nan
    return whole, rows
