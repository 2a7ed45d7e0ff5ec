"""Mixes rows with messages from an earlier pass through the same layers (Inkling 2 with loops)."""

from ..build.jit import kernel
from ..emit.emitter import F32, Vec, const, emit, ldi
from ..emit.fields import Address, Int
from .elementwise import CHUNK, over_values


@emit("i64,i64,i64,i64,i64,i64->void")
def _mix_row(e, x, message, forget, gain, out, n):
    b = e.b

    def mixed(ty, x, message, forget, gain):
        kept = b.fmul(b.fsub(const(ty, 1.0), e.tanh(forget)), x)
        return e.fma(e.tanh(gain), message, kept)

    def whole(o):
        ty = Vec(F32, 16)
        e.store(mixed(ty, *(e.load(ty, row, o) for row in (x, message, forget, gain))), out, o)

    def single(o):
        rows = (e.splat(e.load(F32, row, o), 4) for row in (x, message, forget, gain))
        e.store(e.lane(mixed(Vec(F32, 4), *rows), 0), out, o)

    over_values(e, n, whole, single)


@kernel
def message_gate(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, message: Address, ldmessage: Int, forget: Address,
    ldforget: Int, gain: Address, ldgain: Int, out: Address, ldout: Int, n: Int,
):  # fmt: skip
    """out = (1 - tanh(forget)) x + tanh(gain) message, all f32 [row][n]; out may be one of the others. Error: 4e-7 of
    max(1, |out|)."""
    per_row = (n + CHUNK - 1) // CHUNK
    for i in range(tid, ldi(count) * per_row, nth):
        t, o = i // per_row, i % per_row * CHUNK
        _mix_row(
            x + t * ldx + 4 * o, message + t * ldmessage + 4 * o, forget + t * ldforget + 4 * o,
            gain + t * ldgain + 4 * o, out + t * ldout + 4 * o, min(CHUNK, n - o),
        )  # fmt: skip
