"""Causal attention in one pass over the cache (flash attention: Dao 2023, arXiv:2307.08691), for prompts and decoding.

    ctl      i64 [3]        number of tokens, of segments, of outputs
    pos      i64 [tok]      index of the token in its sequence, called its position here
    slot     i64 [tok]      its sequence: a row of the table; tokens of one sequence are neighbours, in order
    counter  i64            the next work item; zero before each run
    keys, values, table     the caches, and where the pages of a sequence lie in them: see kv.py

The order of a query's sums follows from its position alone. Positions are taken in blocks of BLOCK, with the online
softmax from block to block, and in chunks of CHUNK, each summed from zero; both begin at multiples of their size. The
results of the chunks are merged in ascending order (`merge_record`), starting with the sink if there is one. So the
chunks of one token may be shared among threads, which read every key and value once, and neither that, nor the other
queries of a tile, nor the split of a prompt changes a bit. Cache positions after the query's own may hold anything,
even NaN.
"""

from functools import cache
from typing import Any

import numpy as np

from ..build.jit import Kernel, device, kernel, variant
from ..emit.elementary import LOG2E
from ..emit.emitter import atomic_add, emit, ldf, ldi, stf
from ..emit.fields import Address, Counter, Float, Int
from .attention_codes import make_code_scores, make_code_values, make_round_queries
from .attention_latent import left_packed, make_few_values, make_latent_scores, make_latent_values, make_unpack_keys
from .attention_products import (
    make_direct_scores,
    make_direct_values,
    make_unpack,
    unpacked_scores,
    unpacked_values,
)
from .attention_tile import (
    AHEAD,
    BLOCK,
    HEAD,
    LANES,
    TILE_ROWS,
    begin_chunk,
    clear_record,
    copy_record,
    end_chunk,
    enter_row,
    heads_of_tile,
    leave_row,
    merge_record,
    record_bytes,
    rows_at_once,
    soften,
    tile_bytes,
    total_record,
)
from .distance_bias import add_distance_bias, no_bias
from .kv import F32_KV, PAGE, KVType, row_size

CHUNK = 512  # positions whose result is merged as one
# If threads share the chunks of a token, each takes runs of up to MOST_RUN chunks, but at least RUNS runs. Within a run
# keys and values are prefetched from block to block.
MOST_RUN, RUNS = 16, 4
SHARED_TOKENS = 8  # maximum tokens of a batch whose chunks may be shared among threads
assert PAGE % BLOCK == 0 and CHUNK % PAGE == 0
EVERYTHING = 1 << 40  # a window of all positions
PREFIXED = False
WIDE_HEAD = 128  # wider heads have tiles of half as many rows, to fit the second-level cache

_LOG2E, _ONE = np.float32(LOG2E), np.float32(1.0)


def attention_scratch_bytes(d_head: int) -> int:
    """Scratch of `attention` and `attention_merge` for one thread: a tile."""
    return tile_bytes(d_head)


