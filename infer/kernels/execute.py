"""The executor: every worker thread runs the whole program inside one call, with a barrier after each op.

A program is an array of op records of RECORD int64: the kernel's address, then its fields. Threads meet at a barrier
made of a counter of arrivals and a generation number; the last to arrive publishes the next generation, or its negative
when a stop was requested, so that all leave after the same op. Waiting threads pause, then yield, then sleep: with more
threads than cores, or a busy neighbour, spinning would keep the awaited thread from running.

Both numbers only grow: a run begins at the generation where the last ended, and nobody needs to wait until all threads
have left before the next one is posted.
"""

import ctypes

from .emit import I32, I64, arg, atomic_add, atomic_load, atomic_store, call_kernel, emit, ldi, pause, sched_yield, sti
from .jit import Kernel, kernel

RECORD = 24  # int64 per op: address and up to 23 fields
GENERATION, STOP = 64, 128  # bytes from `sync`, each on a cache line of its own; the arrivals are at 0
SYNC_BYTES = 192
PAUSES, YIELDS = 300, 3000  # about 5 us of pauses, then a millisecond of yields to whoever wants the core


@emit("i64->void")
def _sleep(e, microseconds):
    e.call("usleep", I32, e.b.trunc(microseconds, I32))


@emit("->i64")
def _ticks(e):
    return e.call("llvm.readcyclecounter" if e.isa.x86 else "llvm.readsteadycounter", I64)


def _execute(program, n_ops, tid, nth, sync, base, stamps):
    """Returns the generation after the last op, or its negative when stopped. stamps: i64[n_ops + 1] or 0."""
    if stamps and tid == 0:
        sti(stamps, _ticks())
    for i in range(n_ops):
        record = program + i * (RECORD * 8)
        call_kernel(ldi(record), record + 8, tid, nth)
        target = base + i + 1
        if nth == 1:
            if atomic_load(sync + STOP) != 0:
                return -target
        elif atomic_add(sync, 1) == nth * target - 1:
            if atomic_load(sync + STOP) != 0:
                atomic_store(sync + GENERATION, -target)
                return -target
            atomic_store(sync + GENERATION, target)
        else:
            waited = 0
            while True:
                now = atomic_load(sync + GENERATION)
                if now >= target:
                    break
                if now < 0 and -now >= target:
                    return now
                waited += 1
                if waited < PAUSES:
                    pause()
                elif waited < PAUSES + YIELDS:
                    sched_yield()
                else:
                    _sleep(50)
        if stamps and tid == 0:
            sti(stamps + 8 * (i + 1), _ticks())
    return base + n_ops


EXECUTE = Kernel(_execute, "int64(int64,int64,int64,int64,int64,int64,int64)")
_PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 7)


def executor():
    """The compiled executor as a C function; ctypes releases the GIL while it runs."""
    return _PROTOTYPE(EXECUTE.address)


@kernel
def advance(a, tid, nth):
    """n_past[slot] = position after the last token of each segment. 0 count of segments, 1 seg, 2 pos, 3 n_past.

    The last op of every program that changes a memory: whether a run took effect is then written by the run itself.
    """
    if tid == 0:
        seg, pos, n_past = arg(a, 1), arg(a, 2), arg(a, 3)
        for s in range(ldi(arg(a, 0))):
            last = ldi(seg + 32 * s) + ldi(seg + 32 * s + 8) - 1
            sti(n_past + 8 * ldi(seg + 32 * s + 16), ldi(pos + 8 * last) + 1)


@kernel
def nothing(a, tid, nth):
    """Does nothing; naming a buffer in it keeps the buffer's memory until there."""
