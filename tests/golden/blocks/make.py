"""Makes blocks.npz with the gguf package's encoders (gguf 0.19.0, numpy 2.4.6): python tests/golden/blocks/make.py"""

from pathlib import Path

import gguf
import numpy as np
from gguf import quants

KINDS = ("F16", "BF16", "Q8_0", "Q4_0")


def inputs() -> np.ndarray:
    """f32 [64, 32]: weights of several sizes, and blocks at the edges of the encoders' rounding."""
    rng = np.random.default_rng(20261121)
    x = rng.standard_normal((64, 32)).astype(np.float32)
    x *= np.float32(10) ** rng.integers(-4, 3, (64, 1)).astype(np.float32)
    x[0] = 0
    x[1] = np.arange(32) - 127.5 + 96  # with d = 1: every weight is halfway between two integers
    x[1, 0] = 127
    x[2] = -x[1]
    x[3] = np.tile([-4, 4], 16)  # the largest magnitude twice: the first one decides the sign of Q4_0's d
    x[4] = np.tile([4, -4], 16)
    x[5] = np.nextafter(x[1], np.float32(0))
    x[6] = np.nextafter(x[1], np.float32(1000) * np.sign(x[1]))
    x[7] = np.linspace(-8, 8, 32)
    x[8, 1:] = 0
    x[9] = 60000
    x[10] = 1e-6 * np.arange(32)
    return x


def main() -> None:
    x = inputs()
    kinds = {k: gguf.GGMLQuantizationType[k] for k in KINDS}
    blocks = {k: np.ascontiguousarray(quants.quantize(x, kind)).view(np.uint8) for k, kind in kinds.items()}
    decoded = {f"{k}_decoded": quants.dequantize(blocks[k], kind).astype(np.float32) for k, kind in kinds.items()}
    np.savez_compressed(Path(__file__).with_name("blocks.npz"), x=x, **blocks, **decoded)


if __name__ == "__main__":
    main()
