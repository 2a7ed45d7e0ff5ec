"""Pooling of groups of tokens to one entry each, for compressed keys and values and for index keys of groups.

    entry = sum_j w_j * u_j        per channel, over the tokens j = 0 .. every - 1 of a group
    w_j = 1 / every, or softmax_j(z_j + ape_j) with gates z

Overlapping: u, z and ape have two halves of n channels per token, and the sum is over the first halves of the previous
group (if there is one) and the second halves of the group itself. DeepSeek-V4, section 2.3

Groups are counted from the beginning of a sequence: token p is in group p // every, whose entry is computed at its last
token. Until then tokens are kept, each in a slot that follows from its position, so that none is ever moved:

    state  f32 [row][slot][u | z]     slot p % every; the last token of a group needs none
                                      overlapping: slot p % (2 * every)
"""

from ..build.jit import kernel
from ..emit.emitter import F32, Emitter, Value, Vec, emit, ldi, sti
from ..emit.fields import Address, Counter, Int
from ..rows.elementwise import over_values
from .states import copy_floats, enter_state, next_part, strip_of, zero_fill

STRIP = 512  # maximum channels of an item
V16F, V1F = Vec(F32, 16), Vec(F32, 1)


def pool_scratch_bytes() -> int:
    """Scratch of `pool_rows` for one thread: the highest score and the sum of weights for each channel of a strip."""
    return 2 * 4 * STRIP


def pool_slots(every: int, *, overlapping: bool) -> int:
    """Number of slots: tokens that are kept for groups of `every`."""
    return 2 * every if overlapping else every - 1


@emit("i64,i64,i64,i64,i64->void")
def _raise_to(e: Emitter, top, z, ape, n, begins):
    """top = max(top, z + ape), or z + ape if `begins` != 0; a NaN stays."""
    b = e.b
    fresh = b.icmp_signed("!=", begins, begins.type(0))

    def some(ty):
        def one(o: Value) -> None:
            x, before = b.fadd(e.load(ty, z, o), e.load(ty, ape, o)), e.load(ty, top, o)
            higher = b.select(b.fcmp_unordered(">", x, before), x, before)
            e.store(b.select(fresh, x, higher), top, o)

        return one

    over_values(e, n, some(V16F), some(V1F))


@emit("i64,i64,i64,i64,i64,i64,i64->void")
def _add_weighted(e: Emitter, out, total, top, u, z, ape, n):
    """w = exp(z + ape - top); out += w * u, total += w."""
    b = e.b

    def some(ty):
        def one(o: Value) -> None:
            x = b.fadd(e.load(ty, z, o), e.load(ty, ape, o))
            w = e.exp_nonpositive(b.fsub(x, e.load(ty, top, o)))
            e.store(e.fma(w, e.load(ty, u, o), e.load(ty, out, o)), out, o)
            e.store(b.fadd(e.load(ty, total, o), w), total, o)

        return one

    over_values(e, n, some(V16F), some(V1F))


@emit("i64,i64,i64->void")
def _divide(e: Emitter, out, total, n):
    """out /= total"""

    def some(ty):
        return lambda o: e.store(e.b.fdiv(e.load(ty, out, o), e.load(ty, total, o)), out, o)

    over_values(e, n, some(V16F), some(V1F))


@emit("i64,i64,i64->void")
def _add(e: Emitter, out, u, n):
    """out += u"""

    def some(ty):
        return lambda o: e.store(e.b.fadd(e.load(ty, out, o), e.load(ty, u, o)), out, o)

    over_values(e, n, some(V16F), some(V1F))


@emit("i64,i64,i64->void")
def _divide_by(e: Emitter, out, count, n):
    """out /= count, an integer"""
    by = e.b.sitofp(count, F32)

    def some(ty):
        return lambda o: e.store(e.b.fdiv(e.load(ty, out, o), e.splat(by, ty.count)), out, o)

    over_values(e, n, some(V16F), some(V1F))


@kernel
def pool_rows(  # noqa: C901  one loop nest
    a, tid, nth, *, ctl: Address, seg: Address, pos: Address, u: Address, ldu: Int, z: Address = 0, ldz: Int = 0,
    ape: Address = 0, ldape: Int = 0, state: Address, stride: Int, out: Address, ldout: Int, n: Int, every: Int,
    overlapping: Int, scratch: Address, scratch_bytes: Int, counter: Counter,
):  # fmt: skip
    """Compute the entry of each group that a token of the batch completes; rows of other tokens are not written.

    ctl, seg, counter  batch control, see states.py
    pos                i64 [tok]: index of the token in its sequence
    u, z               f32 [tok][n], overlapping [tok][2][n]; z 0: none, and the entry is the mean
    ape                f32 [every][...], as wide as z; required with z; ldape bytes from row to row, which may be 0
    state, stride      f32 [row][slot][...], see above; read and written; bytes from row to row
    out                f32 [tok][n], neither u nor z
    scratch            scratch_bytes for each thread: see `pool_scratch_bytes`

    Sums over tokens ascending, in f32. Reference: tests/reference/pools.py. Error: 2e-6 of max(1, the largest |u|).
    """
    n_seg, mine = ldi(ctl + 8), scratch + tid * scratch_bytes
    halves = 2 if overlapping else 1
    count, n_slot = halves * every, 2 * every if overlapping else every - 1
    width = 4 * halves * n
    step = 2 * width if z else width
    strip = strip_of(n, n_seg, nth, STRIP)
    c0 = c1 = s = 0
    while True:
        c0, c1, s = next_part(counter, n, strip, seg, n_seg, c0, c1, s)
        if c0 == n:
            break
        first, n_tok, some = ldi(s), ldi(s + 8), c1 - c0
        top, total = mine, mine + 4 * some
        row = state + ldi(s + 16) * stride
        for block in range(n_slot * step // (4 * n)):
            enter_state(s, state, stride, 4 * (block * n + c0), some)
        for t in range(first, first + n_tok):
            p = ldi(pos + 8 * t)
            if (p + 1) % every != 0:
                continue
            begin = every if overlapping and p + 1 == every else 0
            target = out + t * ldout + 4 * c0
            zero_fill(target, some)
            if z:
                zero_fill(total, some)
            for pass_ in range(2 if z else 1):
                for j in range(begin, count):
                    source = t - count + 1 + j
                    column = 4 * c0 + (4 * n if j >= every else 0)
                    if source >= first:
                        value, gate = u + source * ldu + column, z + source * ldz + column
                    else:
                        value = row + (p - count + 1 + j) % count * step + column
                        gate = value + width
                    bias = ape + j % every * ldape + column
                    if not z:
                        _add(target, value, some)
                    elif pass_ == 0:
                        _raise_to(top, gate, bias, some, j == begin)
                    else:
                        _add_weighted(target, total, top, value, gate, bias, some)
            if z:
                _divide(target, total, some)
            else:
                _divide_by(target, count, some)
        for t in range(max(first, first + n_tok - count), first + n_tok):
            slot = ldi(pos + 8 * t) % count
            if slot < n_slot:
                for half in range(halves):
                    column = 4 * (half * n + c0)
                    copy_floats(u + t * ldu + column, row + slot * step + column, some)
                    if z:
                        copy_floats(z + t * ldz + column, row + slot * step + width + column, some)


@kernel
def group_starts(a, tid, nth, *, ctl: Address, pos: Address, out: Address, every: Int):
    """out[t] = the position of the first token of token t's group, i64 [tok]."""
    for t in range(tid, ldi(ctl), nth):
        sti(out + 8 * t, ldi(pos + 8 * t) // every * every)
