"""A small model to be split into stages, and helpers of its tests."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from hybrid.infer import LoadedModel, LoadOptions, Work
from hybrid.infer.bench.shapes import ModelShape
from hybrid.quant.ggml.types import FileType

JAMBA = ModelShape(
    "staged-jamba", "jamba", 5, 96, 320, 512, 1e-6, n_ff=160, n_head=3, n_head_kv=1, head_dim=32, attn_offset=1,
    attn_period=3, d_state=7, d_conv=3, dt_rank=5, n_expert=5, n_expert_used=2, expert_offset=1, expert_period=2,
)  # fmt: skip
RandomModel = Callable[[ModelShape | str, FileType], Path]
OPTIONS = LoadOptions(n_ctx=300, n_seq_max=3, n_threads=1, checkpoint_budget=1 << 20)


def tokens(n: int, seed: int = 3) -> list[int]:
    return np.random.default_rng(seed).integers(260, 320, n).tolist()


def rows(model: LoadedModel, work: Work) -> np.ndarray:
    values = model.eval([work])[0].logits
    assert values is not None
    return values


def check_same(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert a.shape == b.shape and a.tobytes() == b.tobytes(), i
