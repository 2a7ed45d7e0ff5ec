"""Makes ggml.npz with ggml's own code: python tests/golden/blocks/make_ggml.py libggml-base.so (README.md)"""

import ctypes
import sys
from pathlib import Path

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from make import inputs

# name -> (number in ggml.h, weights, bytes) of a block; the gguf package lacks the last one
KINDS = {
    kind.name: (int(kind), *GGML_QUANT_SIZES[kind])
    for kind in GGMLQuantizationType
    if kind.name not in ("F32", "F16", "BF16", "F64", "I8", "I16", "I32", "I64", "Q8_1", "Q8_K")
} | {"Q2_0": (42, 64, 18)}
# Formats whose reference encoder works without an importance matrix.
ENCODED = [name for name in KINDS if name not in ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS")]
N_BLOCKS = 9


def call(lib: ctypes.CDLL, function: str, source: np.ndarray, out: np.ndarray, n: int) -> np.ndarray:
    f = lib[function]
    f.restype = None
    f(source.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(n))
    return out


def main(library: str) -> None:
    lib = ctypes.CDLL(library)
    rng = np.random.default_rng(20261121)
    x = np.concatenate([inputs().reshape(8, 256), rng.standard_normal((8, 256)).astype(np.float32)])
    arrays = {"x": x}
    for name, (number, weights, nbytes) in KINDS.items():
        in_c = name.lower().replace("_k", "_K")
        raw = rng.integers(0, 256, (N_BLOCKS, nbytes), np.uint8)
        raw[0] = 0
        arrays[name] = raw
        out = np.full((N_BLOCKS, weights), np.nan, np.float32)
        arrays[f"{name}_decoded"] = call(lib, f"dequantize_row_{in_c}", raw, out, out.size)
        if name in ENCODED:
            lib.ggml_quantize_init(ctypes.c_int(number))
            encoded = np.zeros(x.size // weights * nbytes, np.uint8)
            arrays[f"{name}_encoded"] = call(lib, f"quantize_row_{in_c}_ref", x, encoded, x.size)
    np.savez_compressed(Path(__file__).with_name("ggml.npz"), **arrays)


if __name__ == "__main__":
    main(sys.argv[1])
