"""Zeros that cost nothing until they are written, however large."""

import contextlib
import math
import mmap
import sys

import numpy as np

from hybrid.quant.ggml import numa
from hybrid.quant.ggml.byte_sizes import size_text

_HUGE_FROM = 1 << 22  # bytes from which numpy also asks for huge pages
# Without it the system refuses to map more than its memory, written or not. mmap has the name since Python 3.13.
_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


def mapped_zeros(shape: tuple[int, ...], dtype: type[np.generic]) -> np.ndarray:
    """Page-aligned zeros, not resident until they are written, given back with the last view of them.

    np.zeros promises that only where malloc maps a separate region: below 32 MiB it may get memory that was in use
    before, and clears it, which takes milliseconds and makes all of it resident. Raises MemoryError if the system
    promises no more (`ulimit -v`, vm.overcommit_memory = 2), or has no such addresses. Within `numa.interleaved` the
    pages lie on its nodes whoever writes them.
    """
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    if not nbytes:  # an empty mapping is impossible
        return np.zeros(shape, dtype)
    try:
        region = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"{size_text(nbytes)} cannot be mapped: {getattr(error, 'strerror', error)}") from error
    if nbytes >= _HUGE_FROM and hasattr(mmap, "MADV_HUGEPAGE"):
        # Not the first page: the system merges adjacent regions with equal flags, and refuses to fork a process with a
        # region larger than the memory.
        with contextlib.suppress(OSError):  # a kernel without huge pages
            region.madvise(mmap.MADV_HUGEPAGE, mmap.PAGESIZE)
    zeros = np.frombuffer(region, dtype).reshape(shape)
    numa.bind(zeros.ctypes.data, nbytes)
    return zeros
