"""Speed and perplexity beside llama.cpp's, on the same files, on this machine, in the same run.

    python benchmarks/compare.py                              ours alone, the quick set
    python benchmarks/compare.py --peer DIR                   DIR holds llama.cpp's programs
    python benchmarks/compare.py --set full --peer DIR --write --resume
    python benchmarks/compare.py --only "jamba-3b Q4* pp512"  words of a test: model, type, pp512, prompt, depth, batch
    python benchmarks/compare.py --peer DIR --model m.gguf --text heldout.txt

Both sides run as users run them, in processes of their own, alternating (A B B A A B ...), so that a busy neighbour or
a warm CPU affects both. Printed is the median of the rounds, with minimum and maximum. A first run of ours, not
counted, compiles the kernels.

Nothing else may compute meanwhile. The machine's limits are measured before and after every round. A round in which
they changed by more than 25 %, or in which others computed, is repeated, at most three times per group of tests; rows
that stay disturbed are marked. With --busy nothing is repeated. --write saves the rows in results.jsonl after every
group, so a stopped run continues with --resume.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import results
from model_files import model_name, shape_file, why_not
from plan import SETS, Plan, groups, may_be_wanted, types, wanted
from programs import Hybrid, LlamaCpp, llama_cpp, ours
from quiet import Watch, busy_now, disturbed

from hybrid.infer.bench.benchmark import BenchTest
from hybrid.infer.bench.machine import Machine, measure_machine
from hybrid.infer.bench.needs import TokenNeeds
from hybrid.infer.bench.params import parse_ints
from hybrid.infer.bench.shapes import find_type, write_shape
from hybrid.infer.program.threads import default_threads
from hybrid.pipeline.config_shapes import find
from hybrid.quant.ggml.errors import HybridError, UsageError
from hybrid.quant.ggml.reader import GGUFFile

MOST_AGAIN = 3
"""Rounds of a group that may be measured again."""
LARGE_FILE = 2 << 30
"""Bytes above which a random-weight file that this run wrote is removed when it was measured."""


@dataclass
class Limits:
    """The machine's limits around the counted rounds."""

    machines: list[Machine] = field(default_factory=list)
    noise: list[str] = field(default_factory=list)

    def as_data(self) -> dict[str, list[float]]:
        values = {
            "read_gb_s": [results.rounded(m.read_gb_s) for m in self.machines],
            "f32_gflop_s": [results.rounded(m.f32_gflop_s) for m in self.machines],
            "int8_gop_s": [results.rounded(m.int8_gop_s) for m in self.machines if m.int8_gop_s],
        }
        return {name: limits for name, limits in values.items() if limits}

    def middle(self) -> Machine:
        """Their medians."""
        first = self.machines[0]
        dots = {way: results.median(m.dot_gop_s[way] for m in self.machines) for way in first.dot_gop_s}
        read = results.median(m.read_gb_s for m in self.machines)
        return replace(
            first, read_gb_s=read, f32_gflop_s=results.median(m.f32_gflop_s for m in self.machines), dot_gop_s=dots
        )


