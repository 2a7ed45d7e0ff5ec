"""The pages of the chosen experts, and no others, are asked for."""

import ctypes
import mmap
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from reference.run_kernel import record, run

from hybrid.infer.kernels.rows.fetch import fetch_experts

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="no other system says what it holds")
N_EXPERT, USED = 9, (1, 4, 7)
FIRST = 5000  # bytes before the stack: it need not begin with a page
PAGE = mmap.PAGESIZE


def held(address: int, n_pages: int) -> set[int]:
    """The pages that are in memory. Unlike a read, mincore(2) brings none in."""
    answer = np.zeros(n_pages, np.uint8)
    failed = ctypes.CDLL(None).mincore(*map(ctypes.c_void_p, (address, n_pages * PAGE, answer.ctypes.data)))
    assert not failed
    return set(np.flatnonzero(answer & 1).tolist())


@pytest.mark.parametrize("stride", [(3 << 17) + 1000, 9999])
def test_used_experts_are_read(tmp_path: Path, stride: int) -> None:
    path = tmp_path / "stack"
    path.write_bytes(bytes(FIRST + N_EXPERT * stride))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        ctypes.CDLL(None).fsync(file.fileno())  # only pages that are on the disk are dropped
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        view = np.frombuffer(mapped, np.uint8)
        begin, n_pages = view.ctypes.data, -(-len(view) // PAGE)
        del view
        if held(begin, n_pages):
            pytest.skip("this file system keeps its files in memory")
        groups = np.array([len(USED), *(word for e in USED for word in (e, 0, 1)), 8, 0, 1], np.int64)
        run(fetch_experts, record(fetch_experts, groups=groups, w=begin + FIRST, expert_stride=stride, page=PAGE), 2)
        ends = [(FIRST + e * stride, FIRST + (e + 1) * stride - 1) for e in USED]
        needed = {page for first, last in ends for page in range(first // PAGE, last // PAGE + 1)}
        while not needed <= (found := held(begin, n_pages)):  # the test's timeout ends it
            time.sleep(0.001)
        assert found == needed
