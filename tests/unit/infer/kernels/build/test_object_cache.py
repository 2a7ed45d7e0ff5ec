"""Machine code on disk is linked again without a compiler, as a whole or not at all."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from reference.run_kernel import record, run

from hybrid.infer.kernels import execute
from hybrid.infer.kernels.build import jit, object_cache
from hybrid.infer.kernels.emit.emitter import atomic_load, ldi, sti
from hybrid.infer.kernels.emit.fields import Address


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(object_cache, "folder", lambda: tmp_path)
    monkeypatch.setattr(jit, "folder", lambda: tmp_path)
    return tmp_path


def triple(a, tid, nth, *, cell: Address):
    if tid == 0:
        sti(cell, 3 * ldi(cell))


def more_than_triple(a, tid, nth, *, cell: Address):
    for _ in range(3):
        if tid == 0:
            sti(cell, 3 * ldi(cell) + tid)


def works(item: jit.Kernel) -> bool:
    import numpy as np

    cell = np.array([7], np.int64)
    run(item, record(item, cell=cell))
    return bool(cell[0] == 21)


def test_compiled_once_then_linked(cache: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    first = jit.Kernel(triple)
    jit.compile_kernels([first, first], lambda *what: seen.append(what))
    assert seen == [("triple", 0, 1), ("", 1, 1)]
    assert not first.from_cache
    assert works(first)
    assert [p.name for p in cache.iterdir()] == [f"{first.file}.bin"]
    second = jit.Kernel(triple)
    jit.compile_kernels([second], lambda *_: pytest.fail("compiled again"))
    assert second.from_cache
    assert works(second)


def test_threads_link_a_kernel_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs hold the address of a kernel's code: a second link would free the code while another model runs it."""
    jit.Kernel(triple).compile()
    item, both = jit.Kernel(triple), threading.Barrier(2)
    engines: list[Any] = []

    def read(name: str) -> object_cache.CompiledObject | None:
        code = object_cache.read(name)
        both.wait(60)  # both threads have found that the kernel is not linked
        return code

    def link(objects: list[object_cache.CompiledObject]) -> Any:
        engines.append(object_cache.link(objects))
        return engines[-1]

    monkeypatch.setattr(jit, "read", read)
    monkeypatch.setattr(jit, "link", link)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda _: jit.compile_kernels([item]), range(2)))
    assert [engine for engine in engines if engine is not None] == [item._keep]
    assert works(item)


def test_threads_compile_a_kernel_once(cache: Path) -> None:
    item, seen, under_way = jit.Kernel(triple), list[str](), threading.Event()

    def first(name: str, done: int, total: int) -> None:
        seen.append(name)
        under_way.set()
        time.sleep(0.05)  # the other thread finds no code on disk and waits

    with ThreadPoolExecutor(1) as threads:
        compiled = threads.submit(jit.compile_kernels, [item], first)
        assert under_way.wait(60)
        jit.compile_kernels([item], lambda name, *_: seen.append(name))
        compiled.result()
    assert seen == ["triple", ""]
    assert works(item)


@pytest.mark.parametrize("damage", [b"", b"hybrid-kernel 2\n", None], ids=["empty", "cut off", "changed"])
def test_a_damaged_file_is_compiled_again(cache: Path, damage: bytes | None) -> None:
    jit.Kernel(triple).compile()
    path = cache / f"{jit.Kernel(triple).file}.bin"
    raw = bytearray(path.read_bytes())
    raw[-100] ^= 1
    path.write_bytes(raw if damage is None else damage)
    again = jit.Kernel(triple)
    assert works(again)
    assert not again.from_cache
    third = jit.Kernel(triple)
    assert works(third)
    assert third.from_cache


def test_a_cache_that_cannot_be_written_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_cache, "folder", lambda: None)
    monkeypatch.setattr(jit, "folder", lambda: None)
    item = jit.Kernel(triple)
    assert works(item)
    assert not item.from_cache


