"""Makes encoders.npz with ggml's own code: python tests/golden/blocks/make_encoders.py libggml-base.so (README.md)"""

import ctypes
import sys
from pathlib import Path

import numpy as np

from hybrid.quant.ggml.types import GGMLType, row_nbytes

KINDS = (
    "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "TQ1_0",
    "TQ2_0", "MXFP4", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S",
)  # fmt: skip
WITH_IMPORTANCE_ONLY = ("IQ1_S", "IQ2_XXS", "IQ2_XS")
SHAPE = (20, 768)


def inputs() -> tuple[np.ndarray, np.ndarray]:
    """Weights f32 [20, 768] and importance f32 [768]: usual rows, and rows at the edges of the searches."""
    rng = np.random.default_rng(20261121)
    x = rng.standard_normal(SHAPE).astype(np.float32)
    x *= np.float32(10) ** rng.integers(-4, 3, (SHAPE[0], 1)).astype(np.float32)
    x[0] = 0
    x[1, :256] = 0  # a block of zeros within a row
    x[2] = np.abs(x[2])  # no minimum below zero
    x[3] = -np.abs(x[3])
    x[4] = np.round(x[4] * 2 / np.abs(x[4]).max() * 4) / 2  # ties
    x[5, ::32] *= 100  # one large weight in a row of 32
    x[6] *= np.float32(1e-18)  # treated as zero
    x[7] = 1  # constant
    x[8] = -1
    x[9, ::2] = 0
    x[10] = rng.standard_t(3, SHAPE[1])
    importance = (rng.standard_exponential(SHAPE[1]) ** 2).astype(np.float32)
    importance[5:200:7] = 0
    return x, importance


def main(library: str) -> None:
    lib = ctypes.CDLL(library)
    lib.ggml_quantize_chunk.restype = ctypes.c_size_t
    x, importance = inputs()
    arrays = {"x": x, "importance": importance}
    for name in KINDS:
        kind = GGMLType[name]
        lib.ggml_quantize_init(ctypes.c_int(int(kind)))
        for suffix, weights in (("", None), ("_weighted", importance)):
            if weights is None and name in WITH_IMPORTANCE_ONLY:
                continue
            out = np.zeros((len(x), row_nbytes(kind, x.shape[1])), np.uint8)
            pointers = [a.ctypes.data_as(ctypes.c_void_p) if a is not None else None for a in (x, out, weights)]
            lib.ggml_quantize_chunk(
                int(kind),
                *pointers[:2],
                ctypes.c_int64(0),
                ctypes.c_int64(len(x)),
                ctypes.c_int64(x.shape[1]),
                pointers[2],
            )
            arrays[name + suffix] = out
    np.savez_compressed(Path(__file__).with_name("encoders.npz"), **arrays)


if __name__ == "__main__":
    main(sys.argv[1])