@dataclass
class Run:
    """One invocation: its options, both sides, and its rows."""

    args: argparse.Namespace
    plan: Plan
    mine: Hybrid
    peer: LlamaCpp | None
    done: set[tuple[Any, ...]]
    """Keys of rows that --resume leaves out."""
    rows: list[results.Row] = field(default_factory=list)
    peer_prompt_rate: float = 0.0
    """Of the file being measured: how long the peer needs to reach a depth follows from it."""

    def head(self, kind: str, model: str, file_type: str, test: str) -> results.Row:
        """The fields at the beginning of every row."""
        machine = measured_here(self.args.t)
        return {
            "kind": kind,
            "cpu": machine.cpu,
            "isa": machine.isa,
            "threads": self.args.t,
            "model": model,
            "type": file_type,
            "precision": "exact" if self.args.exact else "fast",
            "test": test,
        }

    def versions(self, with_peer: bool) -> dict[str, str]:
        versions = {"hybrid": hybrid_version(), "Python": sys.version.split()[0], "numba": version("numba")}
        if with_peer and self.peer is not None:
            versions["llama.cpp"] = self.peer.version or "?"
        return versions

    def keep(self, rows: list[results.Row]) -> None:
        """Remember rows, and with --write put them into the file of results."""
        self.rows += rows
        if self.args.write:
            every, left_out = results.merged(results.load(self.args.data), rows)
            results.save(every, self.args.data)
            for row in left_out:
                note(f"{row['model']} {row['type']} {row['test']}: not written, the row there is has a peer's figure")

    # --- files ---
    def files(self) -> Iterator[tuple[Path, str, str]]:
        """(path, model, type) of all files to measure; large files written for it are removed afterwards."""
        for path in self.args.model:
            model, kind = model_name(path)
            yield path, model, kind
        for name in self.plan.shapes:
            for kind in self.plan.types:
                if not may_be_wanted(self.args.only, name, kind, self.plan):
                    continue
                tests = [t for g in groups(self.plan, kind) for t in g if wanted(self.args.only, name, kind, t)]
                if all(results.key(self.head("speed", name, kind, t.name)) in self.done for t in tests):
                    continue
                path = shape_file(name, kind)
                if reason := why_not(name, kind, path):
                    note(f"{path.name} left out: {reason}")
                    continue
                new = not path.exists()
                if new:
                    note(f"writing {path}")
                    write_shape(find(name), path, find_type(kind), ssm_f32=False)
                try:
                    yield path, name, kind
                finally:
                    if new and not self.args.keep_files and path.stat().st_size > LARGE_FILE:
                        path.unlink()

    # --- speed ---
    def file(self, path: Path, model: str, kind: str) -> None:
        """Run all tests of one file."""
        needs = TokenNeeds.of(GGUFFile.open(path))
        self.peer_prompt_rate = self.known_prompt_rate(model, kind)
        warm = False
        for group in groups(self.plan, kind):
            tests = [test for test in group if wanted(self.args.only, model, kind, test)]
            tests = [t for t in tests if results.key(self.head("speed", model, kind, t.name)) not in self.done]
            if not tests:
                continue
            if not warm:
                note(f"{path.name}: compiling")
                self.mine.warm_up(path, self.args.t)
                warm = True
            self.keep(self.group(path, model, kind, tests, needs))

    def group(self, path: Path, model: str, kind: str, tests: list[BenchTest], needs: TokenNeeds) -> list[results.Row]:
        """Run all rounds of some tests with the same depth."""
        measured: tuple[dict[str, list[float]], dict[str, list[float]]] = ({}, {})
        limits, again = Limits(), 0
        with_peer = self.peer_rounds(tests[0].n_depth)
        names = ", ".join(test.name for test in tests)
        i = 0
        while i < self.plan.rounds:
            note(f"{path.name}: {names}, round {i + 1} of {self.plan.rounds}")
            before = measure_machine(self.args.t)
            sides: list[Hybrid | LlamaCpp] = [self.mine]
            if self.peer is not None and i < with_peer:
                # A B B A: the first side alternates
                sides.insert(1 - i % 2, self.peer)
            with Watch() as watch:
                rates = [(side is self.peer, side.rates(path, tests, self.args.t)) for side in sides]
            after = measure_machine(self.args.t)
            noise = disturbed(before, after, watch.usage)
            if noise and again < MOST_AGAIN and not self.args.busy:
                again += 1
                note(f"  again: {'; '.join(noise)}")
                continue
            for theirs, values in rates:
                for name, value in values.items():
                    measured[theirs].setdefault(name, []).append(value)
            limits.machines += [before, after]
            limits.noise += [text for text in noise if text not in limits.noise]
            i += 1
        mine, peer = measured
        if "pp512" in peer:
            self.peer_prompt_rate = results.median(peer["pp512"])
        return [self.row(path, model, kind, test, mine, peer, limits, needs) for test in tests]

    def known_prompt_rate(self, model: str, kind: str) -> float:
        """The peer's pp512 from earlier results, or 0."""
        wanted_key = results.key(self.head("speed", model, kind, "pp512"))
        row = next((row for row in results.load(self.args.data) if results.key(row) == wanted_key), {})
        return float(row["peer"]["median"]) if row.get("peer") else 0.0

    def peer_rounds(self, depth: int) -> int:
        """Rounds of the peer: it has to compute the tokens up to a depth, ours fills the memory."""
        if self.peer is None or not depth or not self.peer_prompt_rate:
            return self.plan.rounds
        n = int(self.args.patience * self.peer_prompt_rate / depth)
        if n < self.plan.rounds:
            note(f"depth {depth}: {n} rounds of llama.cpp, which needs {depth / self.peer_prompt_rate:.0f} s for each")
        return min(n, self.plan.rounds)

    def row(
        self,
        path: Path,
        model: str,
        kind: str,
        test: BenchTest,
        mine: dict[str, list[float]],
        peer: dict[str, list[float]],
        limits: Limits,
        needs: TokenNeeds,
    ) -> results.Row:
        """A row of results: both sides' rates of one test, with the machine's limits at the time."""
        if test.name not in mine:
            raise UsageError(f"hybrid bench printed no {test.name}. Is another version beside this Python?")
        side, theirs = results.rates(mine[test.name]), peer.get(test.name)
        machine = limits.middle()
        of_bandwidth = of_peak = None
        if not test.n_depth and test.n_gen and not (needs.has_experts and test.n_parallel > 1):
            of_bandwidth = needs.of_bandwidth(side["median"] / test.n_parallel, machine.read_gb_s)
        if not test.n_depth and test.n_prompt:
            of_peak = needs.of_peak(side["median"], machine)
        return {
            **self.head("speed", model, kind, test.name),
            "nbytes": path.stat().st_size,
            "date": now(),
            "hybrid": side,
            "peer": results.rates(theirs) if theirs else None,
            "of_bandwidth": of_bandwidth and round(of_bandwidth, 3),
            "of_peak": of_peak and round(of_peak, 3),
            "limits": limits.as_data(),
            "noisy": "; ".join(limits.noise[:2]),
            "versions": self.versions(bool(theirs)),
            "command": command_line(),
        }

    # --- perplexity ---
    def perplexity(self, path: Path, model: str, kind: str) -> None:
        """Both sides' perplexity of one file on --text, with the times of the processes."""
        text, context = self.args.text, self.args.c
        self.mine.perplexity(path, text, context, self.args.t, chunks=1)
        by_side: tuple[list[dict[str, float]], list[dict[str, float]]] = ([], [])
        for i in range(self.plan.rounds):
            note(f"{path.name}: perplexity, round {i + 1} of {self.plan.rounds}")
            by_side[0].append(self.mine.perplexity(path, text, context, self.args.t))
            if self.peer is not None:
                by_side[1].append(self.peer.perplexity(path, text, context, self.args.t))
        sides = [{**side[-1], "seconds": [round(r["seconds"], 2) for r in side]} if side else None for side in by_side]
        row = self.head("perplexity", model, kind, f"{text.name}, context {context}")
        row |= {"nbytes": path.stat().st_size, "date": now(), "hybrid": sides[0], "peer": sides[1]}
        self.keep([{**row, "versions": self.versions(self.peer is not None), "command": command_line()}])


