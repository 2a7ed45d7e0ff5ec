"""Causal attention in one pass over the cache (flash attention: Dao 2023, arXiv:2307.08691), for prompts and decoding.

    ctl   i64 [3]         number of tokens, of segments, of outputs
    pos   i64 [tok]       index of the token in its sequence, called its position here
    slot  i64 [tok]       its sequence: a row of the table; tokens of one sequence are neighbours, in order
    ctr   i64             counter of work items, zero before each run
    K, V, table           the caches, and where the pages of a sequence lie in them: see kv.py

The order of a query's sums follows from its position alone. Positions are taken in blocks of BLOCK, with the online
softmax from block to block, and in chunks of CHUNK, each summed from nothing; both begin at multiples of their size.
The results of the chunks are merged in ascending order (`merge_record`). So the chunks of one token may be shared out
among threads, which read every key and value once, and neither that, nor the other queries of a tile, nor the split of
a prompt changes a bit. Cache positions after the query's own may hold anything, NaN too.
"""

import numpy as np

from ..build.jit import Kernel, device, kernel, variant
from ..emit.elementary import LOG2E
from ..emit.emitter import arg, atomic_add, ldf, ldi
from .attention_products import (
    make_direct_scores,
    make_direct_values,
    make_unpack,
    unpacked_scores,
    unpacked_values,
)
from .attention_tile import (
    BLOCK,
    DIRECT,
    HEAD,
    MICRO,
    TILE_ROWS,
    begin_chunk,
    clear_record,
    copy_record,
    end_chunk,
    enter_row,
    leave_row,
    merge_record,
    record_bytes,
    soften,
    tile_bytes,
    total_record,
)
from .kv import F32_KV, KV_TYPES, PAGE

CHUNK = 512  # positions whose result is merged as one
SHARED_TOKENS = 8  # tokens of a batch whose positions may be shared out among threads, at most
assert PAGE % BLOCK == 0 and CHUNK % PAGE == 0
WIDE_HEAD = 128  # heads beyond it have tiles of half as many rows, for the second-level cache

_LOG2E = np.float32(LOG2E)


def attention_scratch_bytes(d_head: int) -> int:
    """Scratch of `attention` and `attention_merge` for one thread: a tile."""
    return tile_bytes(d_head)