def test_a_variant_uses_its_own_pieces() -> None:
    atomic_triple = jit.variant(triple, "zero", ldi=atomic_load)
    assert atomic_triple.name == "zero"
    assert atomic_triple.function.__globals__["ldi"] is atomic_load
    assert triple.__globals__["ldi"] is ldi


def test_pieces_are_not_called_from_python() -> None:
    with pytest.raises(TypeError, match="only be called in a kernel"):
        ldi(0)


def test_a_warm_start_does_not_import_numba() -> None:
    """Importing numba takes longer than the rest of a warm start."""
    _ = execute.EXECUTE.address  # in the cache from now on
    code = (
        "import sys; from hybrid.infer.kernels.execute import EXECUTE; from hybrid.infer.model import LoadedModel;"
        "EXECUTE.address; assert EXECUTE.from_cache; assert 'numba' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


def test_numba_works_after_kernels_were_linked() -> None:
    """Symbols belong to the whole process: stand-ins for Python's symbols must be Python's."""
    _ = execute.EXECUTE.address  # in the cache from now on
    code = (
        "from hybrid.infer.kernels.execute import EXECUTE; EXECUTE.address; assert EXECUTE.from_cache;"
        "import numba; f = numba.njit(lambda a: a + len((1, 2))); assert f(3) == 5"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


# A helper that compiles nothing: it puts the ready kernel into the cache for each kernel it is told.
HELPER = """
import sys
from pathlib import Path
place, wrong, *files = sys.argv[1:]
print(*files, flush=True)
for line in sys.stdin:
    if wrong == "dies":
        break
    name = line.strip() + ".bin"
    (Path(place) / name).write_bytes((Path(place) / "ready").read_bytes() if wrong != "damages" else b"")
    print("done", flush=True)
"""


def copies(cache: Path, n: int) -> list[jit.Kernel]:
    """Equal kernels, none compiled, beside the file that a helper copies."""
    made = jit.variant(triple, "copy", sti=sti)
    made.compile()
    (cache / f"{made.file}.bin").rename(cache / "ready")
    return [jit.variant(triple, f"copy_{i}", sti=sti) for i in range(n)]


@pytest.mark.parametrize("wrong", ["", "dies", "damages", "knows none"])
def test_helpers_share_the_work(cache: Path, wrong: str) -> None:
    kernels = copies(cache, 8)
    files = [] if wrong == "knows none" else [k.file for k in kernels]
    told: list[tuple[str, int, int]] = []

    def progress(name: str, done: int, total: int) -> None:
        if not told and not wrong:  # the helper begins before all work here is done
            wait_for(lambda: len(list(cache.glob("*.bin"))) > 2)
        told.append((name, done, total))

    jit.compile_kernels(kernels, progress, ["-c", HELPER, str(cache), wrong, *files], 3)
    assert all(works(k) for k in kernels)
    assert told[-1] == ("", 8, 8) and [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    from_helpers = sum(k.from_cache for k in kernels)
    print(f"{from_helpers} of 8 by helpers, {len(told) - 1} here")
    assert from_helpers > 2 if not wrong else not from_helpers


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_helper_that_cannot_start(cache: Path) -> None:
    kernels = copies(cache, 4)
    jit.compile_kernels(kernels, None, ["-c", "import no_such_module"], 2)
    assert all(works(k) for k in kernels)


def test_an_interrupt_ends_the_helpers(cache: Path, tmp_path: Path) -> None:
    kernels = copies(cache, 4)
    script = f"import os, sys; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); sys.stdin.read()"

    def interrupt(*_: object) -> None:
        wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        jit.compile_kernels(kernels, interrupt, ["-c", script], 2)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_the_longest_kernels_are_compiled_first(cache: Path) -> None:
    short, long = jit.Kernel(triple), jit.Kernel(more_than_triple)
    assert long.code_size > short.code_size > 0
    told: list[str] = []
    jit.compile_kernels([short, long], lambda name, *_: told.append(name))
    assert told == ["more_than_triple", "triple", ""]