# --- the command line -------------------------------------------------------------------------------------------------
def main() -> int:
    """Measure both sides and print the tables; exit code 1 or 2 with one line on bad input."""
    args = parse_arguments()
    try:
        print(results.report(start(args)))
    except HybridError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("stopped; with --write what was measured is kept, and --resume goes on there", file=sys.stderr)
        return 130
    return 0


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=Path, help="folder with llama.cpp's programs, or one of them")
    parser.add_argument("--set", choices=SETS, default="quick", help="defaults of the options below")
    parser.add_argument("--only", action="append", default=[], help='words of a test: "jamba-3b Q4*" (several times)')
    parser.add_argument("--model", type=Path, action="append", default=[], help="a GGUF file (several times)")
    parser.add_argument("--shape", action="append", default=[], help="a random-weight model (several times)")
    parser.add_argument("--type", help="types of the random-weight files: Q8_0,Q4_K_M")
    parser.add_argument("-p", help="prompt lengths")
    parser.add_argument("-n", help="numbers of tokens to generate")
    parser.add_argument("-d", help="depths")
    parser.add_argument("-np", help="sequences that generate together")
    parser.add_argument("-t", type=int, default=0, help="threads, 0: all cores")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--patience", type=float, default=900.0, help="total seconds for llama.cpp to reach a depth")
    parser.add_argument("--text", type=Path, help="also measure perplexity on this file")
    parser.add_argument("-c", type=int, default=512, help="context of the perplexity")
    parser.add_argument("--exact", action="store_true", help="ours without 8-bit activations")
    parser.add_argument("--busy", action="store_true", help="measure although others compute; rows are marked")
    parser.add_argument("--write", action="store_true", help="keep the rows in results.jsonl and renew RESULTS.md")
    parser.add_argument("--resume", action="store_true", help="skip rows that results.jsonl has from today, not noisy")
    parser.add_argument("--keep-files", action="store_true", help="do not remove large random-weight files")
    parser.add_argument("--data", type=Path, default=results.DATA, help="file of results (default: results.jsonl)")
    return parser.parse_args(words)


