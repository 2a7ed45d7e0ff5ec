"""Pools as part of a program: entries, the starts of groups, and what is kept between two runs."""

import numpy as np
from reference import pools as twin
from reference.run_kernel import run

from hybrid.infer.engine.ubatch import Control
from hybrid.infer.kernels.attention.kv import CACHE_TYPES
from hybrid.infer.layers.pooling import Pooling, starts_of_groups
from hybrid.infer.memory import HybridMemory
from hybrid.infer.program.builder import Builder, Ref, Rows

N, EVERY = 23, 4


class Tensors:
    """The parts of weights that a layer asks for."""

    def __init__(self, ape: np.ndarray) -> None:
        self.ape = ape

    def array(self, name: str, *shape: int) -> np.ndarray:
        assert (name, shape) == ("blk.1.ape", self.ape.shape)
        return self.ape

    def keep(self, values: np.ndarray) -> int:
        return int(values.ctypes.data)


def test_entries_of_two_runs() -> None:
    n_tok, cut, rng = 30, 17, np.random.default_rng(0)
    pooling = Pooling(1, "entries", N, EVERY, overlapping=True)
    assert pooling.spec.shapes == {"blk.1.entries.conv": (8, 92)}
    ape = rng.standard_normal((EVERY, 2 * N)).astype(np.float32)
    pooling.load(Tensors(ape), "blk.1.ape")  # type: ignore[arg-type]
    memory = HybridMemory([pooling.spec], 1, 64, CACHE_TYPES["f32"])
    values = [rng.standard_normal((n_tok, 2 * N)).astype(np.float32) for _ in range(2)]
    got = np.zeros((n_tok, N))
    for first, end in ((0, cut), (cut, n_tok)):
        n, control = end - first, Control(n_tok)
        arrays = control._arrays
        arrays["ctl"][:2], arrays["pos"][:n] = (n, 1), np.arange(first, end)
        arrays["seg"].reshape(-1, 4)[0] = 0, n, 0, 0 if first else -1
        b = Builder(n_tok, 1, exact=False, batch=control.batch)
        u, z = (x[first:end].copy() for x in values)
        entries = pooling.entries(b, memory, *(Rows(int(x.ctypes.data), 2 * N, x.strides[0]) for x in (u, z)))
        starts = starts_of_groups(b, EVERY)
        assert starts_of_groups(b, EVERY) == starts
        assert len(b.ops) == 2, "starts are computed once"
        b.keep(entries, starts)
        program = b.build()
        program.link()
        program.counters[:] = 0
        for op, fields in zip(program.ops, program.records, strict=True):
            run(op.kernel, fields[1:])
        got[first:end] = program.view(entries, n)
        assert _integers(program.arena, starts, n).tolist() == [p // 4 * 4 for p in range(first, end)]
    want = twin.pool(*(x.astype(float) for x in (*values, ape)), EVERY, overlapping=True)
    assert np.abs(got[EVERY - 1 :: EVERY] - want).max() < 3e-6


def _integers(arena: np.ndarray, ref: Ref, n: int) -> np.ndarray:
    start = ref.base.offset + ref.offset  # type: ignore[union-attr]
    return arena[start : start + 8 * n].view(np.int64)
