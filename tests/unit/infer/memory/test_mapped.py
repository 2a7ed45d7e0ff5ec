"""Mapped zeros are aligned, and resident only where written."""

import mmap
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from numa_kernel import NODES, needs_kernel, policy_at

from hybrid.infer.memory.mapped import mapped_zeros
from hybrid.quant.ggml.cpus import as_list
from hybrid.quant.ggml.numa import interleaved

STATM = Path("/proc/self/statm")


def resident() -> int:
    return int(STATM.read_text().split()[1]) * mmap.PAGESIZE


@pytest.mark.parametrize("shape", [(3, 5, 7), (1,), (0, 4), (4097,)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_zeros_that_can_be_written(shape: tuple[int, ...], dtype: type[np.generic]) -> None:
    array = mapped_zeros(shape, dtype)
    assert array.shape == shape and array.dtype == dtype and not array.any()
    assert not array.size or array.ctypes.data % mmap.PAGESIZE == 0
    array[...] = 3
    assert (array == 3).all()


@pytest.mark.skipif(not STATM.exists(), reason="no /proc")
def test_resident_where_it_is_written_and_given_back() -> None:
    """Also if malloc has freed memory of that size, which np.zeros would clear."""
    for _ in range(3):
        np.ones(20 << 20, np.uint8)
    before = resident()
    arrays = [mapped_zeros((20 << 20,), np.uint8) for _ in range(4)]
    assert resident() - before < 4 << 20
    arrays[0][:] = 1
    assert 19 << 20 < resident() - before < 26 << 20
    view = arrays.pop(0)[::2]
    assert view.all()
    del view
    assert resident() - before < 4 << 20


def test_more_than_there_is() -> None:
    with pytest.raises(MemoryError, match=r"1024\.0 TiB cannot be mapped"):
        mapped_zeros((1 << 50,), np.uint8)
    with pytest.raises(MemoryError):
        mapped_zeros((1 << 70,), np.uint8)


def test_a_process_with_more_than_there_is_can_fork() -> None:
    """Only together are the regions larger than the memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        arrays = [mapped_zeros((memory // 2,), np.uint8) for _ in range(4)]
    except MemoryError:
        pytest.skip("the system promises no more than it has")
    child = os.fork()
    if not child:
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(arrays) == 4


@needs_kernel
@pytest.mark.parametrize("nbytes", [3 * mmap.PAGESIZE + 5, 5 << 20])
def test_on_nodes_in_turn_whoever_writes_it(nbytes: int) -> None:
    """Also outside of the `with`: the policy belongs to the mapping, not to the thread."""
    usual = mapped_zeros((nbytes,), np.uint8)
    with interleaved(NODES):
        with interleaved(()):
            spread = mapped_zeros((nbytes,), np.uint8)
        thread = threading.Thread(target=lambda: others.append(mapped_zeros((nbytes,), np.uint8)))
        others: list[np.ndarray] = []
        thread.start()
        thread.join()
    later = mapped_zeros((nbytes,), np.uint8)
    spread[:] = 1
    for at in (0, nbytes - 1):
        assert policy_at(spread.ctypes.data + at) == f"interleave:{as_list(NODES)}"
        assert [policy_at(a.ctypes.data + at) for a in (usual, later, *others)] == ["default"] * 3
    assert not mapped_zeros((0, 3), np.uint8).size
