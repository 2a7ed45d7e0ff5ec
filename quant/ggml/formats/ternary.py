"""TQ1_0   256 weights in 54 bytes, 1.6875 bits per weight: five weights of -1, 0, 1 in a byte

  byte  field  type     meaning
     0  qs     u8[48]   byte k holds weights 32*i + k, k < 32; byte 32 + k weights 160 + 16*i + k, k < 16; i = 0..4
    48  qh     u8[4]    byte 48 + k holds weights 240 + 4*i + k, i = 0..3
    52  d      f16      scale
  a byte is ceil(v * 256 / 243), v = the number of five base-3 digits, of which i = 0 is the first
  (qh: the fifth digit is 0), so that digit i = ((byte * 3^i mod 256) * 3) >> 8
  w = d * (digit - 1)

TQ2_0   256 weights in 66 bytes, 2.0625 bits per weight

  byte  field  type     meaning
     0  qs     u8[64]   2-bit q; byte 32*h + k holds weights 128*h + 32*i + k in bits 2*i, i = 0..3
    64  d      f16      scale
  w = d * (q - 1)       q = 3, which ggml never writes, is +2

Encoders: bytes equal to ggml's reference (`quantize_row_tq1_0_ref`, `quantize_row_tq2_0_ref`) for finite input.
d = the largest magnitude; w times the unrounded 1 / d is rounded with halves away from zero. Meant for models that were
trained with ternary weights: others lose too much.
"""

import numpy as np

from .largest import largest
from .q2_0 import ternary
from .unpack import fields, scaled

BLOCK_TQ1_0 = np.dtype([("qs", "u1", (48,)), ("qh", "u1", (4,)), ("d", "<f2")])
assert BLOCK_TQ1_0.itemsize == 54

BLOCK_TQ2_0 = np.dtype([("qs", "u1", (64,)), ("d", "<f2")])
assert BLOCK_TQ2_0.itemsize == 66

# Bytes that lie together, how many weights each holds, and the first weight of the first byte.
Runs = tuple[tuple[slice, int, int], ...]
_RUNS: Runs = ((slice(0, 32), 5, 0), (slice(32, 48), 5, 160), (slice(48, 52), 4, 240))


def encode_tq1_0(x: np.ndarray, out: np.ndarray) -> None:
    """x f32 [n, 256] -> out u8 [n, 54]."""
    put_digits(ternary(x, d := np.abs(largest(x))), _RUNS, out)
    out.view(BLOCK_TQ1_0)[:, 0]["d"] = d


def put_digits(digits: np.ndarray, runs: Runs, out: np.ndarray) -> None:
    """digits u8 [n, block] -> five in each of the bytes out u8 [n, nbytes] that `runs` lists."""
    for where, count, first in runs:
        width = where.stop - where.start
        value = np.zeros((len(digits), width), np.uint16)
        for i in range(5):
            value *= 3
            if i < count:
                value += digits[:, first + i * width : first + (i + 1) * width]
        value *= 256
        value += 242
        value //= 243
        out[:, where] = value


def decode_tq1_0(raw: np.ndarray, out: np.ndarray) -> None:
    """raw u8 [n, 54] -> out f32 [n, 256]."""
    decode_digits(raw, _RUNS, raw.view(BLOCK_TQ1_0)[:, 0]["d"], out)


def decode_digits(raw: np.ndarray, runs: Runs, d: np.ndarray, out: np.ndarray) -> None:
    """raw u8 [n, nbytes], scales d f16 [n] -> out f32 [n, block]."""
    q = np.empty(out.shape, np.int8)
    for where, count, first in runs:
        width = where.stop - where.start
        byte = raw[:, where].copy()
        for i in range(count):
            digit = (byte.astype(np.uint16) * np.uint16(3)) >> 8
            q[:, first + i * width : first + (i + 1) * width] = digit
            byte *= np.uint8(3)
    q -= 1
    np.multiply(q, d.astype(np.float32)[:, None], out=out, dtype=np.float32)


def encode_tq2_0(x: np.ndarray, out: np.ndarray) -> None:
    """x f32 [n, 256] -> out u8 [n, 66]."""
    q = ternary(x, d := np.abs(largest(x))).reshape(-1, 2, 4, 32)
    blocks = out.view(BLOCK_TQ2_0)[:, 0]
    blocks["d"] = d
    packed = q[:, :, 0] | q[:, :, 1] << 2 | q[:, :, 2] << 4 | q[:, :, 3] << 6
    blocks["qs"] = packed.reshape(-1, 64)


def decode_tq2_0(raw: np.ndarray, out: np.ndarray) -> None:
    """raw u8 [n, 66] -> out f32 [n, 256]."""
    blocks = raw.view(BLOCK_TQ2_0)[:, 0]
    q = fields(blocks["qs"].reshape(-1, 2, 32), 2).view(np.int8)
    q -= 1
    scaled(q, blocks["d"].astype(np.float32)[:, None], out)
