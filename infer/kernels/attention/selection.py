"""Choose the rows that a token attends to: an indexer scores entries, each for a group of `every` tokens, and the best
entries are written as the list that attention reads (listed.py). Lightning indexer, DeepSeek-V3.2.

    ctl, pos, slot  batch control: see kv.py
    entry e         stands for tokens e * every .. (e + 1) * every - 1; the last of these and later tokens see it
    scores          f32 [tok][entry], rows `score_stride` bytes apart, each with room for a multiple of 16

A token that sees at most `n_best` entries gets them all; its scores are then neither computed nor read. The choice for
a token depends only on its own scores and position.
"""

from ..build.jit import Kernel, device, kernel, variant
from ..emit.emitter import F32, I32, I64, Emitter, Value, atomic_add, const, emit, ldi, sti, sti32
from ..emit.fields import Address, Counter, Float, Int
from .attention import WIDE_HEAD, end_of_run
from .attention_products import unpacked_scores
from .attention_tile import BLOCK, TILE_ROWS, Tile, enter_row, rows_at_once, tile_bytes
from .kv import F32_KV, K_LANES, PAGE, ROW_TYPES, KVType, row_size
from .kv_read import VECTOR
from .listed import make_fetch, tile_keys

PART = 256  # entries that one work item scores
DIGITS = 256  # values of a digit of `order_of`
assert PART % BLOCK == 0


def index_scratch_bytes(n: int) -> int:
    """Scratch of `index_scores` for one thread: a tile."""
    return tile_bytes(n)


def choice_scratch_bytes() -> int:
    """Scratch of `choose_rows` for one thread: the number of scores with each digit."""
    return 8 * DIGITS


