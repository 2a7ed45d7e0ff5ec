"""Attention of each token over its own list of rows, for indexed and compressed attention: the cost depends on the
length of the list, not on the length of the context.

    lists   i32 [tok][n]    ascending; an item x >= 0 is the row of token x of the sequence in the first store; x < 0 is
                            row ~x of the second store, which has one row per `every` tokens (row_store.py)
    counts  i64 [tok]       number of items in each list

A block of BLOCK items is fetched into the tile (attention_tile.py), then multiplied with all heads of a group. The
order of a query's sums follows from its list alone, in chunks of CHUNK items as in attention.py, so neither the other
tokens of the batch nor the number of threads changes a bit.
"""

from typing import Any

import numpy as np

from ..build.jit import Kernel, kernel, variant
from ..emit.elementary import LOG2E
from ..emit.emitter import I64, Emitter, Value, atomic_add, const, emit, ldi, ldi32
from ..emit.fields import Address, Counter, Float, Int
from .attention import CHUNK, WIDE_HEAD, start_with_sink
from .attention_products import unpacked_scores, unpacked_values
from .attention_tile import (
    BLOCK,
    SLAB,
    TILE_ROWS,
    Tile,
    begin_chunk,
    end_chunk,
    enter_row,
    heads_of_tile,
    leave_row,
    merge_record,
    rows_at_once,
    soften,
    total_record,
)
from .kv import F32_KV, K_LANES, PAGE, ROW_TYPES, KVType, row_size
from .kv_read import NO_OFFSETS, ValueReader, read_values, rounded_up

_LOG2E, _UNCAPPED = np.float32(LOG2E), np.float32(0.0)


def make_fetch(kind: KVType) -> Any:
    """The function that reads a key and a value of a store and writes them, as f32, into the tile."""

    def row(e: Emitter, source: Value, n: Value, take: Any) -> None:
        reader = ValueReader(e, kind, n, blocks=False)

        def part(d: Value, _: list[Value]) -> None:
            take(d, read_values(e, kind, reader.addresses(source, d), NO_OFFSETS, 1)[0])

        e.loop(rounded_up(e, n), part, step=16)

    @emit("i64,i64,i64,i64,i64,i64->void", apart=True)
    def fetch(e, tile, j, key, value, d_head, d_value):
        """Write item j of a block into the tile: the key and the value at these addresses."""
        b = e.b
        at = Tile(e, tile, d_head)
        group, lane = b.ashr(j, const(I64, 4)), b.and_(j, const(I64, K_LANES - 1))
        keys = b.add(at.keys, b.add(b.mul(group, b.shl(at.d_pad, const(I64, 6))), b.shl(lane, const(I64, 2))))
        values = b.add(at.values, b.shl(j, const(I64, 6)))

        def spread(d: Value, x: Value) -> None:
            place = b.add(keys, b.shl(d, const(I64, 6)))
            for i in range(16):
                e.store(e.lane(x, i), place, 64 * i)

        row(e, key, d_head, spread)
        row(e, value, d_value, lambda d, x: e.store(x, values, b.mul(b.ashr(d, const(I64, 4)), const(I64, SLAB))))

    return fetch


@emit("i64,i64->i64")
def tile_keys(e, tile, d_head):
    """Address of the keys of a block in the tile."""
    return Tile(e, tile, d_head).keys


fetch, EIGHTH, SCALES = make_fetch(F32_KV), F32_KV.eighth, F32_KV.group


