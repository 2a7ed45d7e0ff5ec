"""Rows that layers keep in the pages of keys and values (memory/rows.py): layout, and the kernel that writes them.

    rows  [page][row][head], each as a row of V: see kv.py

A sequence has one row for each group of `every` tokens, counted from its beginning. The row belongs to the group's last
token, at a position p where p + 1 is a multiple of `every`. It is row p % PAGE // every of the page of p.
"""

from ..build.jit import Kernel, kernel, variant
from ..emit.emitter import ldi
from ..emit.fields import Address, Int
from .kv import F32_KV, GROUP, PAGE, ROW_TYPES, KVType, row_size
from .kv_store import make_encode_row, pad_row

encode_row, EIGHTH, SCALES = make_encode_row(F32_KV), F32_KV.eighth, F32_KV.group


def row_scratch_bytes(n: int) -> int:
    """Scratch of `row_store` for one thread: a row as f32, padded to whole groups."""
    return 4 * (-(-n // GROUP) * GROUP)


@kernel
def row_store(
    a, tid, nth, *, ctl: Address, pos: Address, slot: Address, x: Address, ldx: Int, rows: Address, table: Address,
    table_stride: Int, n_head: Int, n: Int, every: Int, scratch: Address, scratch_bytes: Int,
):  # fmt: skip
    """Write the rows of tokens that complete a group of `every` into the store. One kernel per type: see ROW_STORE.

    ctl, pos, slot       batch control
    x                    f32 [tok][head][n]; rows of other tokens are not read
    rows                 the store, on 16-byte boundaries
    table, table_stride  i64 [sequence][page]; bytes from row to row
    scratch              scratch_bytes for each thread: see `row_scratch_bytes`

    Reference: tests/reference/attention.py `kept`, the same bits.
    """
    n_pad = (n + 15) // 16 * 16
    size, per_page = row_size(n, EIGHTH, SCALES), (PAGE + every - 1) // every
    padded = scratch + tid * scratch_bytes
    n_tok = ldi(ctl)
    for t in range(n_tok * tid // nth, n_tok * (tid + 1) // nth):
        p = ldi(pos + 8 * t)
        if (p + 1) % every == 0:
            page = ldi(table + ldi(slot + 8 * t) * table_stride + p // PAGE * 8)
            target = rows + (page * per_page + p % PAGE // every) * n_head * size
            for h in range(n_head):
                pad_row(x + t * ldx + h * n * 4, padded, n)
                encode_row(padded, target + h * size, n_pad)


def _variant(kind: KVType) -> Kernel:
    return variant(
        row_store, f"row_store_{kind.name}", encode_row=make_encode_row(kind), EIGHTH=kind.eighth, SCALES=kind.group
    )


ROW_STORE: dict[str, Kernel] = {kind.name: _variant(kind) for kind in ROW_TYPES.values()}
