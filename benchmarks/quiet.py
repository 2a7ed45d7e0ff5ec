"""Whether other processes used the machine during a measurement.

A load average covers the last minute, including our own runs. So the CPU time of all processes (/proc/stat) is compared
with the CPU time of this process and its children, for exactly the measured interval.
"""

import os
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hybrid.infer.bench.machine import Machine

MOST_OTHERS = 0.25
"""Cores' worth of computing by others above which a figure says nothing."""
MOST_STOLEN = 0.05
"""Share of the time that the hypervisor may give to others."""
MOST_MOVED = 1.25
"""How far the machine's limits before and after a run may be apart."""


@dataclass(frozen=True)
class Usage:
    """Average cores in use: `others` outside this process and its children, `stolen` by other virtual machines."""

    others: float
    stolen: float


class Watch:
    """`with Watch() as watch: ...`, then `watch.usage`; None if the system does not report it (not Linux)."""

    usage: Usage | None = None

    def __enter__(self) -> "Watch":
        self._start = self._sample()
        return self

    def __exit__(self, *_: object) -> None:
        end = self._sample()
        if self._start is None or end is None:
            return
        elapsed, busy, stolen, own = (b - a for a, b in zip(self._start, end, strict=True))
        if elapsed > 0:
            self.usage = Usage(max(0.0, (busy - own) / elapsed), stolen / elapsed)

    @staticmethod
    def _sample() -> tuple[float, float, float, float] | None:
        """(wall, busy, stolen, ours) in seconds."""
        try:
            words = Path("/proc/stat").read_text().split("\n", 1)[0].split()
        except OSError:
            return None
        tick = os.sysconf("SC_CLK_TCK")
        user, nice, system, _, _, irq, softirq, stolen = (int(word) / tick for word in words[1:9])
        own = 0.0
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
            times = resource.getrusage(who)
            own += times.ru_utime + times.ru_stime
        return time.monotonic(), user + nice + system + irq + softirq, stolen, own


def busy_now(seconds: float = 2.0) -> str:
    """Why nothing should be measured now, in a few words; empty if the machine is idle."""
    with Watch() as watch:
        time.sleep(seconds)
    if watch.usage is None:
        load = os.getloadavg()[0]
        return f"load average {load:.2f}" if load > MOST_OTHERS + 0.25 else ""
    return _used(watch.usage)


def _used(usage: Usage) -> str:
    words = []
    if usage.others > MOST_OTHERS:
        words.append(f"others use {usage.others:.1f} cores")
    if usage.stolen > MOST_STOLEN:
        words.append(f"the hypervisor takes {usage.stolen:.2f} cores")
    return ", ".join(words)


def disturbed(before: Machine, after: Machine, usage: Usage | None) -> list[str]:
    """Reasons not to trust a run, each a few words; empty without any."""
    reasons = [_used(usage)] if usage is not None and _used(usage) else []
    for name, a, b in moved(before, after):
        if max(a, b) > MOST_MOVED * min(a, b):
            reasons.append(f"{name} went from {a:.0f} to {b:.0f}")
    return reasons


def moved(before: Machine, after: Machine) -> Sequence[tuple[str, float, float]]:
    limits = [("read GB/s", before.read_gb_s, after.read_gb_s), ("f32 GFLOP/s", before.f32_gflop_s, after.f32_gflop_s)]
    if before.int8_gop_s and after.int8_gop_s:
        limits.append(("int8 Gop/s", before.int8_gop_s, after.int8_gop_s))
    return limits
