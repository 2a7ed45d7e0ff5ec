"""Costs of threads: per op, beside a busy neighbour, with a thread too many, with a core too few.

    python benchmarks/threads.py                                  cost of an op, of a run, of a wake-up
    python benchmarks/threads.py --model m.gguf                   and how a neighbour slows a model
    python benchmarks/threads.py --model m.gguf --peer DIR        DIR holds llama-bench

The neighbour is one other process that computes all the time; the system decides where it runs. Quiet and disturbed
runs alternate, and the medians of the rounds are compared. `crowded` is one thread more than there are cores; in `one
core` the process is confined to a single core, with as many threads as before.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import numpy as np

from hybrid.infer import LoadedModel
from hybrid.infer.bench.tables import markdown_table
from hybrid.infer.kernels.build.jit import kernel
from hybrid.infer.program.builder import Batch, Builder
from hybrid.infer.program.threads import Pool, default_threads
from hybrid.quant.ggml.errors import HybridError

NEIGHBOUR = "x = 1\nwhile True:\n    x = (x * 1103515245 + 12345) % 2147483648\n"
Measure = Callable[[], dict[str, float]]


@contextlib.contextmanager
def neighbour() -> Iterator[None]:
    """One other process that computes all the time."""
    process = subprocess.Popen([sys.executable, "-S", "-c", NEIGHBOUR])
    try:
        time.sleep(0.1)
        yield
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Confine all threads of this process to one core."""
    before = os.sched_getaffinity(0)
    _confine({min(before)})
    try:
        yield
    finally:
        _confine(before)


def _confine(cpus: set[int]) -> None:
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            os.sched_setaffinity(int(task.name), cpus)


@kernel
def nothing(a, tid, nth):
    """Does nothing."""


def empty_program(n_ops: int, n_threads: int):
    """A program of ops that do nothing."""
    b = Builder(1, n_threads, exact=False, batch=Batch(*[0] * 12))
    for _ in range(n_ops):
        b.op(nothing)
    program = b.build()
    program.link()
    return program


def op_costs(n_threads: int) -> tuple[float, float]:
    """Microseconds of one op in a long program, and of a run of a single op, including waking the other threads."""
    pool = Pool(n_threads)
    long, short = empty_program(5000, n_threads), empty_program(1, n_threads)
    per_op, per_run = [], []
    for _ in range(30):
        begin = time.perf_counter()
        pool.run(long, stoppable=False)
        per_op.append((time.perf_counter() - begin) / 5000)
        time.sleep(0.002)
        begin = time.perf_counter()
        pool.run(short, stoppable=False)
        per_run.append(time.perf_counter() - begin)
    pool.close()
    return median(per_op) * 1e6, median(per_run) * 1e6


def speeds(model: LoadedModel, n_prompt: int, n_gen: int) -> dict[str, float]:
    """Tokens per second of a prompt and of a generation."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(model.n_vocab, size=n_prompt + n_gen).tolist()
    seq = model.sequence()
    try:
        begin = time.perf_counter()
        seq.prefill(tokens[:n_prompt])
        middle = time.perf_counter()
        for token in tokens[n_prompt:]:
            seq.decode(token)
        end = time.perf_counter()
    finally:
        seq.close()
    return {"prompt": n_prompt / (middle - begin), "generation": n_gen / (end - middle)}


def peer_speeds(peer: Path, path: Path, n_prompt: int, n_gen: int, n_threads: int) -> dict[str, float]:
    """The same from llama-bench, one repetition."""
    command = [peer / "llama-bench", "-m", path, "-p", n_prompt, "-n", n_gen, "-t", n_threads, "-r", 1, "-o", "json"]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True)
    return {"prompt" if r["n_prompt"] else "generation": float(r["avg_ts"]) for r in json.loads(done.stdout)}


def compare(measure: Measure, disturbed: Callable[[], contextlib.AbstractContextManager[None]], rounds: int):
    """Median rates (quiet, disturbed) by test, measured in turn."""
    seen: dict[str, tuple[list[float], list[float]]] = {}
    for _ in range(rounds):
        for i, how in enumerate((contextlib.nullcontext, disturbed)):
            with how():
                for test, rate in measure().items():
                    seen.setdefault(test, ([], []))[i].append(rate)
    return {test: (median(quiet), median(loud)) for test, (quiet, loud) in seen.items()}


def model_rows(args: argparse.Namespace) -> list[tuple[str, ...]]:
    """One row per program, disturbance and test: quiet rate, disturbed rate, remaining share."""
    rows: list[tuple[str, ...]] = []

    def add(who: str, what: str, rates: dict[str, tuple[float, float]]) -> None:
        for test, (quiet, loud) in rates.items():
            rows.append((who, what, test, f"{quiet:.1f}", f"{loud:.1f}", f"{100 * loud / quiet:.0f} %"))
            print("  ".join(rows[-1]), file=sys.stderr)

    sizes = args.prompt, args.gen
    if "ours" in args.sides:
        with LoadedModel.load(args.model, n_ctx=sum(sizes), n_threads=args.threads) as model:
            speeds(model, *sizes)
            if "neighbour" in args.what:
                add("hybrid", "busy neighbour", compare(lambda: speeds(model, *sizes), neighbour, args.rounds))
            if "one-core" in args.what:
                add("hybrid", "one core", compare(lambda: speeds(model, *sizes), one_core, args.rounds))
            if "crowded" in args.what:
                with LoadedModel.load(args.model, n_ctx=sum(sizes), n_threads=args.threads + 1) as crowded:
                    speeds(crowded, *sizes)
                    rounds = [(speeds(model, *sizes), speeds(crowded, *sizes)) for _ in range(args.rounds)]
                    middle = {
                        test: (median(alone[test] for alone, _ in rounds), median(many[test] for _, many in rounds))
                        for test in rounds[0][0]
                    }
                    add("hybrid", "crowded", middle)
    if args.peer:
        measure = lambda: peer_speeds(args.peer, args.model, *sizes, args.threads)
        add("llama.cpp", "busy neighbour", compare(measure, neighbour, args.rounds))
    return rows


def main() -> int:
    """Measure and print; exit code 1 or 2 with one line on bad input."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, help="GGUF file to measure with")
    parser.add_argument("--peer", type=Path, help="folder of llama-bench")
    parser.add_argument("-p", dest="prompt", type=int, default=512)
    parser.add_argument("-n", dest="gen", type=int, default=64)
    parser.add_argument("-t", dest="threads", type=int, default=default_threads())
    parser.add_argument("-r", dest="rounds", type=int, default=5)
    parser.add_argument("--what", default="neighbour,one-core,crowded", help="which disturbances, separated by commas")
    parser.add_argument("--sides", default="ours", help="ours, or empty for the peer alone")
    args = parser.parse_args()
    try:
        if args.model is None:
            rows = []
            for n in sorted({1, args.threads, args.threads + 1}):
                per_op, per_run = op_costs(n)
                rows.append((str(n), f"{per_op:.3f}", f"{per_run:.1f}"))
            print(markdown_table(("threads", "us per op", "us per run of one op after 2 ms of rest"), rows))
        else:
            head = ("program", "disturbance", "test", "quiet tok/s", "disturbed", "left")
            print(markdown_table(head, model_rows(args), left=3))
    except HybridError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
