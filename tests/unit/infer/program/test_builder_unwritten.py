"""Tests see unwritten memory: arenas, memories and padding hold NaN until a kernel has written them."""

import mmap
from pathlib import Path

import numpy as np
import pytest

from hybrid.infer import LoadedModel
from hybrid.infer.bench.shapes import ModelShape, write_shape
from hybrid.infer.kernels.rows import elementwise
from hybrid.infer.memory import recurrent
from hybrid.infer.program.builder import Builder
from hybrid.quant.ggml.types import FileType

STATM = Path("/proc/self/statm")
SHAPE = ModelShape(
    "small-jamba", "jamba", 3, 64, 300, 2048, 1e-6, n_ff=96, n_head=4, n_head_kv=1, head_dim=16, attn_offset=1,
    attn_period=2, d_state=8, d_conv=4, dt_rank=4,
)  # fmt: skip


@pytest.fixture
def model(tmp_path: Path) -> LoadedModel:
    return LoadedModel.load(write_shape(SHAPE, tmp_path / "m.gguf", FileType.F32), n_ctx=64, n_threads=1)


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.uint8, np.int64])
def test_new_arrays(kind: type[np.generic]) -> None:
    array = np.empty((3, 8), kind)
    assert np.isnan(array).all() if np.issubdtype(kind, np.floating) else np.isnan(array.view(np.float16)).all()


def test_a_kernel_that_reads_what_nobody_wrote(model: LoadedModel) -> None:
    """In the arena's first run, and where an earlier run of the same program left values."""
    engine = model.engine
    b: Builder = engine._builder(1)
    kept, unwritten = b.rows(16), b.rows(16)
    b.op(elementwise.copy_rows, count=b.batch.n_tok, x=unwritten, out=kept, n=16)
    b.op(elementwise.copy_rows, count=b.batch.n_tok, x=kept, out=unwritten, n=16)
    program = b.build()
    engine._compile(program.kernels)
    program.link()
    engine._control._arrays["ctl"][0] = 1  # token
    for _ in range(2):
        engine._run(program, False)
        assert np.isnan(program.view(kept, 1)).all()
        program.arena[:] = 0
    model.close()


@pytest.mark.parametrize("kv_type", ["f32", "f16", "q8_0"])
def test_memories(kv_type: str, tmp_path: Path) -> None:
    path = write_shape(SHAPE, tmp_path / "m.gguf", FileType.F32)
    with LoadedModel.load(path, n_ctx=64, n_threads=1, kv_type=kv_type) as model:  # type: ignore[arg-type]
        memory = model.memory
        assert all(np.isnan(array).all() for array in memory.recurrent.arrays())
        for name, view in memory.attention._views(memory.attention.specs[0]).items():
            assert (np.isnan(view) if view.dtype.kind == "f" else view == -1).all(), name
        assert np.isfinite(model.sequence().prefill([1, 2, 3])).all()


def test_what_another_model_wrote_is_not_found() -> None:
    first, second = (recurrent.mapped_zeros((3, 5000), np.float32) for _ in range(2))
    first[:] = 1
    third = recurrent.mapped_zeros((3, 5000), np.float32)
    assert np.isnan(second).all() and np.isnan(third).all() and (first == 1).all()


@pytest.mark.skipif(not STATM.exists(), reason="no /proc")
def test_rows_that_nobody_touches_cost_nothing() -> None:
    """A model has hundreds of them: filling all at every load took most of the time of the command line's tests."""
    recurrent.mapped_zeros((40 << 20,), np.uint8)
    before = resident()
    arrays = [recurrent.mapped_zeros((40 << 20,), np.uint8) for _ in range(4)]
    assert resident() - before < 4 << 20
    assert all(array[-1] == 255 for array in arrays)


def resident() -> int:
    return int(STATM.read_text().split()[1]) * mmap.PAGESIZE
