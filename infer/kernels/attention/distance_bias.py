"""Scores of attention with a bias by distance that each query mixes from learned profiles (Inkling).

    score(query, key) += sum_k state[k] profile[k][distance]      0 <= distance < extent; k ascending, one fma each

    profiles  one block of memory, see `packed_profiles`: the number of profiles and the extent as i64, then, from byte
              HEADER on, f32 [profile][BLOCK + extent + BLOCK]: the farthest distance first, zeros on both sides, so
              that the profiles of 16 positions of keys are 16 neighbours
    states    f32 [tok][head][profile], in rows

Reference: `distance_bias` of tests/reference/attention.py.
"""

import numpy as np
import numpy.typing as npt

from ..emit.elementary import LOG2E
from ..emit.emitter import F32, I64, Emitter, Value, const, emit
from .attention_tile import BLOCK, GROUPS, Tile
from .kv import K_LANES
from .kv_read import VECTOR

HEADER = 64  # bytes before the profiles


def packed_profiles(profiles: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """The block for profiles f32 [profile][extent], times log2(e), the base of the scores."""
    n, extent = profiles.shape
    rows = np.zeros((n, extent + 2 * BLOCK), np.float32)
    rows[:, BLOCK : BLOCK + extent] = profiles[:, ::-1].astype(np.float64) * LOG2E
    header = np.zeros(HEADER, np.uint8)
    header[:16] = np.array([n, extent], np.int64).view(np.uint8)
    return np.concatenate([header, rows.view(np.uint8).ravel()])


@emit("i64,i64,i64,i64,i64,i64,i64,i64,i64,i64->void")
def no_bias(e, tile, n_row, heads, t, h0, d_head, b0, states, stride, profiles):
    """In place of `add_distance_bias`: scores are unchanged."""


@emit("i64,i64,i64,i64,i64,i64,i64,i64,i64,i64->void", apart=True)
def add_distance_bias(e, tile, n_row, heads, t, h0, d_head, b0, states, stride, profiles):
    """Add the biases to the scores of the block from position b0 on: row r is of token t + r / heads and of its head
    h0 + r % heads. stride: bytes from token to token."""
    b = e.b
    at = Tile(e, tile, d_head)
    n, extent = e.load(I64, profiles), e.load(I64, profiles, 8)
    width = b.shl(b.add(extent, const(I64, 2 * BLOCK)), const(I64, 2))

    def one(r: Value, _: list[Value]) -> None:
        last = at.last(r, b0)  # distance of the block's first position
        reached = b.icmp_signed("<", b.sub(last, const(I64, BLOCK - 1)), extent)
        with b.if_then(b.and_(b.icmp_signed(">=", last, const(I64, 0)), reached)):
            token, head = b.add(t, b.sdiv(r, heads)), b.add(h0, b.srem(r, heads))
            state = b.add(states, b.add(b.mul(token, stride), b.shl(b.mul(head, n), const(I64, 2))))
            place = b.sub(b.add(extent, const(I64, BLOCK - 1)), last)
            profile = b.add(b.add(profiles, const(I64, HEADER)), b.shl(place, const(I64, 2)))
            _add_mixed(e, n, state, profile, width, at.weights(r))

    e.loop(n_row, one)


def _add_mixed(e: Emitter, n: Value, state: Value, profile: Value, width: Value, scores: Value) -> None:
    """scores[j] += sum_k state[k] profile[k][j], for a block of positions j; `width`: bytes from profile to profile."""
    b = e.b

    def mixed(k: Value, total: list[Value]) -> list[Value]:
        factor, row = e.splat(e.load(F32, state, b.shl(k, const(I64, 2))), K_LANES), b.add(profile, b.mul(k, width))
        return [e.fma(factor, e.load(VECTOR, row, 4 * K_LANES * i), total[i]) for i in range(GROUPS)]

    total = e.loop(n, mixed, [const(VECTOR, 0.0)] * GROUPS)
    for i in range(GROUPS):
        place = 4 * K_LANES * i
        e.store(b.fadd(e.load(VECTOR, scores, place), total[i]), scores, place)
