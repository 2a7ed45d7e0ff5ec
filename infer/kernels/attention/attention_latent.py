"""Values that are the last part of keys, as latent attention has them: taken out of the keys of a block.

Keys have positions in the lanes (kv.py), the sums of outputs have values in the lanes. So a block is transposed once,
when it is unpacked, and then met by all rows of a tile.
"""

from typing import Any

from ..emit.emitter import F32, I64, Value, Vec, const, emit
from .attention_products import unpack_keys
from .attention_tile import SLAB, Tile
from .kv import F32_KV, K_LANES, KVType

SIDE = 8  # of the squares that are transposed in registers


def _take(at: Tile, g: Value, keys: Value, d: Value, last: Value | None) -> None:
    """Values d .. d + SIDE - 1 of group g of 16 positions, whose keys are f32 [d_pad][16] from the first value on.

    last: what is read in place of values beyond it; None: there are none.
    """
    e, b = at.e, at.e.b
    target = b.add(at.values, b.mul(b.ashr(d, const(I64, 4)), const(I64, SLAB)))
    target = b.add(target, b.add(b.shl(g, const(I64, 10)), b.shl(b.and_(d, const(I64, 15)), const(I64, 2))))
    places = [b.add(d, const(I64, i)) for i in range(SIDE)]
    if last is not None:
        places = [e.intr("smin", place, last) for place in places]
    places = [b.shl(place, const(I64, 6)) for place in places]
    for half in range(0, K_LANES, SIDE):
        rows = [e.load(Vec(F32, SIDE), b.add(keys, place), 4 * half) for place in places]
        for i, column in enumerate(e.transpose8(rows)):
            e.store(column, target, 64 * (half + i))


def make_unpack_keys(kind: KVType) -> Any:
    @emit("i64,i64,i64,i64,i64,i64,i64,i64->i64", apart=True)
    def unpack(e, tile, k, v, row, vrow, d_head, d_value, seen):
        """As `unpack` of attention_products.py, with the last d_value values of keys for values; v is not read."""
        b = e.b
        at = Tile(e, tile, d_head)
        size, first = b.shl(row, const(I64, 4)), b.shl(b.sub(d_head, d_value), const(I64, 6))
        whole = b.and_(d_value, const(I64, -SIDE))

        def group(g: Value, _: list[Value]) -> None:
            keys = b.add(k, b.mul(g, size))
            if kind is not F32_KV:
                unpack_keys(at, kind, keys, g)
                keys = at.keys_of(g)
            keys, last = b.add(keys, first), b.sub(d_value, const(I64, 1))
            e.loop(whole, lambda d, _: _take(at, g, keys, d, None), step=SIDE)
            e.loop(d_value, lambda d, _: _take(at, g, keys, d, last), start=whole, step=SIDE)

        e.loop(b.add(b.ashr(seen, const(I64, 4)), const(I64, 1)), group)
        return at.keys if kind is not F32_KV else k

    return unpack
