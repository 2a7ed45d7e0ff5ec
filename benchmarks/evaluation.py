"""`hybrid eval` compared with `hybrid perplexity --hellaswag`: the same tasks and right answers, and the time of both.

    python benchmarks/evaluation.py MODEL.gguf [-f tasks.txt] [-n 100] [--rounds 3] [-t 0]

Both run as commands, in turn. The time of a whole command includes its imports (the harness and its data libraries take
seconds) and loading the model. The time of the tasks alone is the difference between n tasks and one.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hellaswag_tasks
from quiet import Watch

from hybrid.infer.evaluate.hellaswag import read_tasks
from hybrid.infer.text.tokenizer import load_tokenizer
from hybrid.quant.ggml.split import open_gguf

PROSE = Path(__file__).resolve().parent.parent / "library" / "bundled" / "prose.txt"
Report = dict[str, Any]


@dataclass(frozen=True)
class Cost:
    """Seconds of wall time, and of all cores."""

    wall: float
    cpu: float

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(self.wall - other.wall, self.cpu - other.cpu)


@dataclass(frozen=True)
class Run:
    """Results of one command: the share of right answers, and the costs of one task, of all, and of the tasks alone."""

    right: float
    one: Cost
    all: Cost

    @property
    def alone(self) -> Cost:
        return self.all - self.one


def timed(*words: object) -> tuple[Cost, Report]:
    """The cost of a command, and its JSON output."""
    begin, used = time.perf_counter(), children()
    done = subprocess.run(
        [sys.executable, "-m", "hybrid.cli", *map(str, words), "--json"], capture_output=True, text=True, check=False
    )
    cost = Cost(time.perf_counter() - begin, children() - used)
    if done.returncode:
        sys.exit(done.stderr)
    return cost, json.loads(done.stdout)


def children() -> float:
    """CPU seconds of ended child processes."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="GGUF file")
    parser.add_argument(
        "-f", "--file", type=Path, help="tasks, six lines each; default: sentences of the bundled prose"
    )
    parser.add_argument("-n", type=int, default=100, help="tasks (100)")
    parser.add_argument("-c", type=int, default=512, help="context (512)")
    parser.add_argument("-t", type=int, default=0, help="threads; 0: all cores")
    parser.add_argument("--rounds", type=int, default=3, help="times that both run (3)")
    args = parser.parse_args()
    if args.file is None:
        tasks = hellaswag_tasks.from_prose(PROSE, 10 * args.n)
    else:
        tasks = read_tasks(args.file.read_text(encoding="utf-8"), str(args.file))
    with tempfile.TemporaryDirectory() as name:
        folder, file = Path(name) / "tasks", Path(name) / "tasks.txt"
        used = hellaswag_tasks.write_folder(folder, tasks, load_tokenizer(open_gguf(args.model)))[: args.n]
        file.write_text(hellaswag_tasks.as_lines(used))
        with Watch() as watch:
            rows = [measured(args, folder, file, len(used)) for _ in range(args.rounds)]
    if watch.usage is not None:
        print(f"others used {watch.usage.others:.2f} cores meanwhile", file=sys.stderr)
    show(rows, len(used))


def measured(args: argparse.Namespace, folder: Path, file: Path, n: int) -> dict[str, Run]:
    """The runs of both commands, by name."""
    load, task = ("-c", args.c, "-t", args.t), hellaswag_tasks.NAME
    results = {}
    for name, words, many, share in (
        ("perplexity", ("-f", file, "--hellaswag"), "--hellaswag-tasks", theirs),
        ("eval", ("--tasks", task, "--tasks-dir", folder), "--limit", ours),
    ):
        one, _ = timed(name, args.model, *words, *load, many, 1)
        cost, report = timed(name, args.model, *words, *load, many, n)
        results[name] = Run(share(report), one, cost)
    return results


def theirs(report: Report) -> float:
    return float(report["acc_norm"])


def ours(report: Report) -> float:
    return float(report["results"][hellaswag_tasks.NAME]["acc_norm,none"])


def show(rows: list[dict[str, Run]], n: int) -> None:
    """Print medians, with the spread of the tasks' time."""
    print(f"{n} tasks, medians of {len(rows)}, seconds\n")
    print(
        "| command | right | one task | all | tasks alone | from .. to | of all cores |\n|---|---|---|---|---|---|---|"
    )
    alone = {}
    for name in rows[0]:
        runs = [row[name] for row in rows]
        right, one, whole = (
            statistics.median(map(value, runs))
            for value in (lambda r: r.right, lambda r: r.one.wall, lambda r: r.all.wall)
        )
        walls, cpu = [run.alone.wall for run in runs], statistics.median(run.alone.cpu for run in runs)
        alone[name] = statistics.median(walls), cpu
        spread = f"{min(walls):.2f} .. {max(walls):.2f}"
        print(f"| {name} | {right:.3f} | {one:.2f} | {whole:.2f} | {alone[name][0]:.2f} | {spread} | {cpu:.2f} |")
    (theirs_, theirs_cpu), (ours_, ours_cpu) = alone.values()
    print(
        f"\neval takes {ours_ / theirs_:.2f} of the time for the tasks, {ours_cpu / theirs_cpu:.2f} of the cores' time"
    )


if __name__ == "__main__":
    main()
