"""The cache of keys and values: its types and its layout. kv_read.py reads it in kernels, kv_store.py writes it.

    ctl   i64 [3]         number of tokens, of segments, of outputs
    pos   i64 [tok]       index of the token in its sequence, called its position here
    slot  i64 [tok]       its sequence: a row of the table
    table i64 [slot][page]  the page in K and V that holds positions PAGE * page .. of a sequence; rows are
                            `table_stride` bytes
    K     [page][head_kv][PAGE / 16] blocks of 16 positions:  for each plane [element][16]
    V     [page][head_kv][PAGE / 16] blocks of 16 positions:  [16] rows of codes, then for each plane of scales and of
                            minima [group][16]

Sequences with a common prefix share its pages. K has positions in the lanes, so that a score needs no sum over lanes.
A row, of one head at one position, is for each plane [element]. It has d_pad values: d_head, the width of a head's
keys (of V: d_value), rounded up to a multiple of 16. With latent attention the last d_value values of a key are its
values: there is no V. The planes of a type:

    f32, f16, bf16   the values. f16: finite values beyond 65504 become +-65504: an infinity would make every later
                     token NaN, and a key so large decides the softmax alone anyway. Infinity and NaN are stored
                     unchanged
    q8_0             codes i8, then scales f16, one for each group of 32 values (the last may be shorter)
    q4_0, iq4_nl     codes of 4 bits, scales
    q4_1             codes of 4 bits, scales, minima f16
    q5_0, q5_1       codes as in q4_0 and q4_1, but with a plane of their fifth bits before the scales

Codes of 4 bits: a u32 holds 8 codes, code j from bit 8 j on (j < 4) or from bit 8 (j - 4) + 4 on. Fifth bits: bit j
of a u8. A value is the number itself, code * scale (q4_0, q5_0: code - 8 or - 16; iq4_nl: CODEBOOK[code]) or code *
scale + minimum, each exact in f32 or rounded once, so all kernels read the same numbers. A group with an infinity or
NaN has the scale NaN. All types of 8 bits and fewer hold keys and values in another basis: see `hadamard_block`.

Perplexity of the bundled model (BF16, 444 chunks of 256 tokens of its held-out text): f32 9.72039, f16 9.72037, with a
standard error of 0.10. So f16 is the default; f32 is for exact results. docs/quantize.md has the other types.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..build.jit import device

K_LANES = 16  # positions side by side in K
PAGE = 64  # positions of a page, a multiple of the block that attention reads at once
GROUP = 32  # values that share a scale
WORD = 8  # values whose codes of 4 bits share a u32
LARGEST_BLOCK_OF_VALUES = 64
CODEBOOK = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)  # of iq4_nl


@dataclass(frozen=True)
class Plane:
    """A part of a row: one element of `dtype` for every `per` values. `name`: suffix of the exported array."""

    name: str
    dtype: str
    per: int

    @cached_property
    def size(self) -> int:
        """Bytes of an element."""
        return np.dtype(self.dtype).itemsize

    def count(self, n: int) -> int:
        """Elements of n values."""
        return -(-n // self.per)


@dataclass(frozen=True)
class KVType:
    """Type of keys or values: the planes of a row, codes first."""

    name: str
    planes: tuple[Plane, ...]

    @property
    def codes(self) -> Plane:
        """The plane of codes or, in types of floats, of the values."""
        return self.planes[0]

    @property
    def packed(self) -> bool:
        """Whether codes have 4 or 5 bits."""
        return self.codes.per == WORD

    @cached_property
    def has(self) -> frozenset[str]:
        """Names of its planes."""
        return frozenset(plane.name for plane in self.planes)

    @property
    def quantized(self) -> bool:
        """Whether values are codes with scales."""
        return ".scale" in self.has

    @cached_property
    def groups(self) -> tuple[Plane, ...]:
        """The planes of scales and minima."""
        return tuple(plane for plane in self.planes if plane.per == GROUP)

    @property
    def middle(self) -> int:
        """The number subtracted from packed codes: 8 or 16 in types without a minimum or a codebook, otherwise 0."""
        return {"q4_0": 8, "q5_0": 16}.get(self.name, 0)

    @cached_property
    def eighth(self) -> int:
        """Bytes of the codes of 8 values."""
        return sum(plane.size * WORD // plane.per for plane in self.planes if plane.per <= WORD)

    @cached_property
    def group(self) -> int:
        """Bytes of the scale and the minimum of a group."""
        return sum(plane.size for plane in self.groups)

    def row_bytes(self, d_head: int) -> int:
        """Bytes of one head at one position, in K; with d_value as `d_head`, in V."""
        return sum(plane.size * plane.count(padded_head(d_head)) for plane in self.planes)


def _type(name: str, dtype: str, per: int = 1, *, high: bool = False, scale: bool = False, low: bool = False) -> KVType:
    planes = [Plane("", dtype, per)]
    planes += [Plane(".high", "|u1", WORD)] * high + [Plane(".scale", "<f2", GROUP)] * scale
    return KVType(name, (*planes, *[Plane(".min", "<f2", GROUP)] * low))


F32_KV, F16_KV = _type("f32", "<f4"), _type("f16", "<f2")
KV_TYPES = {
    kind.name: kind
    for kind in (
        F32_KV,
        F16_KV,
        _type("bf16", "<u2"),
        _type("q8_0", "|i1", scale=True),
        _type("q5_1", "<u4", WORD, high=True, scale=True, low=True),
        _type("q5_0", "<u4", WORD, high=True, scale=True),
        _type("q4_1", "<u4", WORD, scale=True, low=True),
        _type("iq4_nl", "<u4", WORD, scale=True),
        _type("q4_0", "<u4", WORD, scale=True),
    )
}


ROW_TYPES = {name: kind for name, kind in KV_TYPES.items() if not kind.packed}  # of rows beside keys and values


@dataclass(frozen=True)
class CacheTypes:
    """The types of a model's memory."""

    keys: KVType
    values: KVType

    @property
    def name(self) -> str:
        """The name that `cache_types` takes."""
        one, other = self.keys.name, self.values.name
        return one if one == other else f"{one}/{other}"

    @property
    def rows(self) -> KVType:
        """Type of rows that layers choose tokens by, or keep besides keys and values (row_store.py): at least 8 bits,
        since they are not in the other basis."""
        return ROW_TYPES.get(self.keys.name, ROW_TYPES["q8_0"])