@kernel
def listed_attention(
    a, tid, nth, *, ctl: Address, slot: Address, q: Address, ldq: Int, lists: Address, list_stride: Int,
    counts: Address, keys: Address, values: Address, entry_keys: Address = 0, entry_values: Address = 0, every: Int = 1,
    table: Address, table_stride: Int, out: Address, ldout: Int, n_head: Int, n_kv: Int, d_head: Int, d_value: Int,
    scale: Float, scratch: Address, scratch_bytes: Int, counter: Counter, sinks: Address = 0,
):  # fmt: skip
    """Attention with grouped heads over listed rows. One kernel per type of the store: see LISTED.

        out = sum_j w_j V_j / (exp(sink) + sum_j w_j),  w_j = exp(scale * q . K_j),  j in the token's list

    q                          f32 [tok][head][d_head]
    lists, counts              see the head of this file; bytes from list to list
    keys, values               the first store: rows of n_kv heads; may be the same
    entry_keys, entry_values   the second store, with one row per `every` tokens; 0: no second store
    table, table_stride        i64 [sequence][page]; bytes from row to row
    out                        f32 [tok][head][d_value], d_value <= d_head; NaN for an empty list without a sink
    scratch                    scratch_bytes for each thread: see `attention_scratch_bytes`
    sinks                      f32 [head], logits; 0: none

    Reference: tests/reference/attention.py on the rows that are listed. Error: as `attention`.
    """
    n_tok = ldi(ctl)
    mine = scratch + tid * scratch_bytes
    row, vrow = row_size(d_head, EIGHTH, SCALES), row_size(d_value, EIGHTH, SCALES)
    per_page = (PAGE + every - 1) // every
    factor = scale * _LOG2E
    group = n_head // n_kv
    rows = TILE_ROWS if d_head <= WIDE_HEAD else TILE_ROWS // 2
    per_tile = heads_of_tile(group, rows, max(1, n_tok * n_kv), nth)
    parts = (group + per_tile - 1) // per_tile
    total = n_tok * n_kv * parts
    while True:
        i = atomic_add(counter, 1)
        if i >= total:
            break
        t, rest = i // (n_kv * parts), i % (n_kv * parts)
        h_kv = rest // parts
        h0 = h_kv * group + rest % parts * per_tile
        n_row = min(h0 + per_tile, (h_kv + 1) * group) - h0
        pages, items, n = table + ldi(slot + 8 * t) * table_stride, lists + t * list_stride, ldi(counts + 8 * t)
        micro = rows_at_once(n_row)
        n_pad = (n_row + micro - 1) // micro * micro
        for r in range(n_pad):
            if r < n_row:
                enter_row(mine, r, q + t * ldq + (h0 + r) * d_head * 4, d_head, factor, n - 1, 0)
                if sinks:
                    start_with_sink(total_record(mine, r, d_head), sinks, h0 + r)
            else:
                enter_row(mine, r, q, d_head, factor, -1, 0)
        for c in range(0, n, CHUNK):
            begin_chunk(mine, n_pad, d_head)
            for b0 in range(c, min(n, c + CHUNK), BLOCK):
                seen = min(n - b0, BLOCK) - 1
                for j in range(seen + 1):
                    x = ldi32(items + 4 * (b0 + j))
                    if x >= 0:
                        place = (ldi(pages + x // PAGE * 8) * PAGE + x % PAGE) * n_kv + h_kv
                        fetch(mine, j, keys + place * row, values + place * vrow, d_head, d_value)
                    else:
                        p = (-x) * every - 1
                        place = (ldi(pages + p // PAGE * 8) * per_page + p % PAGE // every) * n_kv + h_kv
                        fetch(mine, j, entry_keys + place * row, entry_values + place * vrow, d_head, d_value)
                unpacked_scores(mine, n_row, micro, tile_keys(mine, d_head), d_head, b0, seen)
                soften(mine, n_row, d_head, b0, 1 << 40, _UNCAPPED)
                unpacked_values(mine, n_row, micro, 0, d_head, d_value, b0, 1 << 40, seen)
            for r in range(n_row):
                merge_record(total_record(mine, r, d_head), end_chunk(mine, r, d_head), d_value)
        for r in range(n_row):
            leave_row(total_record(mine, r, d_head), out + t * ldout + (h0 + r) * d_value * 4, d_value, 0)


def _variant(kind: KVType) -> Kernel:
    return variant(
        listed_attention, f"listed_attention_{kind.name}", fetch=make_fetch(kind), EIGHTH=kind.eighth, SCALES=kind.group
    )


LISTED: dict[str, Kernel] = {kind.name: _variant(kind) for kind in ROW_TYPES.values()}
