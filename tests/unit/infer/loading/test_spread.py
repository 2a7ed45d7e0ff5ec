"""Pages of files in memory: which are moved where, and the report on pages that stay.

`Machine` simulates a machine with two nodes. It answers like the kernel, also for large pages, which move as a whole.
Linux was seen to answer so on a virtual machine with two nodes (docs/decisions.md).
"""

import errno
import os
from mmap import PAGESIZE
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numa_kernel import NODES, needs_kernel

from hybrid.infer.loading import page_cache
from hybrid.infer.loading import spread as spreading
from hybrid.infer.loading.spread import BLOCK, Spread, destinations, spread
from hybrid.quant.ggml import numa

SIZE = 5 * BLOCK + 3 * PAGESIZE + 11
NONE = -errno.ENOENT


def counts(homes: np.ndarray, n: int) -> list[int]:
    return np.bincount(homes[homes >= 0], minlength=n).tolist()


def after(homes: np.ndarray, nodes: tuple[int, ...], held: list[int]) -> np.ndarray:
    to = destinations(homes, nodes, np.array(held), len(homes) // 4)
    assert not ((to >= 0) & (homes < 0)).any(), "what is not there cannot be moved"
    return np.where(to >= 0, to, homes)


def test_a_block_on_one_node_goes_in_pieces() -> None:
    got = after(np.zeros(1024, np.int32), (0, 1), [0, 0])
    assert counts(got, 2) == [512, 512]
    assert np.count_nonzero(np.diff(got)) == 1, "one border: neighbours stay together"
    got = after(np.full(1000, 2, np.int32), (0, 2, 3), [0, 0, 0, 0])
    assert sorted(counts(got, 4)) == [0, 333, 333, 334] and np.count_nonzero(np.diff(got)) == 2


def test_what_came_before_counts() -> None:
    assert counts(after(np.zeros(100, np.int32), (0, 1), [70, 0]), 2) == [15, 85]
    assert counts(after(np.zeros(100, np.int32), (0, 1), [500, 0]), 2) == [0, 100]
    assert counts(after(np.ones(100, np.int32), (0, 1), [500, 0]), 2) == [0, 100]


def test_what_is_even_stays() -> None:
    alternating = np.arange(1024, dtype=np.int32) % 2
    assert (destinations(alternating, (0, 1), np.zeros(2, int), 256) == -1).all()
    nearly = np.r_[alternating[:900], np.zeros(124, np.int32)]
    assert (destinations(nearly, (0, 1), np.zeros(2, int), 256) == -1).all()


def test_what_this_process_may_not_use_is_left_and_absent_pages_do_not_count() -> None:
    homes = np.r_[np.full(10, 5, np.int32), np.full(90, NONE, np.int32), np.arange(200, dtype=np.int32) % 2]
    got = after(homes, (0, 1), [0] * 6)
    assert counts(got, 6) == [105, 105, 0, 0, 0, 0]
    assert (got == NONE).sum() == 90
    assert (after(np.full(7, NONE, np.int32), (0, 1), [3, 0]) == NONE).all()


class Machine:
    """Where each page of a mapped file lies; pages in groups of `large` move together."""

    def __init__(self, file: Any, homes: np.ndarray, large: int = 1, refuses: int = 0, mapped_twice: bool = False):
        self.first, self.homes_, self.large = file.mapped.ctypes.data // PAGESIZE, homes, large
        self.refuses, self.mapped_twice, self.n_moves = refuses, mapped_twice, 0

    def index(self, pages: np.ndarray) -> np.ndarray:
        assert (pages % PAGESIZE == 0).all()
        return (pages // PAGESIZE).astype(np.int64) - self.first

    def homes(self, pages: np.ndarray) -> np.ndarray:
        return self.homes_[self.index(pages)].copy()

    def move(self, pages: np.ndarray, nodes: np.ndarray) -> None:
        if self.refuses:
            raise OSError(self.refuses, os.strerror(self.refuses))
        if self.mapped_twice:
            return
        for page, node in zip(self.index(pages).tolist(), nodes.tolist(), strict=True):
            start = page // self.large * self.large
            self.n_moves += int(self.homes_[page] != node)
            self.homes_[start : start + self.large] = node


@pytest.fixture
def gguf(tmp_path: Path) -> Any:
    """The parts of a GGUF file that `spread` needs, in two parts."""
    parts = []
    for name, nbytes in (("a", SIZE), ("b", BLOCK // 2)):
        path = tmp_path / name
        path.write_bytes(b"x" * nbytes)
        parts.append(SimpleNamespace(path=path, nbytes=nbytes, mapped=np.memmap(path, np.uint8, "r")))
    return SimpleNamespace(parts=parts)


@pytest.fixture(autouse=True)
def held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Independent of the tests' file system."""
    monkeypatch.setattr(spreading, "is_held", lambda fd, at: True)
    monkeypatch.setattr(spreading, "tells", lambda fd: True)


def play(monkeypatch: pytest.MonkeyPatch, file: Any, homes: np.ndarray, **how: Any) -> Machine:
    machine = Machine(file, homes, **how)
    monkeypatch.setattr(numa, "homes", machine.homes)
    monkeypatch.setattr(numa, "move", machine.move)
    return machine


def single(gguf: Any) -> Any:
    return SimpleNamespace(parts=gguf.parts[:1])


N_PAGES = -(-SIZE // PAGESIZE)


@pytest.mark.parametrize("large", [1, 16, (2 << 20) // PAGESIZE])
@pytest.mark.parametrize("nodes", [(0, 1), (0, 1, 2, 3)])
def test_all_on_one_node(monkeypatch: pytest.MonkeyPatch, gguf: Any, nodes: tuple[int, ...], large: int) -> None:
    machine = play(monkeypatch, gguf.parts[0], np.zeros(N_PAGES + large, np.int32), large=large)
    found = spread(single(gguf), nodes)
    lie = counts(machine.homes_[:N_PAGES], len(nodes))
    assert sum(lie) == N_PAGES and found.held.tolist() == pytest.approx(lie, abs=1)
    assert max(lie) - min(lie) <= BLOCK // PAGESIZE
    assert found.moved == (N_PAGES - lie[0]) * PAGESIZE
    assert machine.n_moves <= N_PAGES // large + len(nodes) * 6, "a large page is hardly moved twice"
    assert "of m.gguf, in memory already, moved" in found.note("m.gguf")
    again = spread(single(gguf), nodes)
    if large == 1:
        assert again.moved == 0 and again.note("m.gguf") == f"numa: memory is spread over nodes 0-{nodes[-1]}."


def test_the_first_half_here_and_the_second_there(monkeypatch: pytest.MonkeyPatch, gguf: Any) -> None:
    machine = play(monkeypatch, gguf.parts[0], (np.arange(N_PAGES) > N_PAGES // 2).astype(np.int32))
    spread(single(gguf), (0, 1))
    for at in range(0, 5 * BLOCK // PAGESIZE, BLOCK // PAGESIZE):
        part = machine.homes_[at : at + BLOCK // PAGESIZE]
        assert 0.4 < part.mean() < 0.6, "each part of the file is spread, not only all of it"


def test_nodes_that_were_taken_away(monkeypatch: pytest.MonkeyPatch, gguf: Any) -> None:
    machine = play(monkeypatch, gguf.parts[0], np.full(N_PAGES, 3, np.int32))
    found = spread(single(gguf), (0, 1))
    assert counts(machine.homes_, 4)[2:] == [0, 0] and abs(float(machine.homes_.mean()) - 0.5) < 0.01
    assert found.note("m").endswith("moved.")


def test_what_does_not_move_is_said(monkeypatch: pytest.MonkeyPatch, gguf: Any) -> None:
    play(monkeypatch, gguf.parts[0], np.full(N_PAGES, 3, np.int32), mapped_twice=True)
    found = spread(single(gguf), (0, 1))
    assert found.moved == 0 and found.held.tolist() == pytest.approx([0, 0, 0, N_PAGES])
    assert found.note("m.gguf") == (
        "numa: memory is spread over nodes 0-1; 100% of the cached part of m.gguf stays on node 3: it is mapped "
        "twice, as by another program, or there is no room on other nodes. End programs that use the file, drop it "
        "from the cache (`dd if=FILE iflag=nocache count=0`), and load again."
    )
    play(monkeypatch, gguf.parts[0], np.zeros(N_PAGES, np.int32), refuses=errno.EPERM)
    note = spread(single(gguf), (0, 1)).note("m.gguf")
    assert "100% of the cached part of m.gguf stays on node 0: the system does not move it (Operation not per" in note

    def no_call(pages: np.ndarray) -> np.ndarray:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(numa, "homes", no_call)
    note = spread(single(gguf), (0, 1)).note("m.gguf")
    assert "; the cached part of m.gguf stays where it is: the system does not move it (Function not impl" in note


@pytest.mark.parametrize("n", [2, 3, 4, 8])
@pytest.mark.parametrize("large", [1, 4, 16])
def test_of_what_is_spread_only_a_sample_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, gguf: Any, n: int, large: int
) -> None:
    machine = play(monkeypatch, gguf.parts[0], (np.arange(N_PAGES) // large % n).astype(np.int32))
    looked: list[int] = []
    monkeypatch.setattr(numa, "homes", lambda pages: (looked.append(len(pages)), machine.homes(pages))[1])
    assert spread(single(gguf), range(n)).moved == 0
    assert sum(looked) < N_PAGES / 16 + 10


def test_what_is_not_held_is_not_touched(monkeypatch: pytest.MonkeyPatch, gguf: Any) -> None:
    machine = play(monkeypatch, gguf.parts[0], np.zeros(N_PAGES, np.int32))
    monkeypatch.setattr(spreading, "is_held", lambda fd, at: at < BLOCK)
    assert spread(single(gguf), (0, 1)).held.sum() == pytest.approx(BLOCK // PAGESIZE)
    assert machine.homes_[BLOCK // PAGESIZE :].sum() == 0 < machine.homes_.sum()
    monkeypatch.setattr(spreading, "tells", lambda fd: False)
    found = spread(single(gguf), (0, 1))
    assert found.held.sum() == 0
    assert found.note("m.gguf") == (
        "numa: memory is spread over nodes 0-1; the cached part of m.gguf stays where it is: its file system does "
        "not say which pages are cached. A copy made under numactl, interleaved, is spread."
    )


def test_a_file_system_that_does_not_tell(monkeypatch: pytest.MonkeyPatch, gguf: Any) -> None:
    def answer(code: int) -> None:
        def preadv(fd: int, buffers: Any, at: int, flags: int) -> int:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, "RWF_NOWAIT", 8, raising=False)
        monkeypatch.setattr(os, "preadv", preadv, raising=False)

    answer(errno.EOPNOTSUPP)
    assert not page_cache.tells(0) and not page_cache.is_held(0, 5)
    answer(errno.EAGAIN)
    assert page_cache.tells(0) and not page_cache.is_held(0, 5)
    answer(errno.EIO)
    with pytest.raises(OSError, match="error"):
        page_cache.is_held(0, 5)


@needs_kernel
def test_the_kernel_says_where_a_file_lies(gguf: Any) -> None:
    found = spread(gguf, NODES)
    assert isinstance(found, Spread) and not found.refused
    assert found.held.sum() == pytest.approx(N_PAGES + BLOCK // 2 // PAGESIZE)
    if len(NODES) == 1:
        assert found.moved == 0 and found.held[NODES[0]] == found.held.sum()
