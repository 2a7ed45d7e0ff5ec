"""The executor: threads run the ops of a program together, and an op needs no particular thread.

A program is an array of op records of RECORD int64: the kernel's address, then its fields (emit/fields.py). An op is
`nth` shares of work, kernel(args, share, nth) for share = 0 .. nth - 1. A thread takes the next untaken share; the
thread that completes the last share publishes the next op. When the system puts a thread to sleep between two shares,
the others do its work, and it joins the current op when it wakes. The others wait only for shares already begun.
Kernels must not wait for each other.

STATE is an i64: shares taken, shares done, and the generation, which grows by one with every op of every run. Taking a
share is one atomic addition, whose result names the op: a thread that is late by any number of ops (or runs) cannot
take a share of a finished op. The fields of the run are read only between taking a share and completing it, when no run
can end.

From 8 threads on the shares are divided among groups, each with a word like STATE on its own cache line. A thread takes
shares from its group; whoever completes a group's last share adds to ROOT, and whoever completes the last group
publishes the next op to all. So 4 to 8 threads write a line, not all. STATE itself then changes only when a run begins
or ends. Shares that a group leaves untaken longer than SPIN are taken by others.

A thread without work pauses, then yields, then parks: with more threads than cores, or a busy neighbour, it may occupy
the core that another thread needs, and the system moves threads to idle cores. A thread that has worked for WORK
microseconds yields before its next share: while it holds none, nobody waits for it.
"""

import ctypes
import sys
from collections.abc import Callable

from .build.jit import Kernel, device, kernel
from .emit.emitter import I32, I64, atomic_add, atomic_load, call_kernel, const, emit, ldi, pause, sched_yield, sti
from .emit.fields import RECORD, Address
from .groups import n_groups

# STATE: bits 0-11 shares taken, 12-23 shares done, 24-62 generation
_BITS = 12
TAKEN, DONE, GENERATION = (1 << _BITS) - 1, 1 << _BITS, 2 * _BITS
CLOSED = 1 << (_BITS - 1)  # set in "shares taken" while there is no run, so that no share can be taken

# byte offsets from `sync`; words that different threads write lie on separate cache lines
ASLEEP, WAKES, CALLER_ASLEEP, CALLER_WAKES = 128, 136, 144, 152
STOP, EXIT = 256, 264
PROGRAM, N_OPS, BASE, STAMPS, N_SHARES, TICKS_PER_US, STOPPER = 384, 392, 400, 408, 416, 424, 432
ROOT, GROUPS, GROUP_BYTES = 512, 640, 128  # groups completed, over all ops and runs; then a word for each group
SYNC_BYTES = GROUPS + 64 * GROUP_BYTES  # for 512 threads

# Microseconds without work until a thread yields, until it parks within a run, and until it parks after a run. Waking
# costs 30, too much for short waits; Linux moves a waiting thread to an idle core only 500 after it last ran.
SPIN, YIELD, LINGER = 8, 600, 1000
WORK = 1000  # microseconds of work after which a thread yields
STAY = 20_000  # microseconds after which the caller returns, so that signals are handled


@emit("->i64")
def _ticks(e):
    return e.call("llvm.readcyclecounter" if e.isa.x86 else "llvm.readsteadycounter", I64)


# Sequentially consistent: two threads that each store their own word, then load the other's, cannot both miss a store.
@emit("i64,i64->void")
def _swap(e, address, value):
    e.b.atomic_rmw("xchg", e.b.inttoptr(address, I64.as_pointer()), value, "seq_cst")


@emit("i64,i64->void")
def _count(e, address, value):
    e.b.atomic_rmw("add", e.b.inttoptr(address, I64.as_pointer()), value, "seq_cst")


@emit("i64->i64")
def _look(e, address):
    return e.b.load_atomic(e.b.inttoptr(address, I64.as_pointer()), "seq_cst", 8)


def _futex(e, word, operation, value, timeout):
    """Linux's futex(2) on the low half of an i64, private to the process."""
    number = {"x86": 202, "arm64": 98}[e.isa.arch]
    zero = const(I64, 0)
    e.call("syscall", I64, const(I64, number), word, const(I64, 128 | operation), value, timeout, zero, zero)


