"""The executor: threads share the ops of a program without waiting for one another's presence.

A program is an array of op records of RECORD int64: the kernel's address, then its fields (emit/fields.py). An op is
`nth` shares of work, kernel(args, share, nth) for share = 0 .. nth - 1. A thread takes the next share that nobody has
taken; whoever completes the last one publishes the next op. So an op needs all its shares done, but no particular
thread: one that the system has put to sleep between two shares is not missed, the others do its work, and when it comes
back it takes part in whatever op is running then. Only a share that was begun has to be waited for. Kernels must not
wait for each other.

STATE is an i64: shares taken, shares done, and the generation, which grows by one with every op of every run. Taking is
one atomic addition, and its result says for which op: a thread that is late by any number of ops (or runs) cannot take
shares of a finished op. The fields of the job are only read between taking a share and completing it, when no run can
end.

From 8 threads on the shares are divided among groups, each with a word like STATE on a cache line of its own: a thread
takes from its group, who completes a group's last share reports to ROOT, and who completes the last group publishes the
next op to all. So a line is written by 4 to 8 threads instead of all. STATE itself then changes where a run begins and
ends only. What a group leaves untaken for the time of SPIN, because its threads are not there, others take.

A thread without work pauses, then yields, then parks: with more threads than cores, or a busy neighbour, it may be in
the way of the thread it waits for, which the system moves to a core that is idle. A thread that has worked for a while
yields before it takes the next share: to be put to sleep with nothing in its hands keeps nobody waiting.
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
CLOSED = 1 << (_BITS - 1)  # shares that count as taken while there is no run

# bytes from `sync`; what different threads write lies on cache lines of its own
ASLEEP, WAKES, CALLER_ASLEEP, CALLER_WAKES = 128, 136, 144, 152
STOP, EXIT = 256, 264
PROGRAM, N_OPS, BASE, STAMPS, N_SHARES, TICKS_PER_US, STOPPER = 384, 392, 400, 408, 416, 424, 432
ROOT, GROUPS, GROUP_BYTES = 512, 640, 128  # groups completed since ever; a word for each group
SYNC_BYTES = GROUPS + 64 * GROUP_BYTES  # for 512 threads

# Microseconds without work until a thread yields, and until it parks, within a run and after one. Waking costs 30, so
# short waits are not slept through; and Linux moves a waiting thread to an idle core only 500 after it last ran.
SPIN, YIELD, LINGER = 8, 600, 1000
WORK = 1000  # microseconds of work after which a thread yields
STAY = 20_000  # microseconds after which the caller returns, so that signals are handled


@emit("->i64")
def _ticks(e):
    return e.call("llvm.readcyclecounter" if e.isa.x86 else "llvm.readsteadycounter", I64)


# Sequentially consistent, where "store mine, then load the other's" has to meet "store the other's, then load mine".
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
    """Sleep until `wake`, unless the word has changed already; 0 microseconds: for any time. May return early."""
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
    """The word of a group; with a single group, STATE."""
    return sync if groups == 1 else sync + GROUPS + GROUP_BYTES * group


@device
def _first(group, groups, nth):
    """First share of a group."""
    return group * nth // groups


@device
def _publish(sync, state, groups, home, taken):
    """Make `state` known, where `taken` of the shares of the group `home` are the caller's already; and wake who can
    work on it, or wait for its end."""
    for k in range(1, groups):
        _swap(_word(sync, (home + k) % groups, groups), state)
    _swap(_word(sync, home, groups), state + taken)
    if groups > 1 and state & CLOSED:
        _swap(sync, state)  # last: who sees it may begin a run
    if state & CLOSED == 0 and _look(sync + ASLEEP) > 0:
        _count(sync + WAKES, 1)
        wake(sync + WAKES)
    if _look(sync + CALLER_ASLEEP) > 0:
        _count(sync + CALLER_WAKES, 1)
        wake(sync + CALLER_WAKES)


@device
def _left(sync, home, groups, nth):
    """The next group after `home` with shares left; `home` if there is none."""
    for k in range(1, groups):
        group = (home + k) % groups
        if atomic_load(_word(sync, group, groups)) & TAKEN < _first(group + 1, groups, nth) - _first(
            group, groups, nth
        ):
            return group
    return home


@device
def _wait(sync, state, is_caller, per_us, home, groups, nth):
    """Until the word of the group `home` is of another generation, another group needs help, or the thread has slept
    once. Returns the group to take from."""
    generation = state >> GENERATION
    word = _word(sync, home, groups)
    limit = (LINGER if state & CLOSED else YIELD) * per_us
    begin = _ticks()
    while atomic_load(word) >> GENERATION == generation:
        waited = _ticks() - begin
        if waited < SPIN * per_us:
            pause()
        elif waited < limit:
            for _ in range(10):  # easy on the other half of a core with two threads
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
    """Publish the first op of a run, whose generation follows `before`."""
    sti(sync + PROGRAM, program)
    sti(sync + N_OPS, n_ops)
    sti(sync + BASE, before + 1)
    sti(sync + STAMPS, stamps)
    if stamps:
        sti(stamps, _ticks())
    if groups > 1:
        _swap(sync, (before + 1) << GENERATION)  # first: the run may end before this thread goes on
    _publish(sync, (before + 1) << GENERATION, groups, 0, 0)


@device
def _next(sync, i, state, now):
    """STATE of the op after op i, which ended at `now`; closed when the run ends with it."""
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
    """Take part in runs. Returns the ticks of now when sync is 0.

    Worker: program is 0, `before` its number; returns when EXIT is set, which one call more makes known to those
    asleep. Caller: begins the run if STATE is still closed at generation `before`, and returns when it has ended, or
    after a while: to be called again until STATE is closed at another generation. stamps: i64[n_ops + 1], when each op
    ended, or 0.

    A run ends early, after an op, when the i64 at STOP is not 0, or the one whose address is at STOPPER, if it is one.
    """
    if sync == 0:
        return _ticks()
    is_caller = program != 0
    nth = ldi(sync + N_SHARES)
    groups = n_groups(nth)
    if is_caller and atomic_load(sync) >> GENERATION == before:
        _begin(sync, before, program, n_ops, stamps, groups)
    # where it belongs: the group of the share that has its number
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
                        sched_yield()  # whoever ends the run is just about to say so
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
                    share, taken = 0, 1  # taken before anyone else can see it
                    group, word, first, size = home, home_word, home_first, home_size
                _publish(sync, state, groups, home, taken)
        if group != home and atomic_load(home_word) & TAKEN < home_size:
            group, word, first, size = home, home_word, home_first, home_size


EXECUTE = Kernel(_execute, "int64(int64,int64,int64,int64,int64)")
_PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 5)


def executor() -> Callable[[int, int, int, int, int], int]:
    """The compiled executor as a C function; ctypes releases the GIL while it runs."""
    return _PROTOTYPE(EXECUTE.address)


@kernel
def advance(a, tid, nth, *, n_seg: Address, seg: Address, pos: Address, slot: Address, n_past: Address):
    """n_past[slot] = position after the last token of each segment.

    n_seg i64, seg i64 [n_seg][4] (see recurrent/states.py), pos and slot i64 [tok], n_past i64 [slot].

    The last op of every program that changes a memory: whether a run took effect is then written by the run itself.
    """
    if tid == 0:
        for s in range(ldi(n_seg)):
            last = ldi(seg + 32 * s) + ldi(seg + 32 * s + 8) - 1
            sti(n_past + 8 * ldi(slot + 8 * last), ldi(pos + 8 * last) + 1)
