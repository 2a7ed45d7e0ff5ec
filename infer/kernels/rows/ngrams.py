"""Embeddings of n-grams of tokens: hashes of the last tokens as rows of a table, and the gates with which each residual
stream takes them."""

from ..build.jit import kernel
from ..emit.emitter import F32, I64, Emitter, Value, Vec, const, emit, ldf, ldi, stf, sti
from ..emit.fields import Address, Fields, Float, Int
from ..recurrent.states import GROUP, each_group, load_lanes, sigmoid, store_lanes

SMALLEST_GATE = 1e-6  # minimum of |key . query * scale| before the square root


@emit("i64->f32")
def _float(e, x):
    return e.b.sitofp(x, F32)


@emit("f32->i64")
def _integer(e, x):
    return e.b.fptosi(x, I64)


@kernel
def numbered_tokens(a, tid, nth, *, count: Address, tokens: Address, out: Address, ldout: Int):
    """out[t] = tokens[t] + 1 as f32, exact below 2^24; 0 stays free to mean "no token". tokens i64 [tok]."""
    for t in range(tid, ldi(count), nth):
        stf(out + t * ldout, _float(ldi(tokens + 8 * t) + 1))


@kernel
def hash_ngrams(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, n_gram: Int, n_each: Int, end: Int, factors: Address,
    sizes: Address, offsets: Address, rows: Address,
):  # fmt: skip
    """rows[t][n_each * (g - 2) + j] = m mod sizes[...] + offsets[...] for n-grams of g = 2 .. n_gram tokens,
    m = t_0 * factors[0] xor .. xor t_(g-1) * factors[g-1], in 64 bits.

    t_i is the token i positions earlier, or `end` if that token, or one between, is `end` or does not exist.

    x               f32 [tok][n_gram], from `numbered_tokens`, the latest last; 0: no token
    factors         i64 [n_gram]
    sizes, offsets  i64 [(n_gram - 1) * n_each], sizes positive
    rows            i64 [tok][(n_gram - 1) * n_each]

    Reference: tests/reference/qwen4_exp.py, the same numbers.
    """
    n_head = (n_gram - 1) * n_each
    for t in range(tid, ldi(count), nth):
        last = x + t * ldx + 4 * (n_gram - 1)
        mixed = (_integer(ldf(last)) - 1) * ldi(factors)
        ended = 0
        for i in range(1, n_gram):
            token = _integer(ldf(last - 4 * i)) - 1
            if ended or token < 0 or token == end:
                token, ended = end, 1
            mixed = mixed ^ (token * ldi(factors + 8 * i))
            for j in range((i - 1) * n_each, i * n_each):
                sti(rows + 8 * (t * n_head + j), mixed % ldi(sizes + 8 * j) + ldi(offsets + 8 * j))


@kernel
def sum_ngrams(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, n_gram: Int, n_each: Int, end: Int, factors: Address,
    sizes: Address, offsets: Address, rows: Address,
):  # fmt: skip
    """As `hash_ngrams`, with m = t_0 + t_1 * factors[...][1] + .. + t_(g-1) * factors[...][g-1].

    t_i is 0 if that token, or one between, is `end` or does not exist; `end` itself is a token like others as t_0.

    factors  i64 [(n_gram - 1) * n_each][n_gram], each less than its part's size
    """
    n_part = (n_gram - 1) * n_each
    for t in range(tid, ldi(count), nth):
        last, own = x + t * ldx + 4 * (n_gram - 1), rows + 8 * t * n_part
        for j in range(n_part):
            sti(own + 8 * j, _integer(ldf(last)) - 1)
        ended = 0
        for i in range(1, n_gram):
            token = _integer(ldf(last - 4 * i)) - 1
            if ended or token < 0 or token == end:
                token, ended = 0, 1
            for j in range((i - 1) * n_each, n_part):
                sti(own + 8 * j, ldi(own + 8 * j) + token * ldi(factors + 8 * (j * n_gram + i)))
        for j in range(n_part):
            sti(own + 8 * j, ldi(own + 8 * j) % ldi(sizes + 8 * j) + ldi(offsets + 8 * j))


@emit("i64,i64,i64->void")
def _gate_stream(e: Emitter, a, t, s):
    """The gate of one residual stream of one token (see `gate_streams`). Products are summed in 16 lanes, which are
    halved at the end.
    """
    b, f, ty, zero = e.b, Fields(e, a, gate_streams), Vec(F32, GROUP), const(I64, 0)
    first = b.mul(s, f.n)
    key, query, out = (f.rows(name, t, first).at(zero) for name in ("key", "query", "out"))
    value = f.rows("value", t, zero).at(zero)

    def product(o: Value, left: Value, sums: list[Value]) -> list[Value]:
        (k,), (q,) = (load_lanes(e, e.at(p, o), left, 1) for p in (key, query))
        return [e.fma(k, q, sums[0])]

    (sums,) = each_group(e, f.n, product, [const(ty, 0.0)])
    total = b.fmul(e.halving_sum(sums), f.scale)
    size = e.intr("sqrt", e.intr("maxnum", e.intr("fabs", total), const(F32, SMALLEST_GATE)))
    signed = e.intr("copysign", size, total)
    signed = b.select(b.fcmp_unordered("==", total, const(F32, 0.0)), total, signed)  # 0 has no sign, NaN stays
    share = sigmoid(e, e.splat(signed, GROUP))

    def gated(o: Value, left: Value, _: list[Value]) -> None:
        (v,) = load_lanes(e, e.at(value, o), left, 1)
        store_lanes(e, [b.fmul(v, share)], e.at(out, o), left)

    each_group(e, f.n, gated)


@kernel
def gate_streams(
    a, tid, nth, *, count: Address, key: Address, ldkey: Int, query: Address, ldquery: Int, value: Address,
    ldvalue: Int, out: Address, ldout: Int, n_stream: Int, n: Int, scale: Float,
):  # fmt: skip
    """out[t][s] = sigmoid(sign(g) sqrt(max(|g|, 1e-6))) * value[t], g = scale * key[t][s] . query[t][s].

    key, query, out  f32 [tok][stream][n]
    value            f32 [tok][n]

    Reference: tests/reference/qwen4_exp.py. Error: 1e-6 of |value|, plus, near g = 0, the effect through the square
    root of 1e-6 of |key| |query|.
    """
    for i in range(tid, ldi(count) * n_stream, nth):
        _gate_stream(a, i // n_stream, i % n_stream)