@emit("i64,i64,i64->void")
def park(e, word, expected, microseconds):
    """Sleep until `wake`, at most `microseconds` (0: no limit); not if the word is no longer `expected`. May return
    early.
    """
    b = e.b
    if sys.platform != "linux":
        short = b.icmp_signed("==", microseconds, const(I64, 0))
        e.call("usleep", I32, b.trunc(b.select(short, const(I64, 1000), const(I64, 50)), I32))
        return
    limit = e.stack(I64, 2)
    e.store(b.sdiv(microseconds, const(I64, 1_000_000)), limit)
    e.store(b.mul(b.srem(microseconds, const(I64, 1_000_000)), const(I64, 1000)), limit, 8)
    forever = b.icmp_signed("==", microseconds, const(I64, 0))
    _futex(e, word, 0, expected, b.select(forever, const(I64, 0), b.ptrtoint(limit, I64)))


@emit("i64->void")
def wake(e, word):
    """End every `park` on the word."""
    if sys.platform == "linux":
        _futex(e, word, 1, const(I64, 2**31 - 1), const(I64, 0))


@device
def _word(sync, group, groups):
    """Address of a group's word; of STATE if there is one group."""
    return sync if groups == 1 else sync + GROUPS + GROUP_BYTES * group


@device
def _first(group, groups, nth):
    """Index of the first share of a group."""
    return group * nth // groups


@device
def _publish(sync, state, groups, home, taken):
    """Store `state` in all words and wake sleeping workers (if a run goes on) and the caller. The first `taken` shares
    of the group `home` belong to this thread already."""
    for k in range(1, groups):
        _swap(_word(sync, (home + k) % groups, groups), state)
    _swap(_word(sync, home, groups), state + taken)
    if groups > 1 and state & CLOSED:
        _swap(sync, state)  # last: a caller that sees it may begin a run
    if state & CLOSED == 0 and _look(sync + ASLEEP) > 0:
        _count(sync + WAKES, 1)
        wake(sync + WAKES)
    if _look(sync + CALLER_ASLEEP) > 0:
        _count(sync + CALLER_WAKES, 1)
        wake(sync + CALLER_WAKES)


@device
def _left(sync, home, groups, nth):
    """The next group after `home` with untaken shares; `home` if no group has any."""
    for k in range(1, groups):
        group = (home + k) % groups
        if atomic_load(_word(sync, group, groups)) & TAKEN < _first(group + 1, groups, nth) - _first(
            group, groups, nth
        ):
            return group
    return home


@device
def _wait(sync, state, is_caller, per_us, home, groups, nth):
    """Wait until the word of group `home` has another generation, another group has untaken shares, or the thread has
    slept once. Returns the group to take from."""
    generation = state >> GENERATION
    word = _word(sync, home, groups)
    limit = (LINGER if state & CLOSED else YIELD) * per_us
    begin = _ticks()
    while atomic_load(word) >> GENERATION == generation:
        waited = _ticks() - begin
        if waited < SPIN * per_us:
            pause()
        elif waited < limit:
            for _ in range(10):  # leaves the core to its other hardware thread
                pause()
            sched_yield()
            group = _left(sync, home, groups, nth)
            if group != home:
                return group
        else:
            asleep = sync + (CALLER_ASLEEP if is_caller else ASLEEP)
            wakes = asleep + 8
            _count(asleep, 1)
            seen = _look(wakes)
            if _look(word) >> GENERATION == generation and _look(sync + EXIT) == 0:
                park(wakes, seen, STAY if is_caller else 0)
            _count(asleep, -1)
            return home
    return home


@device
def _begin(sync, before, program, n_ops, stamps, groups):
    """Publish the first op of a run, with generation `before` + 1."""
    sti(sync + PROGRAM, program)
    sti(sync + N_OPS, n_ops)
    sti(sync + BASE, before + 1)
    sti(sync + STAMPS, stamps)
    if stamps:
        sti(stamps, _ticks())
    if groups > 1:
        _swap(sync, (before + 1) << GENERATION)  # first: the run may end before this thread continues
    _publish(sync, (before + 1) << GENERATION, groups, 0, 0)


@device
def _next(sync, i, state, now):
    """STATE after op i, which ended at `now` ticks: of the next op, or CLOSED if the run ends with op i."""
    times = ldi(sync + STAMPS)
    if times:
        sti(times + 8 * (i + 1), now)
    state = ((state >> GENERATION) + 1) << GENERATION
    stopper = ldi(sync + STOPPER)
    stopped = atomic_load(sync + STOP) != 0 or (stopper != 0 and atomic_load(stopper) != 0)
    if stopped or i + 1 == ldi(sync + N_OPS):
        state |= CLOSED
    return state


