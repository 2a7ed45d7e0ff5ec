"""Processors: the number that this process may use, and lists of them to pin threads to.

parse_cpus("0-3,16", "--cpus")   # (0, 1, 2, 3, 16)
"""

import os
import re
import sys
from collections.abc import Collection, Sequence

from .errors import UsageError, shown

MAX_THREADS = 512  # a larger number is a slip
MAX_CPU = 1 << 16  # likewise
EXPECTED = "Expected numbers of processors and ranges of them, as in 0-7,16"


def cpus() -> int:
    """The number of processors that this process may use, if the system tells (macOS does not: all)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parse_cpus(text: str, what: str) -> tuple[int, ...]:
    """The processors of a list in taskset's format, in its order; A-B:S is every S-th. `what` names it in errors.

    UsageError: malformed, or a processor occurs twice.
    """
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6})(?::([0-9]{1,6}))?)?", part.strip(), re.ASCII)
        first = int(match[1]) if match else 0
        last = int(match[2] or first) if match else -1
        step = int(match[3] or 1) if match else 1
        if not first <= last < MAX_CPU or step < 1:
            raise UsageError(f"{what} {shown(text)}: {shown(repr(part))} is none. {EXPECTED}.")
        found += range(first, last + 1, step)
    return checked_list(found, f"{what} {shown(text)}")


def checked_list(found: Sequence[int], what: str) -> tuple[int, ...]:
    """UsageError: too many processors, one twice, or an impossible number."""
    if len(found) > MAX_THREADS:
        raise UsageError(f"{what}: {len(found)} processors, one for each of at most {MAX_THREADS} threads.")
    for cpu in found:
        if not 0 <= cpu < MAX_CPU:
            raise UsageError(f"{what}: there is no processor {cpu}.")
        if found.count(cpu) > 1:
            raise UsageError(f"{what}: processor {cpu} is named twice. Each is for one thread.")
    return tuple(found)


def check_usable(cpus: Sequence[int]) -> None:
    """UsageError: this system cannot pin threads, or this process may not use one of these processors."""
    if not cpus:
        return
    if not hasattr(os, "sched_setaffinity"):
        raise UsageError(f"cpus: {sys.platform} has no call that pins a thread to a processor. Leave the list out.")
    usable = os.sched_getaffinity(0)
    wrong = [cpu for cpu in cpus if cpu not in usable]
    if wrong:
        raise UsageError(
            f"cpus: this process may not use processor {wrong[0]}, or it does not exist. It may use {as_list(usable)}."
        )


def as_list(cpus: Collection[int]) -> str:
    """Ranges, as `parse_cpus` reads them: 0-7,16."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and cpu == parts[-1][1] + 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
