"""A model's speed by number of threads, beside the machine's limits for as many, and the bottleneck of each row.

    python benchmarks/scaling.py m.gguf                              1, 2, 4... threads up to the cores
    python benchmarks/scaling.py --shape llama-1b --type Q8_0 -t 1,4,8,16 --cpus 0-15 --peer path/to/llama-bench

Three tests: a prompt, the generation of one sequence, and of 8 together. For every number of threads:

    x 1, each     the rate divided by the first row's, and that divided by the threads: the efficiency
    read, f32...  rates of plain loops with as many threads (infer/bench/machine.py): GB/s, and Gop/s in registers
    memory        share of the time that reading the bytes of its operations would take at that rate
    arithmetic    the same for operations limited by arithmetic. An operation counts in one of the two
    bound by      the largest of the two and of the rest: small operations, and waiting for their ends, for other
                  threads, for a cache

Efficiency falls if the limits do not grow either: compare it with the columns beside it. Threads of one core count as
threads. With --cpus our threads are pinned; the loops and the peer are not.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from model_files import model_name
from programs import llama_cpp

from hybrid.cli.commands.bench import shaped
from hybrid.infer import LoadedModel
from hybrid.infer.bench.benchmark import BenchOptions, BenchTest, SpeedRow, benchmark
from hybrid.infer.bench.machine import Machine, measure_machine
from hybrid.infer.bench.params import parse_ints
from hybrid.infer.bench.profile import ProfileRow, summarize
from hybrid.infer.bench.tables import markdown_table
from hybrid.infer.model import Work
from hybrid.infer.program.threads import default_threads
from hybrid.quant.ggml.cpus import parse_cpus
from hybrid.quant.ggml.errors import HybridError, UsageError

HEAD = ("test", "threads", "tok/s", "+-", "x 1", "each", "memory", "arithmetic", "bound by", "peer", "to peer")
LIMITS = ("threads", "read GB/s", "each", "f32 Gop/s", "each", "int8 Gop/s", "each")


@dataclass(frozen=True)
class Shares:
    """Shares of the time of all operations that they would take at the machine's limits."""

    memory: float
    arithmetic: float

    @property
    def bound(self) -> str:
        rest = 1.0 - self.memory - self.arithmetic
        return max((self.memory, "memory"), (self.arithmetic, "arithmetic"), (rest, "rest"))[1]


@dataclass(frozen=True)
class Measured:
    """A test with a number of threads. `peer`: the other program's rate."""

    row: SpeedRow
    shares: Shares
    peer: float | None = None


def shares_of(rows: Sequence[ProfileRow], machine: Machine) -> Shares:
    """Each operation counts for its nearer limit, with its `of_limit`; more than 1, from a cache, counts as 1."""
    total = sum(row.seconds for row in rows)
    memory = arithmetic = 0.0
    for row in rows:
        part = row.seconds / total * min(1.0, row.of_limit) if total else 0.0
        if row.gb_s / machine.read_gb_s >= row.of_limit:
            memory += part
        else:
            arithmetic += part
    return Shares(memory, arithmetic)


def profiled(model: LoadedModel, test: BenchTest, machine: Machine) -> Shares:
    """Shares of one pass through the layers as in the test, after an uncounted pass."""
    rng = np.random.default_rng(0)
    seqs = [model.sequence() for _ in range(test.n_parallel)]
    try:
        for _ in range(2):
            for seq in seqs:
                seq.clear()
            n = min(test.n_prompt, model.engine.n_ubatch) or 1
            times = model.profile([Work(seq, rng.integers(model.n_vocab, size=n).tolist()) for seq in seqs])
    finally:
        for seq in seqs:
            seq.close()
    return shares_of(summarize(times, test, machine).rows, machine)


def measure(path: Path, tests: BenchOptions, machine: Machine, cpus: Sequence[int]) -> list[Measured]:
    """All tests with the machine's number of threads."""
    n = machine.n_threads
    models: list[LoadedModel] = []
    found: list[Measured] = []

    def load(**fields: Any) -> LoadedModel:
        models.append(LoadedModel.load(path, cpus=tuple(cpus[:n]), **fields))
        return models[-1]

    def seen(row: SpeedRow) -> None:
        found.append(Measured(row, profiled(models[-1], row.test, machine)))
        note(f"{n} threads, {row.test.name}: {row.tokens_per_second:.1f} tok/s")

    benchmark(load, tests, on_row=seen)
    return found