def chunk_records(
    n_tok: int, n_head: int, n_kv: int, n_ctx: int, n_threads: int, window: int = 0, prefix: int = 0
) -> int:
    """Maximum number of records when batches of up to n_tok tokens share chunks among threads; 0 if they never do."""
    # batches with more tokens have work for all threads anyway, see `shared_chunks`
    tokens = min(n_tok, SHARED_TOKENS, (4 * n_threads - 1) // n_kv) if n_threads > 1 else 0
    n_chunk = (n_ctx - 1) // CHUNK + 1
    if window > 0:
        n_chunk = min(n_chunk, (window + tokens) // CHUNK + 2)
    return tokens * n_head * (n_chunk + (prefix > 0)) if n_chunk > 1 else 0


def chunk_record_bytes(d_value: int) -> int:
    return record_bytes(d_value)


@device
def shared_chunks(n_tok, pos, n_head, n_kv, window, room, nth):
    """Number of chunks per token if the chunks are to be shared among threads; otherwise 0."""
    if nth == 1 or n_tok * n_kv >= 4 * nth:
        return 0
    last = 0
    for t in range(n_tok):
        last = max(last, ldi(pos + 8 * t))
    n = last // CHUNK + 1
    if window > 0:
        n = min(n, (window + n_tok) // CHUNK + 2)
    return n if n > 1 and n_tok * n_head * n <= room else 0


@device
def first_seen(p, window, aligned):
    """The first position that a query at p sees."""
    return p // window * window if aligned else max(0, p - window + 1)


@device
def start_with_sink(total, sinks, head):
    """Put a head's sink into an empty record: its logit (base 2) is the maximum, and the sum of weights is 1."""
    stf(total, ldf(sinks + 4 * head) * _LOG2E)
    stf(total + 4, _ONE)


@device
def place_of_item(i, n_run, n_kv, parts, group, per_tile, n_tile, tile):
    """Work item i: (run of chunks, KV head, first query head, number of query heads, first token). The last tokens,
    with the most work, come first."""
    chunk, i = i % max(1, n_run), i // max(1, n_run)
    rest = i % (n_kv * parts)
    h_kv = rest // parts
    h0 = h_kv * group + rest % parts * per_tile
    heads = min(h0 + per_tile, (h_kv + 1) * group) - h0
    return chunk, h_kv, h0, heads, (n_tile - 1 - i // (n_kv * parts)) * tile


@device
def end_of_run(t, end, slot, pos, start, window, aligned):
    """End of the tokens from t on that share its sequence and, if windows are aligned, its window."""
    u = t + 1
    while u < end and ldi(slot + 8 * u) == ldi(slot + 8 * t) and (not aligned or ldi(pos + 8 * u) < start + window):
        u += 1
    return u


@device
def place_of_query(w, pos, own):
    """The position of token w's queries for `enter_row`."""
    last = ldi(pos + 8 * w)
    return last + ((last - ldi(own + 8 * w)) << AHEAD) if own else last


@device
def enter_queries(tile, n_row, n_pad, heads, q, ldq, t, h0, d_head, factor, pos, own, sinks, ldsinks, block):
    """Enter the queries into rows: heads h0 .. h0 + heads - 1 of each token from t on. Rows n_row .. n_pad - 1 get no
    query."""
    for r in range(n_pad):
        w = t + r // heads
        if r < n_row:
            source = q + w * ldq + (h0 + r % heads) * d_head * 4
            enter_row(tile, r, source, d_head, factor, place_of_query(w, pos, own), block)
            if sinks:
                start_with_sink(total_record(tile, r, d_head), sinks + w * ldsinks, h0 + r % heads)
        else:
            enter_row(tile, r, q, d_head, factor, -1, 0)


@device
def leave_chunk(tile, c, n_row, heads, t, h0, d_head, d_value, pos, own, window, aligned, records, n_head, n_chunk):
    """Merge the results of chunk c into the tile's totals; if chunks are shared (n_chunk > 0), copy them to records."""
    for r in range(n_row):
        w = t + r // heads
        p = ldi(pos + 8 * w)
        if p >= c * CHUNK and first_seen(ldi(own + 8 * w) if own else p, window, aligned) < (c + 1) * CHUNK:
            record = end_chunk(tile, r, d_head)
            if n_chunk > 0:
                index = (w * n_head + h0 + r % heads) * n_chunk + c % n_chunk
                copy_record(record, records + index * (HEAD + (d_value + 15) // 16 * 64), d_value)
            else:
                merge_record(total_record(tile, r, d_head), record, d_value)


@device
def leave_prefix(tile, n_row, heads, t, h0, d_head, d_value, records, n_head, n_chunk, n_tok):
    """Merge the results of the prefix into the tile's totals; if chunks are shared (n_chunk > 0), copy them to records
    after the records of all chunks."""
    for r in range(n_row):
        record = end_chunk(tile, r, d_head)
        if n_chunk > 0:
            index = n_tok * n_head * n_chunk + (t + r // heads) * n_head + h0 + r % heads
            copy_record(record, records + index * (HEAD + (d_value + 15) // 16 * 64), d_value)
        else:
            merge_record(total_record(tile, r, d_head), record, d_value)


@device
def leave_rows(tile, n_row, heads, t, h0, d_head, d_value, out, ldout, block):
    """Write the outputs over all chunks to the rows of `out`."""
    for r in range(n_row):
        target = out + (t + r // heads) * ldout + (h0 + r % heads) * d_value * 4
        leave_row(total_record(tile, r, d_head), target, d_value, block)


@emit("i64,i64,i64->void")
def leave_queries(e, tile, n_row, d_head):
    """Replaces `round_queries` of attention_codes.py: queries stay f32."""


round_queries = leave_queries
lean = no_bias
IN_REGISTERS = 32  # up to this many rows, keys and values are converted in registers; with more, unpacked to scratch
direct_scores, direct_values = make_direct_scores(F32_KV), make_direct_values(F32_KV)
unpack = make_unpack(F32_KV, F32_KV)
LATENT = False  # whether the values are parts of the keys
EIGHTH, SCALES, V_EIGHTH, V_SCALES = F32_KV.eighth, F32_KV.group, F32_KV.eighth, F32_KV.group


@kernel
def attention(  # noqa: C901  one loop nest
    a, tid, nth, *, ctl: Address, pos: Address, slot: Address, q: Address, ldq: Int, keys: Address, values: Address,
    table: Address, table_stride: Int, out: Address, ldout: Int, n_head: Int, n_kv: Int, d_head: Int, d_value: Int,
    scale: Float, scratch: Address, scratch_bytes: Int, counter: Counter, window: Int = 0, cap: Float = 0.0,
    records: Address, n_records: Int, sinks: Address = 0, prefix: Int = 0, k_block: Int = 0, v_block: Int = 0,
    own: Address = 0, states: Address = 0, ldstates: Int = 0, profiles: Address = 0,
):  # fmt: skip
    """Causal attention with grouped heads: query head h uses KV head h // (n_head / n_kv). One kernel per pair
    of types: see `attention_kernel`.

        out = sum_j w_j V_j / sum_j w_j,  w_j = exp(s_j - maximum),  j <= pos (and j > pos - window)
        s_j = scale * q . K_j,  with a cap: cap * tanh(scale * q . K_j / cap)   (Gemma 2, arXiv:2408.00118)
        with sinks: out = sum_j w_j V_j / (exp(sink - maximum) + sum_j w_j), maximum over the sink also (gpt-oss,
        arXiv:2508.10925)

    q                    f32 [tok][head][d_head] after rope
    keys, values         the caches, which contain the batch's own keys and values; LATENT_ATTENTION reads keys only,
                         whose last d_value values are the values
    table, table_stride  i64 [sequence][page]; bytes from row to row
    out                  f32 [tok][head][d_value]; d_value <= d_head; may be q if they are equal
    scratch              scratch_bytes for each thread: see `attention_scratch_bytes`
    window               0: none; otherwise a query sees the last `window` positions, itself included. Negative: windows
                         begin at multiples of their size w = -window: a query at p sees the positions from p // w * w
                         on (chunked attention, Llama 4)
    prefix               pages before the sequence that all queries see also, whatever the window, in kernels with it:
                         one chunk, the first. Their numbers stand before each row of the table
    own                  i64 [tok]: position of the token, from which its window counts, if `pos` is the last position
                         that it sees, which may be later (pictures); 0: it is `pos`
    cap                  0: none
    sinks                f32 [head], logits; 0: none. With `states`: f32 [tok][head] in rows with their stride
    states, profiles     of the bias by distance: distance_bias.py; only in kernels with it
    k_block, v_block     blocks of the Walsh-Hadamard transform in whose basis keys and values are; 0: none
    records              room for n_records, see `chunk_records`; written for `attention_merge`

    Reference: tests/reference/attention.py on keys and values read back from the cache. Error: 5e-6 of max(1, |out|)
    (d_head 128, scores of deviation 3; 1e-6 at d_head 16).
    """
    n_tok = ldi(ctl)
    mine = scratch + tid * scratch_bytes
    row = row_size(d_head, EIGHTH, SCALES)
    vrow = row if LATENT else row_size(d_value, V_EIGHTH, V_SCALES)
    factor, limit = scale * _LOG2E if cap == 0 else scale / cap, cap * _LOG2E
    aligned, window = window < 0, abs(window)
    room = n_records - n_tok * n_head if PREFIXED else n_records
    n_chunk = shared_chunks(n_tok, pos, n_head, n_kv, window, room, nth)
    n_part = n_chunk + (PREFIXED and n_chunk > 0)
    if window == 0:
        window = EVERYTHING
    reach = window
    group = n_head // n_kv
    rows = TILE_ROWS if d_head <= WIDE_HEAD else TILE_ROWS // 2
    run = max(1, min(MOST_RUN, n_tok * n_kv * n_part // (RUNS * nth)))
    n_run = (n_part + run - 1) // run
    per_tile = heads_of_tile(group, rows, max(1, n_tok * n_kv * max(1, n_run)), nth)
    parts = (group + per_tile - 1) // per_tile
    tile = rows // per_tile
    if n_chunk == 0:
        tile = min(tile, max(1, n_tok * n_kv * parts // (4 * nth)))
    n_tile = (n_tok + tile - 1) // tile
    total = n_tile * n_kv * parts * max(1, n_run)
    while True:
        i = atomic_add(counter, 1)
        if i >= total:
            break
        chunk, h_kv, h0, heads, t = place_of_item(i, n_run, n_kv, parts, group, per_tile, n_tile, tile)
        end = min(n_tok, t + tile)
        while t < end:
            s = ldi(slot + 8 * t)
            start = first_seen(ldi((own if own else pos) + 8 * t), window, aligned)
            u = end_of_run(t, end, slot, pos, start, window, aligned)
            final = ldi(pos + 8 * (u - 1))
            if aligned:  # all of these tokens see positions from `start` on
                reach = ~start
            c0, c1 = start // CHUNK, final // CHUNK + 1
            first = c0
            if PREFIXED:
                c0 -= 1
            if n_chunk > 0:
                c0 += chunk * run
                c1 = min(c1, c0 + run)
            ahead = min(final, c1 * CHUNK - 1)
            n_row = (u - t) * heads
            micro = rows_at_once(n_row)
            n_pad = (n_row + micro - 1) // micro * micro
            if c0 < c1:
                enter_queries(
                    mine, n_row, n_pad, heads, q, ldq, t, h0, d_head, factor, pos, own, sinks, ldstates, k_block
                )
                round_queries(mine, n_row, d_head)
            k, pages = keys + h_kv * PAGE * row, table + s * table_stride
            v = k if LATENT else values + h_kv * PAGE * vrow
            for c in range(c0, c1):
                begin_chunk(mine, n_pad, d_head)
                begin, b1, near = max(start, c * CHUNK) // BLOCK * BLOCK, min(final + 1, (c + 1) * CHUNK), reach
                if PREFIXED and c < first:
                    begin, b1, near = -prefix * PAGE, 0, EVERYTHING
                for b0 in range(begin, b1, BLOCK):
                    page, place = ldi(pages + b0 // PAGE * 8), b0 % PAGE
                    kb, vb = k + (page * n_kv * PAGE + place) * row, v + (page * n_kv * PAGE + place) * vrow
                    seen = min(final - b0, BLOCK - 1)
                    if n_row <= IN_REGISTERS:
                        later = ldi(pages + min(b0 + BLOCK, ahead) // PAGE * 8)
                        soon = later * n_kv * PAGE + (place + BLOCK) % PAGE
                        direct_scores(mine, n_row, kb, k + soon * row, row, d_head, seen)
                        lean(mine, n_row, heads, t, h0, d_head, b0, states, ldstates, profiles)
                        soften(mine, n_row, d_head, b0, near, limit)
                        direct_values(mine, n_row, vb, v + soon * vrow, vrow, d_head, d_value, b0, near)
                    else:
                        unpacked = unpack(mine, kb, vb, row, vrow, d_head, d_value, seen)
                        unpacked_scores(mine, n_row, micro, unpacked, d_head, b0, seen)
                        lean(mine, n_row, heads, t, h0, d_head, b0, states, ldstates, profiles)
                        soften(mine, n_row, d_head, b0, near, limit)
                        unpacked_values(mine, n_row, micro, unpacked, d_head, d_value, b0, near, seen)
                if PREFIXED and c < first:
                    leave_prefix(mine, n_row, heads, t, h0, d_head, d_value, records, n_head, n_chunk, n_tok)
                    continue
                leave_chunk(
                    mine, c, n_row, heads, t, h0, d_head, d_value, pos, own, window, aligned, records, n_head, n_chunk
                )
            if n_chunk == 0:
                leave_rows(mine, n_row, heads, t, h0, d_head, d_value, out, ldout, v_block)
            t = u


@kernel
def attention_merge(
    a, tid, nth, *, ctl: Address, pos: Address, out: Address, ldout: Int, n_head: Int, n_kv: Int, d_value: Int,
    scratch: Address, scratch_bytes: Int, window: Int = 0, records: Address, n_records: Int, sinks: Address = 0,
    prefix: Int = 0, v_block: Int = 0, own: Address = 0, states: Address = 0, ldstates: Int = 0,
):  # fmt: skip
    """Merge the chunks of `attention` if they were shared among threads; otherwise do nothing. Fields as there."""
    n_tok = ldi(ctl)
    aligned, window = window < 0, abs(window)
    room = n_records - n_tok * n_head if prefix else n_records
    n_chunk = shared_chunks(n_tok, pos, n_head, n_kv, window, room, nth)
    if n_chunk > 0:
        if window == 0:
            window = EVERYTHING
        total = scratch + tid * scratch_bytes
        size = HEAD + (d_value + 15) // 16 * 64
        n = n_tok * n_head
        for j in range(n * tid // nth, n * (tid + 1) // nth):
            t = j // n_head
            p = ldi(pos + 8 * t)
            clear_record(total, d_value)
            if sinks:
                start_with_sink(total, sinks + t * ldstates, j - t * n_head)
            if prefix:
                merge_record(total, records + (n * n_chunk + j) * size, d_value)
            first = first_seen(ldi(own + 8 * t) if own else p, window, aligned)
            for c in range(first // CHUNK, p // CHUNK + 1):
                merge_record(total, records + (j * n_chunk + c % n_chunk) * size, d_value)
            leave_row(total, out + t * ldout + (j - t * n_head) * d_value * 4, d_value, v_block)


# Latent attention with 8 lanes always unpacks, a part at a time: values must be transposed out of the keys, and a tile
# holds all heads. 16 lanes have registers to transpose in, and a second-level cache with room for unpacked blocks.
_WIDE = LANES == 16
_LATENT_ROWS = 64  # up to this many rows, transposing in registers is faster


@cache
def attention_kernel(
    keys: KVType, values: KVType, *, latent: bool = False, integer: bool = False, leaning: bool = False,
    prefixed: bool = False,
) -> Kernel:  # fmt: skip
    """`attention` for these types. latent: the values are parts of the keys; integer: with integer products, if
    `has_integer_form`; leaning: with a bias by distance, if not latent; prefixed: with a prefix, if not latent."""
    sizes: dict[str, Any] = {"EIGHTH": keys.eighth, "SCALES": keys.group}
    if latent:
        return variant(
            attention,
            f"latent_attention_{keys.name}",
            LATENT=True,
            IN_REGISTERS=_LATENT_ROWS if _WIDE else 0,
            WIDE_HEAD=1 << 20,  # tiles are whole
            direct_scores=make_direct_scores(keys),
            direct_values=make_few_values(keys),
            unpack=make_unpack_keys(keys) if _WIDE else left_packed,
            unpacked_scores=unpacked_scores if _WIDE else make_latent_scores(keys),
            unpacked_values=unpacked_values if _WIDE else make_latent_values(keys),
            **sizes,
        )
    name = keys.name if keys is values else f"{keys.name}_{values.name}"
    sizes |= {"V_EIGHTH": values.eighth, "V_SCALES": values.group}
    if leaning:
        name, sizes["lean"] = f"leaning_{name}", add_distance_bias
    if prefixed:
        name, sizes["PREFIXED"] = f"prefixed_{name}", True
    if integer:
        return variant(
            attention,
            f"attention_codes_{name}",
            IN_REGISTERS=1 << 30,
            round_queries=make_round_queries(keys),
            direct_scores=make_code_scores(keys),
            direct_values=make_code_values(values),
            unpack=left_packed,
            **sizes,
        )
    return variant(
        attention,
        f"attention_{name}",
        direct_scores=make_direct_scores(keys),
        direct_values=make_direct_values(values),
        unpack=make_unpack(keys, values),
        **sizes,
    )