def _execute(sync, before, program, n_ops, stamps):  # noqa: C901  the loop of all threads
    """Take part in runs, as a worker or as the caller. `sync` 0: only returns the current ticks.

    Worker: `program` is 0, `before` its number; returns when EXIT is set. One more such call wakes the workers that
    sleep. Caller: begins the run if STATE is still closed at generation `before`; returns when the run has ended, or
    after STAY microseconds: to be called again until STATE is closed at another generation. `stamps`: i64[n_ops + 1],
    ticks at the start and at the end of each op, or 0.

    A run ends early, after an op, when the i64 at STOP is not 0, or the i64 whose address (if not 0) is at STOPPER.
    """
    if sync == 0:
        return _ticks()
    is_caller = program != 0
    nth = ldi(sync + N_SHARES)
    groups = n_groups(nth)
    if is_caller and atomic_load(sync) >> GENERATION == before:
        _begin(sync, before, program, n_ops, stamps, groups)
    # the thread's own group: the group of the share that has the thread's number
    home = 0 if is_caller else ((before + 1) * groups - 1) // nth
    home_word, home_first = _word(sync, home, groups), _first(home, groups, nth)
    home_size = _first(home + 1, groups, nth) - home_first
    group, word, first, size = home, home_word, home_first, home_size
    per_us = ldi(sync + TICKS_PER_US)
    begin = rested = _ticks()
    while True:
        now = _ticks()
        if now - rested > WORK * per_us:
            if is_caller and now - begin > STAY * per_us:
                return 0
            sched_yield()
            rested = _ticks()
        state = atomic_load(word)
        if state & TAKEN < size:
            state = atomic_add(word, 1)
        share = state & TAKEN
        if share >= size:
            if group != home:
                group, word, first, size = home, home_word, home_first, home_size
                continue
            if state & CLOSED:
                if is_caller:
                    if atomic_load(sync) & CLOSED == 0:
                        sched_yield()  # the thread that ends the run is about to store STATE
                    return 0
                if atomic_load(sync + EXIT) != 0:
                    _count(sync + WAKES, 1)
                    wake(sync + WAKES)
                    return 0
            group = _wait(sync, state, is_caller, per_us, home, groups, nth)
            if group != home:
                word, first = _word(sync, group, groups), _first(group, groups, nth)
                size = _first(group + 1, groups, nth) - first
            if is_caller and _ticks() - begin > STAY * per_us:
                return 0
            continue
        while share < size:
            i = (state >> GENERATION) - ldi(sync + BASE)
            record = ldi(sync + PROGRAM) + i * (RECORD * 8)
            call_kernel(ldi(record), record + 8, first + share, nth)
            share = size
            is_last = atomic_add(word, DONE) >> _BITS & TAKEN == size - 1
            if is_last and groups > 1:
                is_last = (atomic_add(sync + ROOT, 1) + 1) % groups == 0
            if is_last:
                now = _ticks()
                state, taken = _next(sync, i, state, now), 0
                if state & CLOSED == 0 and now - rested <= WORK * per_us:
                    share, taken = 0, 1  # taken before another thread can see the op
                    group, word, first, size = home, home_word, home_first, home_size
                _publish(sync, state, groups, home, taken)
        if group != home and atomic_load(home_word) & TAKEN < home_size:
            group, word, first, size = home, home_word, home_first, home_size


EXECUTE = Kernel(_execute, "int64(int64,int64,int64,int64,int64)")
_PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 5)


def executor() -> Callable[[int, int, int, int, int], int]:
    """The compiled executor as a ctypes function, which releases the GIL while it runs."""
    return _PROTOTYPE(EXECUTE.address)


@kernel
def advance(a, tid, nth, *, n_seg: Address, seg: Address, pos: Address, slot: Address, n_past: Address):
    """n_past[slot] = position after the last token of each segment.

    n_seg i64, seg i64 [n_seg][4] (see recurrent/states.py), pos and slot i64 [tok], n_past i64 [slot].

    The last op of every program that changes a memory, so that the run itself records that it took effect.
    """
    if tid == 0:
        for s in range(ldi(n_seg)):
            last = ldi(seg + 32 * s) + ldi(seg + 32 * s + 8) - 1
            sti(n_past + 8 * ldi(slot + 8 * last), ldi(pos + 8 * last) + 1)
