"""The rate at which a file's disk reads blocks that are not in memory, from many places at once."""

import os
import random
import threading
import time
from contextlib import suppress
from pathlib import Path

from ..loading.page_cache import is_held

BLOCK = 512 << 10  # about the size of an expert's matrix
N_THREADS = 8
SECONDS = 0.25


def read_rate(path: Path) -> float | None:
    """Bytes per second; None: the system does not tell which pages are in memory, all are, or the disk fails."""
    if not hasattr(os, "RWF_NOWAIT"):
        return None
    places = list(range(0, path.stat().st_size - BLOCK, BLOCK))
    random.Random(0).shuffle(places)
    n_read, lock = 0, threading.Lock()
    fd = os.open(path, os.O_RDONLY)
    begin = time.perf_counter()

    def work() -> None:
        nonlocal n_read
        block = bytearray(BLOCK)
        while time.perf_counter() - begin < SECONDS:
            with lock:
                at = places.pop() if places else None
            if at is None:
                return
            if is_held(fd, at) or is_held(fd, at + BLOCK - 1):
                continue
            done = os.preadv(fd, [block], at)
            with lock:
                n_read += done

    def tried() -> None:
        with suppress(OSError):
            work()

    try:
        threads = [threading.Thread(target=tried) for _ in range(N_THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - begin
    finally:
        os.close(fd)
    return n_read / seconds if n_read >= 4 * N_THREADS * BLOCK else None