def cache_types(name: str) -> CacheTypes:
    """The types with a name such as 'q8_0', or 'q8_0/q4_0' for keys and values apart."""
    keys, _, values = name.partition("/")
    return CacheTypes(KV_TYPES[keys], KV_TYPES[values or keys])


CACHE_TYPES = {name: cache_types(name) for name in KV_TYPES}  # with keys and values of one type


def hadamard_block(kind: KVType, width: int, largest: int = 1 << 30) -> int:
    """Block size of the Walsh-Hadamard transform in whose basis keys or values of a head are stored; 0: none.

    The transform makes the values of a head of like size, and a quantized type then rounds less (kv_store.py). The
    block is the largest power of two that divides the width: for keys the head size; values take
    LARGEST_BLOCK_OF_VALUES at most. llama.cpp has the same basis, for multiples of 64 (src/llama-kv-cache.cpp,
    PR 21038).
    """
    block = min(width & -width, largest)
    return block if kind.quantized and block >= 16 else 0


def pages_of(n: int) -> int:
    """Pages that hold n positions."""
    return -(-n // PAGE)


def rows_of_page(every: int) -> int:
    """Rows of a page in a store with one row per `every` tokens; the row of a group whose last token is `token` is
    token % PAGE // every."""
    return -(-PAGE // every)


def padded_head(d_head: int) -> int:
    """d_head rounded up to a multiple of 16: the values of a head in memory."""
    return -(-d_head // 16) * 16


@device
def row_size(n, eighth, group):
    """`KVType.row_bytes(n)`, for kernels."""
    return (n + 15) // 16 * 2 * eighth + (n + 31) // 32 * group
