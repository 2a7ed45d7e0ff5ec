"""Time and rates of each operation of a test."""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..kernels.weights import INT_BLOCKS
from .benchmark import BenchTest
from .machine import Machine
from .needs import peak_of

if TYPE_CHECKING:
    from .. import LoadedModel
    from ..model import OpTime

_LAYER = re.compile(r"^blk\.\d+\.")


@dataclass(frozen=True)
class ProfileRow:
    """All calls of one operation with one kernel. Rates count the bytes and operations that the algorithm needs."""

    op: str
    """Name without the layer's number."""
    kind: str
    calls: int
    seconds: float
    share: float
    """Share of the time of all operations."""
    gb_s: float
    gflop_s: float
    of_limit: float
    """The larger of two shares: of the machine's read bandwidth (more than 1 when data come from a cache), and of its
    arithmetic peak, 8-bit for kernels on integers and f32 for all others."""


@dataclass(frozen=True)
class Profile:
    """The time of every kind of operation in one run of a test."""

    test: BenchTest
    machine: Machine
    seconds: float
    """Sum over the operations."""
    rows: tuple[ProfileRow, ...]
    """Most expensive first."""


def profile(model: "LoadedModel", test: BenchTest, machine: Machine, *, seed: int = 0) -> Profile:
    """Run `test` once to warm up, then once with every operation timed."""
    from ..model import Work

    rng = np.random.default_rng(seed)

    def tokens(n: int) -> list[int]:
        ids: list[int] = rng.integers(model.n_vocab, size=n).tolist()
        return ids

    times: list[OpTime] = []
    n_ubatch = model.engine.n_ubatch
    seqs = [model.sequence() for _ in range(test.n_parallel)]
    try:
        for _ in range(2):
            times.clear()
            for seq in seqs:
                seq.clear()
                if test.n_depth:
                    seq.fill(tokens(test.n_depth))
                # `LoadedModel.profile` runs one ubatch
                for piece in range(0, test.n_prompt, n_ubatch):
                    times += model.profile([Work(seq, tokens(min(n_ubatch, test.n_prompt - piece)))])
            for _ in range(test.n_gen):
                step = tokens(len(seqs))
                times += model.profile([Work(seq, [token]) for seq, token in zip(seqs, step, strict=True)])
    finally:
        for seq in seqs:
            seq.close()
    return summarize(times, test, machine)


def summarize(times: Iterable["OpTime"], test: BenchTest, machine: Machine) -> Profile:
    """Sum the times of the same operation over all layers and steps."""
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0.0, 0.0, 0.0])
    for op in times:
        entry = sums[_LAYER.sub("", op.name), op.kind]
        for i, value in enumerate((op.count, op.seconds, op.nbytes, op.flops)):
            entry[i] += value
    total = sum(entry[1] for entry in sums.values())
    rows = []
    for (name, kind), (calls, seconds, nbytes, flops) in sums.items():
        # an operation too short for the clock has no rate
        per_ns = 1e-9 / seconds if seconds else 0.0
        rows.append(
            ProfileRow(
                name, kind, int(calls), seconds, seconds / total if total else 0.0, nbytes * per_ns, flops * per_ns,
                _of_limit(kind, nbytes * per_ns, flops * per_ns, machine),
            )
        )  # fmt: skip
    rows.sort(key=lambda row: -row.seconds)
    return Profile(test, machine, total, tuple(rows))


def _of_limit(kind: str, gb_s: float, gflop_s: float, machine: Machine) -> float:
    return max(gb_s / machine.read_gb_s, gflop_s / _peak(kind, machine))


def _peak(kernel: str, machine: Machine) -> float:
    """Peak operations per ns of the instructions of a product's kernel ('gemm_int_q8_0_16', 'gemv_int_q8_0')."""
    for kind in sorted(INT_BLOCKS, key=lambda k: -len(k.name)):
        if f"_int_{kind.name.lower()}" in kernel:
            return peak_of(kind, machine)
    return machine.dot_gop_s.get("pairs", machine.f32_gflop_s) if "_pairs_" in kernel else machine.f32_gflop_s
