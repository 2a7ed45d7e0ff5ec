"""The rate of the disk is that of blocks that are not in memory."""

import os
import sys
from pathlib import Path

import pytest

from hybrid.infer.bench import disk

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="no other system says what it holds")
N_BLOCKS = 64


@pytest.mark.parametrize("n_held", [0, 30, N_BLOCKS])
def test_only_blocks_that_are_not_held_count(n_held: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read = tmp_path / "file", list[int]()
    path.write_bytes(bytes(N_BLOCKS * disk.BLOCK))
    preadv = os.preadv

    def noted(fd: int, buffers: list[bytearray], at: int) -> int:
        read.append(at)
        return preadv(fd, buffers, at)

    monkeypatch.setattr(disk, "is_held", lambda fd, at: at < n_held * disk.BLOCK)
    monkeypatch.setattr(disk, "SECONDS", 600.0)
    monkeypatch.setattr(os, "preadv", noted)
    rate = disk.read_rate(path)
    assert sorted(read) == [i * disk.BLOCK for i in range(n_held, N_BLOCKS - 1)]
    assert rate is None if N_BLOCKS - 1 - n_held < 4 * disk.N_THREADS else rate is not None and rate > 0


def test_a_disk_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(N_BLOCKS * disk.BLOCK))

    def fails(fd: int, buffers: list[bytearray], at: int) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(disk, "is_held", lambda fd, at: False)
    monkeypatch.setattr(os, "preadv", fails)
    assert disk.read_rate(path) is None
