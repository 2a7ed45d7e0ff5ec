"""Keys and values as ggml's blocks: the values that its own formats have, codes moved without a change, and bases."""

import numpy as np
import pytest
from reference import attention as reference

from hybrid.infer.kernels.attention.kv import KV_TYPES, KVType
from hybrid.infer.memory.kv_codec import decoded, encoded
from hybrid.infer.memory.llama_blocks import blocks_of, llama_basis, moved, parts_of, row_bytes
from hybrid.quant.ggml.formats import decode
from hybrid.quant.ggml.types import GGMLType


@pytest.mark.parametrize("kind", list(KV_TYPES.values()), ids=list(KV_TYPES))
def test_blocks_are_those_of_ggml(kind: KVType) -> None:
    x = np.random.default_rng(3).standard_normal((5, 2, 96)) * 3
    parts = encoded(x, kind)
    blocks = blocks_of(parts, kind)
    assert blocks.dtype == np.uint8 and blocks.shape == (5, 2, row_bytes(kind, 96))
    values = decode(GGMLType[kind.name.upper()], blocks.reshape(10, -1))
    assert np.array_equal(values.reshape(x.shape), decoded(parts, kind, 96).astype(np.float32))
    back = parts_of(blocks, kind)
    assert list(back) == [plane.name for plane in kind.planes]
    assert all(back[name].dtype == parts[name].dtype and np.array_equal(back[name], parts[name]) for name in back)
    assert bool(row_bytes(kind, 40)) is not kind.quantized


@pytest.mark.parametrize(
    ("width", "values", "block"),
    [
        (64, False, 64),
        (64, True, 64),
        (128, False, 128),
        (128, True, 64),
        (192, False, 64),
        (96, False, 0),
        (80, True, 0),
    ],
)
def test_the_basis_of_llama_cpp(width: int, values: bool, block: int) -> None:
    kind = KV_TYPES["q4_0"]
    assert llama_basis(kind, width, values=values, rotated=True) == block
    assert llama_basis(kind, width, values=values, rotated=False) == 0
    assert llama_basis(KV_TYPES["f16"], width, values=values, rotated=True) == 0


def test_another_basis_is_rounded_once_more() -> None:
    kind, x = KV_TYPES["q8_0"], np.random.default_rng(4).standard_normal((7, 1, 128))
    plain = encoded(x, kind)
    assert moved(plain, kind, 128, 64, 64) is plain
    turned = decoded(moved(plain, kind, 128, 0, 64), kind, 128)
    error = np.linalg.norm(reference.hadamard(turned, 64) - x) / np.linalg.norm(x)
    assert error < 0.01