def planned(args: argparse.Namespace) -> Plan:
    """The set, changed by the options. Raises UsageError for an invalid number or name."""
    plan = SETS[args.set]
    if args.p is not None:
        plan = replace(plan, prompts=parse_ints(args.p, "-p"))
    if args.n is not None:
        plan = replace(plan, gens=parse_ints(args.n, "-n"))
    # depths and batches from options apply to every type
    if args.d is not None:
        plan = replace(plan, depths=parse_ints(args.d, "-d"), depth_types=())
    if args.np is not None:
        plan = replace(plan, parallel=parse_ints(args.np, "-np"), parallel_types=())
    if args.type:
        plan = replace(plan, types=[find_type(kind).name for kind in types(args.type)])
    if args.shape or args.model:
        plan = replace(plan, shapes=[find(name).name for name in args.shape])
    if args.rounds is not None:
        if args.rounds < 1:
            raise UsageError(f"--rounds {args.rounds}: at least 1 is needed.")
        plan = replace(plan, rounds=args.rounds)
    return plan


def start(args: argparse.Namespace) -> list[results.Row]:
    """Measure everything; return the rows."""
    plan = planned(args)
    args.t = args.t or default_threads()
    if not args.busy and (reason := busy_now()):
        raise UsageError(f"the machine is busy: {reason}. Wait, or use --busy to measure and mark the rows.")
    done: set[tuple[Any, ...]] = set()
    if args.resume:
        done = results.measured_since(results.load(args.data), now()[:10], args.peer is not None)
    mine, peer = ours(["--exact"] if args.exact else []), llama_cpp(args.peer) if args.peer else None
    run = Run(args, plan, mine, peer, done)
    any_file = False
    for path, model, kind in run.files():
        any_file = True
        run.file(path, model, kind)
        if args.text is not None:
            run.perplexity(path, model, kind)
    if not any_file and not args.resume:
        raise UsageError("nothing to measure. Check --only: its words are models, types and tests such as pp512.")
    if args.write and args.data == results.DATA:
        results.renew()
        note(f"written to {results.DATA.name} and {results.DOCUMENT.name}; `make docs chart` renews the others")
    return results.merged([], run.rows)[0]


_here: dict[int, Machine] = {}


def measured_here(threads: int) -> Machine:
    """The machine's description, measured once per number of threads."""
    if threads not in _here:
        _here[threads] = measure_machine(threads)
    return _here[threads]


def hybrid_version() -> str:
    """'0.1.0', in a checkout followed by the commit."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude", "*"], cwd=results.HERE, capture_output=True, text=True
    )
    return version("hybrid-lm") + (f" {done.stdout.strip()}" if done.returncode == 0 else "")


def now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%MZ}"


def command_line() -> str:
    """The command without this machine's folders, for publication."""
    words = [Path(word).name if "/" in word else word for word in sys.argv[1:]]
    return " ".join(["python benchmarks/compare.py", *(f'"{word}"' if " " in word else word for word in words)])


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
