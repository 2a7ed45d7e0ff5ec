"""Q1_0    128 weights in 18 bytes, 1.125 bits per weight

  byte  field  type     meaning
     0  d      f16      scale
     2  qs     u8[16]   1-bit q; bit j of byte 2 + k holds weight 8*k + j
  w[k] = q[k] ? d : -d

Encoder: bytes equal to ggml's reference (`quantize_row_q1_0_ref`) for finite input. d = the mean magnitude, added up in
f32 from the first weight to the last; q = (w >= 0).
"""

import numpy as np

BLOCK_Q1_0 = np.dtype([("d", "<f2"), ("qs", "u1", (16,))])
assert BLOCK_Q1_0.itemsize == 18


def encode_q1_0(x: np.ndarray, out: np.ndarray) -> None:
    """x f32 [n, 128] -> out u8 [n, 18]."""
    blocks = out.view(BLOCK_Q1_0)[:, 0]
    # accumulate, not sum: numpy adds in pairs, which rounds otherwise
    blocks["d"] = np.add.accumulate(np.abs(x), axis=1)[:, -1] / np.float32(128)
    blocks["qs"] = np.packbits(x >= 0, axis=1, bitorder="little")


def decode_q1_0(raw: np.ndarray, out: np.ndarray) -> None:
    """raw u8 [n, 18] -> out f32 [n, 128]."""
    blocks = raw.view(BLOCK_Q1_0)[:, 0]
    # the sign bit of d is turned where q is 0
    turn = np.unpackbits(blocks["qs"], axis=1, bitorder="little").astype(np.uint32)
    turn ^= 1
    turn <<= 31
    bits = blocks["d"].astype(np.float32).view(np.uint32)
    np.bitwise_xor(turn, bits[:, None], out=out.view(np.uint32))