def chunk_records(n_tok: int, n_head: int, n_ctx: int, window: int = 0) -> int:
    """Records that sharing out the positions of batches of up to n_tok tokens can need; 0: it never is."""
    tokens = min(n_tok, SHARED_TOKENS)
    n_chunk = (n_ctx - 1) // CHUNK + 1
    if window > 0:
        n_chunk = min(n_chunk, (window + tokens) // CHUNK + 2)
    return tokens * n_head * n_chunk if n_chunk > 1 else 0


def chunk_record_bytes(d_head: int) -> int:
    return record_bytes(d_head)


@device
def shared_chunks(n_tok, pos, n_head, n_kv, window, room, nth):
    """Chunks of a token, when the chunks are to be shared out among threads; otherwise 0."""
    if nth == 1 or n_tok * n_kv >= 4 * nth:
        return 0
    last = 0
    for t in range(n_tok):
        last = max(last, ldi(pos + 8 * t))
    n = last // CHUNK + 1
    if window > 0:
        n = min(n, (window + n_tok) // CHUNK + 2)
    return n if n > 1 and n_tok * n_head * n <= room else 0


direct_scores, direct_values, unpack = make_direct_scores(F32_KV), make_direct_values(F32_KV), make_unpack(F32_KV)
ITEM, SCALE = F32_KV.item, F32_KV.scale


@kernel
def attention(a, tid, nth):
    """Causal attention with grouped heads: query head h uses KV head h // (n_head / n_kv). One kernel per cache type.

        out = sum_j w_j V_j / sum_j w_j,  w_j = exp(s_j - maximum),  j <= pos (and j > pos - window)
        s_j = scale * q . K_j,  with a cap: cap * tanh(scale * q . K_j / cap)   (Gemma 2, arXiv:2408.00118)

     0 ctl, 1 pos, 2 slot
     3 q, 4 ldq       f32 [tok][head][d_head] after rope
     5 K, 6 V         the caches, with the batch's own keys and values in them
     7 table, 8 stride of its rows in bytes
     9 out, 10 ldo    f32 [tok][head][d_head]; may be q
    11 n_head, 12 n_kv, 13 d_head
    14 scale          f32 bits in the low half
    15 bytes of a page in K, and in V
    16 scratch, 17 scratch bytes per thread: see `attention_scratch_bytes`
    18 ctr
    19 window         0: none; otherwise a query sees the last `window` positions, itself included
    20 cap            f32 bits; 0: none
    21 records, 22 number of them: see `chunk_records`; what is left there is for `attention_merge`, the next op

    Reference: tests/reference/attention.py on keys and values as they are in the cache. Error: 5e-6 of max(1, |out|)
    (d_head 128, scores of deviation 3; 1e-6 at d_head 16).
    """
    n_tok = ldi(arg(a, 0))
    pos, slot, q, ldq, out, ldo = arg(a, 1), arg(a, 2), arg(a, 3), arg(a, 4), arg(a, 9), arg(a, 10)
    n_heads, n_kv, d_head, window = arg(a, 11), arg(a, 12), arg(a, 13), arg(a, 19)
    scratch = arg(a, 16) + tid * arg(a, 17)
    d_pad = (d_head + 15) // 16 * 16
    row = d_pad * ITEM + (d_head + 31) // 32 * SCALE
    factor, cap = ldf(a + 8 * 14), ldf(a + 8 * 20)
    if cap == 0:
        factor = factor * _LOG2E
    else:
        factor = factor / cap
        cap = cap * _LOG2E
    n_chunk = shared_chunks(n_tok, pos, n_heads, n_kv, window, arg(a, 22), nth)
    if window <= 0:
        window = 1 << 40
    group = n_heads // n_kv
    # a tile has all heads of a KV head and several tokens; with fewer tiles than threads the heads are shared out
    rows = TILE_ROWS if d_head <= WIDE_HEAD else TILE_ROWS // 2
    n_head = min(group, rows)
    tasks = max(1, n_tok * n_kv * max(1, n_chunk))
    parts = (nth + tasks - 1) // tasks
    if parts > 1:
        n_head = min(n_head, ((group + parts - 1) // parts + DIRECT - 1) // DIRECT * DIRECT)
    parts = (group + n_head - 1) // n_head
    tile = rows // n_head
    if n_chunk == 0:
        tile = min(tile, max(1, n_tok * n_kv * parts // (4 * nth)))
    n_tile = (n_tok + tile - 1) // tile
    total = n_tile * n_kv * parts * max(1, n_chunk)
    while True:
        i = atomic_add(arg(a, 18), 1)
        if i >= total:
            break
        chunk = i % max(1, n_chunk)
        i = i // max(1, n_chunk)
        rest = i % (n_kv * parts)
        h_kv = rest // parts
        h0 = h_kv * group + rest % parts * n_head
        heads = min(h0 + n_head, (h_kv + 1) * group) - h0
        t = (n_tile - 1 - i // (n_kv * parts)) * tile  # the last tokens have most to do: first
        end = min(n_tok, t + tile)
        while t < end:
            s = ldi(slot + 8 * t)
            u = t + 1
            while u < end and ldi(slot + 8 * u) == s:
                u += 1
            start, final = max(0, ldi(pos + 8 * t) - window + 1), ldi(pos + 8 * (u - 1))
            c0, c1 = start // CHUNK, final // CHUNK + 1
            if n_chunk > 0:
                c0 += chunk
                c1 = min(c1, c0 + 1)
            n_row = (u - t) * heads
            # rows at a time: more of them do a seventh more work in the same time, unless too many have no query
            n_pad = (n_row + MICRO - 1) // MICRO * MICRO
            micro = MICRO
            if n_row <= DIRECT or (n_row + DIRECT - 1) // DIRECT * DIRECT * 8 < n_pad * 7:
                n_pad = (n_row + DIRECT - 1) // DIRECT * DIRECT
                micro = DIRECT
            if c0 < c1:
                for r in range(n_pad):
                    w = t + r // heads
                    if r < n_row:
                        source = q + w * ldq + (h0 + r % heads) * d_head * 4
                        enter_row(scratch, r, source, d_head, factor, ldi(pos + 8 * w))
                    else:
                        enter_row(scratch, r, q, d_head, factor, -1)
            k, v, pages = arg(a, 5) + h_kv * PAGE * row, arg(a, 6) + h_kv * PAGE * row, arg(a, 7) + s * arg(a, 8)
            for c in range(c0, c1):
                begin_chunk(scratch, n_pad, d_head)
                b1 = min(final + 1, (c + 1) * CHUNK)
                for b0 in range(max(start, c * CHUNK) // BLOCK * BLOCK, b1, BLOCK):
                    place = ldi(pages + b0 // PAGE * 8) * arg(a, 15) + b0 % PAGE * row
                    kb, vb = k + place, v + place
                    seen = min(final - b0, BLOCK - 1)
                    if n_row <= DIRECT:
                        direct_scores(scratch, n_row, kb, vb, row, d_head, seen)
                        soften(scratch, n_row, d_head, b0, window, cap)
                        direct_values(scratch, n_row, kb, vb, row, d_head, b0, window)
                    else:
                        keys = unpack(scratch, kb, vb, row, d_head, seen)
                        unpacked_scores(scratch, n_row, micro, keys, d_head, b0, seen)
                        soften(scratch, n_row, d_head, b0, window, cap)
                        unpacked_values(scratch, n_row, micro, d_head, b0, window)
                for r in range(n_row):
                    w = t + r // heads
                    p = ldi(pos + 8 * w)
                    if p >= c * CHUNK and p - window + 1 < (c + 1) * CHUNK:
                        record = end_chunk(scratch, r, d_head)
                        if n_chunk > 0:
                            index = (w * n_heads + h0 + r % heads) * n_chunk + c % n_chunk
                            copy_record(record, arg(a, 21) + index * (HEAD + 4 * d_pad), d_head)
                        else:
                            merge_record(total_record(scratch, r, d_head), record, d_head)
            if n_chunk == 0:
                for r in range(n_row):
                    target = out + (t + r // heads) * ldo + (h0 + r % heads) * d_head * 4
                    leave_row(total_record(scratch, r, d_head), target, d_head)
            t = u


@kernel
def attention_merge(a, tid, nth):
    """Merges the chunks of `attention` when they were shared out; otherwise does nothing. Fields as there."""
    n_tok = ldi(arg(a, 0))
    pos, n_head, n_kv, d_head, window = arg(a, 1), arg(a, 11), arg(a, 12), arg(a, 13), arg(a, 19)
    n_chunk = shared_chunks(n_tok, pos, n_head, n_kv, window, arg(a, 22), nth)
    if n_chunk > 0:
        if window <= 0:
            window = 1 << 40
        total = arg(a, 16) + tid * arg(a, 17)
        size = HEAD + (d_head + 15) // 16 * 64
        n = n_tok * n_head
        for j in range(n * tid // nth, n * (tid + 1) // nth):
            t = j // n_head
            p = ldi(pos + 8 * t)
            clear_record(total, d_head)
            for c in range(max(0, p - window + 1) // CHUNK, p // CHUNK + 1):
                merge_record(total, arg(a, 21) + (j * n_chunk + c % n_chunk) * size, d_head)
            leave_row(total, arg(a, 9) + t * arg(a, 10) + (j - t * n_head) * d_head * 4, d_head)


ATTENTION: dict[str, Kernel] = {
    kind.name: variant(
        attention,
        f"attention_{kind.name}",
        direct_scores=make_direct_scores(kind),
        direct_values=make_direct_values(kind),
        unpack=make_unpack(kind),
        ITEM=kind.item,
        SCALE=kind.scale,
    )
    for kind in KV_TYPES.values()
}