def score_row_bytes(n_ctx: int, every: int) -> int:
    """Bytes from row to row of the scores, for contexts of n_ctx tokens."""
    return 4 * (-(-(n_ctx // every) // K_LANES) * K_LANES)


@emit("i64,i64,i64,i64,i64,i64,i64,i64->void", apart=True)
def add_heads(e: Emitter, tile, d, r, n_head, weights, target, n, more):
    """target[j] = (target[j] if `more` else 0) + sum over heads h of max(0, score[h][j]) * weights[h], for j < n
    rounded up to 16. The scores are in rows r .. r + n_head - 1 of the tile.

    weights: f32 [n_head]; 0: all are 1. Heads ascending.
    """
    b, zero = e.b, const(VECTOR, 0.0)
    at = Tile(e, tile, d)
    goes_on, weighs = (b.icmp_signed("!=", x, const(I64, 0)) for x in (more, weights))

    def group(j: Value, _: list[Value]) -> None:
        place = b.shl(j, const(I64, 2))
        start = b.select(goes_on, e.load(VECTOR, target, place), zero)

        def positive(h: Value) -> Value:
            x = e.load(VECTOR, b.add(at.weights(b.add(r, h)), place))
            return b.select(b.fcmp_unordered(">", x, zero), x, zero)  # a NaN stays

        def weighted(h: Value, total: list[Value]) -> list[Value]:
            w = e.load(F32, weights, b.shl(h, const(I64, 2)))
            return [e.fma(positive(h), e.splat(w, 16), total[0])]

        with b.if_else(weighs) as (with_weights, without):
            with with_weights:
                e.store(e.loop(n_head, weighted, [start])[0], target, place)
            with without:
                e.store(e.loop(n_head, lambda h, total: [b.fadd(total[0], positive(h))], [start])[0], target, place)

    e.loop(n, group, step=K_LANES)


fetch, EIGHTH, SCALES = make_fetch(F32_KV), F32_KV.eighth, F32_KV.group


@device
def seen_entries(pos, t, every):
    """Number of entries that token t of the batch sees."""
    return (ldi(pos + 8 * t) + 1) // every


@kernel
def index_scores(
    a, tid, nth, *, ctl: Address, pos: Address, slot: Address, q: Address, ldq: Int, weights: Address = 0,
    ldweights: Int = 0, keys: Address, table: Address, table_stride: Int, every: Int, n_head: Int, n: Int,
    n_best: Int, scale: Float, scores: Address, score_stride: Int, scratch: Address, scratch_bytes: Int,
    counter: Counter,
):  # fmt: skip
    """Score the entries that each token sees, for tokens that see more than n_best. One kernel per type of the store:
    see INDEX_SCORES.

        score[t][e] = sum over heads h of weights[t][h] * max(0, scale * q[t][h] . key[e])

    q        f32 [tok][head][n]
    weights  f32 [tok][head]; 0: all are 1
    keys     a store with one row of n values per `every` tokens (row_store.py)
    scores   written: see the head of this file

    Sums over n as in attention, then over heads ascending. Reference: tests/reference/selection.py on keys read back
    from the store. Error: 2e-6 of the sum over heads of |weights * scale| * |q| * |key|.
    """
    n_tok, mine = ldi(ctl), scratch + tid * scratch_bytes
    size, per_page = row_size(n, EIGHTH, SCALES), (PAGE + every - 1) // every
    rows = TILE_ROWS if n <= WIDE_HEAD else TILE_ROWS // 2
    heads = min(n_head, rows)
    tile, most = max(1, rows // n_head), 0
    for t in range(n_tok):
        most = max(most, seen_entries(pos, t, every))
    n_part = (most + PART - 1) // PART if most > n_best else 0
    total = (n_tok + tile - 1) // tile * n_part
    while True:
        i = atomic_add(counter, 1)
        if i >= total:
            break
        t, e0 = i // n_part * tile, i % n_part * PART
        end = min(n_tok, t + tile)
        while t < end:
            u = end_of_run(t, end, slot, pos, 0, 0, 0)
            last, pages = seen_entries(pos, u - 1, every), table + ldi(slot + 8 * t) * table_stride
            last = min(last, e0 + PART) if last > n_best else 0
            for h0 in range(0, n_head if e0 < last else 0, heads):
                n_each = min(heads, n_head - h0)
                n_row = (u - t) * n_each
                micro = rows_at_once(n_row)
                n_pad = (n_row + micro - 1) // micro * micro
                for r in range(n_pad):
                    w, h = t + r // n_each, h0 + r % n_each
                    if r < n_row:
                        enter_row(mine, r, q + w * ldq + h * n * 4, n, scale, BLOCK - 1, 0)
                    else:
                        enter_row(mine, r, q, n, scale, -1, 0)
                for b0 in range(e0, last, BLOCK):
                    there = min(last - b0, BLOCK)
                    for j in range(there):
                        p = (b0 + j + 1) * every - 1
                        key = keys + (ldi(pages + p // PAGE * 8) * per_page + p % PAGE // every) * size
                        fetch(mine, j, key, key, n, 0)
                    unpacked_scores(mine, n_row, micro, tile_keys(mine, n), n, 0, there - 1)
                    for w in range(t, u):
                        by = weights + w * ldweights + 4 * h0 if weights else 0
                        target = scores + w * score_stride + 4 * b0
                        add_heads(mine, n, (w - t) * n_each, n_each, by, target, there, h0)
            t = u


@emit("i64->i64")
def order_of(e: Emitter, address):
    """An integer below 2^32 that sorts as the f32 at `address` does; 0 and -0 give the same."""
    b = e.b
    x = b.bitcast(b.fadd(e.load(F32, address), const(F32, 0.0)), I32)
    negative = b.icmp_signed("<", x, const(I32, 0))
    return b.zext(b.xor(x, b.select(negative, const(I32, -1), const(I32, -(1 << 31)))), I64)


@device
def weakest_chosen(scores, n, n_best, counts):
    """(`order_of` the smallest of the n_best largest of n scores, how many of these n_best have this order)."""
    found, left = 0, n_best
    for shift in range(24, -1, -8):
        for d in range(DIGITS):
            sti(counts + 8 * d, 0)
        for i in range(n):
            order = order_of(scores + 4 * i)
            if order >> (shift + 8) == found:
                place = counts + 8 * (order >> shift & (DIGITS - 1))
                sti(place, ldi(place) + 1)
        d = DIGITS - 1
        while ldi(counts + 8 * d) < left:
            left -= ldi(counts + 8 * d)
            d -= 1
        found = found << 8 | d
    return found, left


@kernel
def choose_rows(
    a, tid, nth, *, ctl: Address, pos: Address, every: Int, n_best: Int, scores: Address = 0, score_stride: Int = 0,
    as_entries: Int = 0, window: Int = 0, lists: Address, list_stride: Int, counts: Address, scratch: Address,
    scratch_bytes: Int, counter: Counter,
):  # fmt: skip
    """Write the list of each token: of the entries that it sees, the n_best with the largest scores (ties: the lower
    index), or all if there are at most n_best.

    n_best         0: all entries, whatever their number
    as_entries     0: the list has the tokens of the chosen entries, then the tokens after the last whole group, up to
                   the token itself. Otherwise the entries themselves, as ~e, then the last `window` tokens
    lists, counts  written: see listed.py; bytes from list to list
    scratch        scratch_bytes for each thread: see `choice_scratch_bytes`

    Reference: tests/reference/selection.py, the same lists.
    """
    n_tok, digits = ldi(ctl), scratch + tid * scratch_bytes
    while True:
        t = atomic_add(counter, 1)
        if t >= n_tok:
            break
        p, n, row, out = (
            ldi(pos + 8 * t),
            seen_entries(pos, t, every),
            scores + t * score_stride,
            lists + t * list_stride,
        )
        chosen = n
        if 0 < n_best < n:
            chosen = n_best
            least, left = weakest_chosen(row, n, n_best, digits)
        k = 0
        for i in range(n):
            if chosen < n:
                order = order_of(row + 4 * i)
                if order < least or (order == least and left == 0):
                    continue
                left -= order == least
            if as_entries:
                sti32(out + 4 * (chosen - 1 - k), -1 - i)
                k += 1
            else:
                for j in range(i * every, (i + 1) * every):
                    sti32(out + 4 * k, j)
                    k += 1
        for j in range(max(0, p + 1 - window) if as_entries else n * every, p + 1):
            sti32(out + 4 * k, j)
            k += 1
        sti(counts + 8 * t, k)


def _variant(kind: KVType) -> Kernel:
    return variant(
        index_scores, f"index_scores_{kind.name}", fetch=make_fetch(kind), EIGHTH=kind.eighth, SCALES=kind.group
    )


INDEX_SCORES: dict[str, Kernel] = {kind.name: _variant(kind) for kind in ROW_TYPES.values()}
