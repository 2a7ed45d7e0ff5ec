"""Memory that this process can have: of the machine, of its control groups, and within its limits on mappings.

    machine_memory()                    this machine, now
    resident_bytes()                    what this process has now
    memory_place()                      a name for this machine's memory
    MachineMemory.of(8 << 30)           another machine, with 8 GiB free

Limits that cannot be found out are ignored: a number here is an upper bound, not a promise.
"""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .control_groups import group_folders

ENDLESS = 1 << 62  # bytes: no limit
_UNLIMITED_V1 = 1 << 60  # version 1 of control groups states a larger number where there is no limit
_VM_STAT = "/usr/bin/vm_stat"


@dataclass(frozen=True)
class MachineMemory:
    """Amounts of memory in bytes."""

    total: int
    """The most that the process can ever have: physical memory, or the limit of its control group."""
    available: int
    """Memory that it could get now, if the system drops cached files (among them the weights of models)."""
    mappable: int = ENDLESS
    """Memory that it can still map, used or not: `ulimit -v` and `-d`, and vm.overcommit_memory = 2."""

    @classmethod
    def of(cls, free: int) -> "MachineMemory":
        """A machine with `free` bytes for one program."""
        return cls(free, free)


def machine_memory(root: Path = Path("/")) -> MachineMemory:
    """Memory of this machine. root: where its /proc and /sys are."""
    total = _physical()
    if sys.platform == "darwin":
        return MachineMemory(total, min(total, vm_stat_available(_vm_stat()) or total))
    info = _meminfo(root)
    total = min(total, info.get("MemTotal", total))
    available = min(total, info.get("MemAvailable", total))
    for folder in group_folders("memory", root):
        if (group := _group(folder)) is not None:
            total, available = min(total, group[0]), min(available, group[1])
    mappable = min(_left_of_limits(root), _left_to_commit(root, info))
    return MachineMemory(total, max(0, available), max(0, mappable))


def resident_bytes() -> int | None:
    """Bytes of memory that this process has now, with the pages of mapped files; None where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def memory_place(root: Path = Path("/")) -> str:
    """A name that is equal in processes that share one memory, of a machine or of a control group."""
    try:
        machine = (root / "proc/sys/kernel/random/boot_id").read_text().strip()
    except (OSError, ValueError):
        machine = platform.node()
    return " ".join([machine, *(str(folder) for folder in group_folders("memory", root) if _group(folder))])


def _physical() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _meminfo(root: Path) -> dict[str, int]:
    """Sizes of /proc/meminfo in bytes."""
    try:
        text = (root / "proc/meminfo").read_text()
    except (OSError, ValueError):
        return {}
    return {name: 1024 * int(n) for name, n in re.findall(r"^(\w+): +([0-9]{1,15}) kB$", text, re.MULTILINE)}


def _group(folder: Path) -> tuple[int, int] | None:
    """The limit of a control group, and the rest of it if cached copies of files are dropped; None: no limit."""
    if (folder / "memory.max").exists():
        limits = [n for name in ("memory.max", "memory.high") if (n := _number(folder / name)) is not None]
        used, files = _number(folder / "memory.current"), ("inactive_file", "active_file")
    else:
        limits = [n for n in (_number(folder / "memory.limit_in_bytes"),) if n is not None and n < _UNLIMITED_V1]
        used, files = _number(folder / "memory.usage_in_bytes"), ("total_inactive_file", "total_active_file")
    if not limits:
        return None
    if used is None:
        return min(limits), min(limits)
    stat: dict[str, int] = {}
    with suppress(OSError, ValueError):
        for line in (folder / "memory.stat").read_text().splitlines():
            name, _, value = line.partition(" ")
            stat[name] = int(value)
    held = max(0, used - sum(stat.get(name, 0) for name in files))
    return min(limits), max(0, min(limits) - held)


def _number(path: Path) -> int | None:
    """The integer in a file; None for "max"."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _left_of_limits(root: Path) -> int:
    """The address space left by RLIMIT_AS and RLIMIT_DATA."""
    import resource

    try:
        pages = [int(n) for n in (root / "proc/self/statm").read_text().split()]
        used = {resource.RLIMIT_AS: pages[0], resource.RLIMIT_DATA: pages[5]}
    except (OSError, ValueError, IndexError):
        return ENDLESS
    left = [ENDLESS]
    for which, n in used.items():
        soft, _ = resource.getrlimit(which)
        if soft != resource.RLIM_INFINITY:
            left.append(soft - n * os.sysconf("SC_PAGE_SIZE"))
    return min(left)


def _left_to_commit(root: Path, info: dict[str, int]) -> int:
    """Bytes that a system without overcommitment (vm.overcommit_memory = 2) can still promise."""
    if _number(root / "proc/sys/vm/overcommit_memory") != 2:
        return ENDLESS
    return info.get("CommitLimit", ENDLESS) - info.get("Committed_AS", 0)


def _vm_stat() -> str:
    run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run
    try:
        return run([_VM_STAT], capture_output=True, text=True, timeout=5, check=False).stdout
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""


def vm_stat_available(text: str) -> int | None:
    """Bytes that macOS's vm_stat counts as free or reclaimable; None: unknown."""
    size = re.search(r"page size of ([0-9]{1,9}) bytes", text)
    kinds = "free|inactive|speculative|purgeable"
    pages = [int(n) for n in re.findall(rf"^Pages (?:{kinds}): +([0-9]{{1,15}})\.$", text, re.MULTILINE)]
    return int(size[1]) * sum(pages) if size and pages else None
