"""A process's memory: limits of the machine, of its control groups, and of its mappings."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hybrid.quant.ggml import machine_memory as mm
from hybrid.quant.ggml.machine_memory import ENDLESS, MachineMemory, machine_memory, memory_place, vm_stat_available

GIB = 1 << 30
linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc and control groups")


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 16 GiB, 12 of them available."""
    monkeypatch.setattr(mm, "_physical", lambda: 32 * GIB)
    write(tmp_path, "proc/meminfo", f"MemTotal:  {16 << 20} kB\nMemFree: 99 kB\nMemAvailable:   {12 << 20} kB\n")
    write(tmp_path, "proc/self/cgroup", "0::/a/b\n")
    return tmp_path


def seen(root: Path) -> tuple[float, float]:
    found = machine_memory(root)
    assert found.mappable == ENDLESS
    return found.total / GIB, found.available / GIB


@linux
def test_a_machine_without_limits(root: Path) -> None:
    assert seen(root) == (16, 12)
    write(root, "sys/fs/cgroup/a/b/memory.max", "max\n")
    write(root, "sys/fs/cgroup/a/b/memory.current", f"{GIB}\n")
    assert seen(root) == (16, 12)


@linux
def test_who_shares_a_memory(root: Path) -> None:
    write(root, "proc/sys/kernel/random/boot_id", "1-2-3\n")
    assert memory_place(root) == "1-2-3"
    write(root, "sys/fs/cgroup/a/memory.max", f"{8 * GIB}\n")
    assert memory_place(root) == f"1-2-3 {root}/sys/fs/cgroup/a"
    assert memory_place() == memory_place()


@linux
def test_a_limit_of_any_group_holds(root: Path) -> None:
    """The page cache does not count as used: the system can drop it."""
    write(root, "sys/fs/cgroup/a/memory.max", f"{8 * GIB}\n")
    write(root, "sys/fs/cgroup/a/memory.current", f"{5 * GIB}\n")
    assert seen(root) == (8, 3)
    write(root, "sys/fs/cgroup/a/memory.stat", f"anon 7\ninactive_file {GIB}\nactive_file {2 * GIB}\nfile 0\n")
    assert seen(root) == (8, 6)
    write(root, "sys/fs/cgroup/a/b/memory.max", "max\n")
    write(root, "sys/fs/cgroup/a/b/memory.high", f"{4 * GIB}\n")
    write(root, "sys/fs/cgroup/a/b/memory.current", f"{5 * GIB}\n")
    assert seen(root) == (4, 0)


@linux
def test_limits_of_version_1(root: Path) -> None:
    write(root, "proc/self/cgroup", "3:cpuset:/\n2:memory:/docker/x\n1:name=systemd:/\n")
    folder = "sys/fs/cgroup/memory/docker/x/"
    write(root, folder + "memory.limit_in_bytes", "9223372036854771712\n")
    write(root, folder + "memory.usage_in_bytes", f"{GIB}\n")
    assert seen(root) == (16, 12)
    write(root, folder + "memory.limit_in_bytes", f"{2 * GIB}\n")
    assert seen(root) == (2, 1)
    write(root, folder + "memory.stat", f"cache 1\ntotal_inactive_file {GIB // 2}\ntotal_active_file 0\n")
    assert seen(root) == (2, 1.5)


@linux
@pytest.mark.parametrize("text", ["", "nonsense", "-", "1e9", "\xff\n", "9" * 5000])
def test_what_cannot_be_read_is_left_out(text: str, root: Path) -> None:
    for path in ("proc/meminfo", "proc/self/cgroup", "sys/fs/cgroup/a/memory.max", "sys/fs/cgroup/a/memory.stat"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(text.encode("latin1"))
    write(root, "proc/sys/vm/overcommit_memory", text.encode("ascii", "ignore").decode())
    assert seen(root) == (32, 32)


@linux
def test_a_system_that_promises_no_more_than_it_has(root: Path) -> None:
    more = f"CommitLimit:    {9 << 20} kB\nCommitted_AS:    {4 << 20} kB\n"
    write(root, "proc/meminfo", (root / "proc/meminfo").read_text() + more)
    write(root, "proc/sys/vm/overcommit_memory", "0\n")
    assert machine_memory(root).mappable == ENDLESS
    write(root, "proc/sys/vm/overcommit_memory", "2\n")
    assert machine_memory(root) == MachineMemory(16 * GIB, 12 * GIB, 5 * GIB)


@linux
@pytest.mark.parametrize("which", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_limits_of_the_process(which: str) -> None:
    code = (
        "import resource; from hybrid.quant.ggml.machine_memory import machine_memory as m; before = m().mappable;"
        f"resource.setrlimit(resource.{which}, (1 << 31, 1 << 31)); print(before >> 40, m().mappable)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert before == ENDLESS >> 40
    assert 1 << 30 < after < 1 << 31  # minus the bytes that the process has mapped already


def test_this_machine() -> None:
    found = machine_memory()
    assert 0 < found.available <= found.total <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


VM_STAT = """Mach Virtual Memory Statistics: (page size of 16384 bytes)
Pages free:                               10000.
Pages active:                            400000.
Pages inactive:                           20000.
Pages speculative:                          300.
Pages throttled:                              0.
Pages wired down:                        150000.
Pages purgeable:                           4000.
"Translation faults":                 123456789.
Pages copy-on-write:                     900000.
"""


def test_what_macos_says() -> None:
    assert vm_stat_available(VM_STAT) == 34300 * 16384
    assert vm_stat_available("") is None
    assert vm_stat_available("Pages free: 12.") is None


def test_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(mm, "_physical", lambda: 8 * GIB)
    monkeypatch.setattr(mm, "_vm_stat", lambda: VM_STAT)
    assert machine_memory() == MachineMemory(8 * GIB, 34300 * 16384)
    monkeypatch.setattr(mm, "_VM_STAT", "/nowhere/vm_stat")
    monkeypatch.undo()
    monkeypatch.setattr(mm, "_VM_STAT", "/nowhere/vm_stat")
    assert mm._vm_stat() == ""