def speed_rows(measured: Sequence[Measured]) -> list[tuple[str, ...]]:
    """Rows by test, then by threads; compared with the fewest threads of the same test."""
    rows = []
    for name in dict.fromkeys(m.row.test.name for m in measured):
        of_test = [m for m in measured if m.row.test.name == name]
        first = of_test[0].row
        for m in of_test:
            rate, n = m.row.tokens_per_second, m.row.setting.n_threads
            times = rate / first.tokens_per_second
            rows.append(
                (
                    name,
                    str(n),
                    f"{rate:.1f}",
                    f"{100 * m.row.spread / rate:.0f} %",
                    f"{times:.2f}",
                    f"{100 * times * first.setting.n_threads / n:.0f} %",
                    f"{100 * m.shares.memory:.0f} %",
                    f"{100 * m.shares.arithmetic:.0f} %",
                    m.shares.bound,
                    "-" if m.peer is None else f"{m.peer:.1f}",
                    "-" if m.peer is None else f"{rate / m.peer:.2f}",
                )
            )
    return rows


def limit_rows(machines: Sequence[Machine]) -> list[tuple[str, ...]]:
    """The machine's limits for each number of threads, and their efficiency compared with the first."""
    first = machines[0]
    rows = []
    for m in machines:
        cells = [str(m.n_threads)]
        pairs = [(m.read_gb_s, first.read_gb_s), (m.f32_gflop_s, first.f32_gflop_s), (m.int8_gop_s, first.int8_gop_s)]
        for now, before in pairs:
            share = now / before * first.n_threads / m.n_threads if now and before else None
            cells += [f"{now:.1f}" if now else "-", "-" if share is None else f"{100 * share:.0f} %"]
        rows.append(tuple(cells))
    return rows


def limits_text(m: Machine) -> str:
    """A progress line with the limits."""
    int8 = f", int8 {m.int8_gop_s:.1f} Gop/s" if m.int8_gop_s else ""
    return f"{m.n_threads} threads: read {m.read_gb_s:.1f} GB/s, f32 {m.f32_gflop_s:.1f} Gop/s{int8}"


def with_peer(found: list[Measured], folder: Path, path: Path, n: int) -> list[Measured]:
    """The same with the peer's rates, from llama-bench, and from llama-batched-bench for several sequences."""
    program, rates = llama_cpp(folder), dict[str, float]()
    for together in (False, True):
        if tests := [m.row.test for m in found if (m.row.test.n_parallel > 1) is together]:
            rates |= program.rates(path, tests, n)
    for name, rate in rates.items():
        note(f"{n} threads, {name}: {program.name} {rate:.1f} tok/s")
    return [Measured(m.row, m.shares, rates.get(m.row.test.name)) for m in found]


def counts(given: str | None, cpus: Sequence[int]) -> list[int]:
    """Numbers of threads to measure: the given ones, or 1, 2, 4... and all cores, or all processors in the list."""
    if given is not None:
        return sorted(parse_ints(given, "-t", minimum=1))
    most = len(cpus) or default_threads()
    return sorted({most, *(1 << i for i in range(most.bit_length()))})


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Measure and print; exit code 1 or 2 with one line on bad input."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?", help="GGUF file")
    parser.add_argument("--shape", help="instead of a file: random weights in a shape of `hybrid bench`")
    parser.add_argument("--type", default="Q8_0", help="weight type of the shape")
    parser.add_argument("-t", "--threads", help="numbers of threads, with commas")
    parser.add_argument("--cpus", help="pin our threads to these processors, as in 0-7,16")
    parser.add_argument("-p", dest="prompt", type=int, default=512)
    parser.add_argument("-n", dest="gen", type=int, default=32)
    parser.add_argument("-np", dest="parallel", type=int, default=8)
    parser.add_argument("-r", dest="repetitions", type=int, default=3)
    parser.add_argument("--peer", type=Path, help="llama-bench, or the folder that it is in")
    args = parser.parse_args()
    try:
        if (args.model is None) == (args.shape is None):
            raise UsageError("give either a GGUF file or --shape.")
        path = args.model or shaped(args.shape, args.type)
        cpus = parse_cpus(args.cpus, "--cpus") if args.cpus else ()
        tests = BenchOptions(
            prompts=[args.prompt],
            gens=[args.gen],
            parallel=sorted({1, args.parallel}),
            repetitions=args.repetitions,
            state=False,
            start=False,
        )
        machines, measured = [], []
        for n in counts(args.threads, cpus):
            machines.append(measure_machine(n))
            note(limits_text(machines[-1]))
            found = measure(path, replace(tests, threads=[n]), machines[-1], cpus)
            measured += with_peer(found, args.peer, path, n) if args.peer else found
        name, kind = model_name(path)
        print(f"{name} {kind}, {machines[0].cpu}, {machines[0].isa}{', pinned to ' + args.cpus if cpus else ''}\n")
        print(markdown_table(HEAD, speed_rows(measured)))
        print(markdown_table(LIMITS, limit_rows(machines)), end="")
    except HybridError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
