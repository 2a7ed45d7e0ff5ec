"""The costs of `hybrid run -f FILE --cluster`, and how well it divides the work.

    python benchmarks/cluster.py simulate [--workers 100] [--documents 10] [--seconds 400] [--seed 0]
    python benchmarks/cluster.py tasks [--workers 2]
    python benchmarks/cluster.py throughput MODEL.gguf [--workers 2] [--prompts 32] [--tokens 32] [--rounds 3]
    python benchmarks/cluster.py stages MODEL.gguf [--workers 2] [--answers 4 16 32] [--tokens 32] [--rounds 3]

simulate    Dask's own scheduler and the given number of workers in this process, which wait instead of generating:
            speeds are log-normal (sigma 0.5), lengths unknown, a tenth of the workers dies. Prints the time beside that
            of lossless division among the speeds. All is one process, which is the limit above some 30 answers a second
tasks       seconds per answer without any generation: the cost of Dask, the events and the order of the output
throughput  answers per second of one process with as many threads as workers, and of workers with one thread each
stages      tokens per second of answers that a model in stages generates together: with one pass at a time, and with as
            many passes in flight as stages; each worker has one thread. Beside it one process with one thread: the
            additional time of a pass is the communication between processes
"""

import argparse
import io
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import dask
import numpy as np
from distributed import LocalCluster, Worker, get_worker
from quiet import Watch

from hybrid.cli.cluster import prompt_worker, prompts
from hybrid.cli.cluster.connection import connected
from hybrid.cli.cluster.prompt_worker import Answered, Beginning
from hybrid.cli.cluster.prompts import ClusterBatch
from hybrid.cli.cluster.stages import staged
from hybrid.cli.options.cluster_options import ClusterAddress
from hybrid.infer import LoadedModel, LoadOptions
from hybrid.infer.answers.batch.batcher import Job, answer_all
from hybrid.infer.answers.drawing.drawing import Drawing
from hybrid.infer.answers.prompt_files.prompt_files import PromptLine
from hybrid.infer.answers.prompt_files.prompt_groups import DRAWN, plan
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.bench.machine import cpu_name
from hybrid.infer.stages.staged_runner import StagedRunner

DOCUMENT, QUESTION, MOST_DRAWN, QUESTIONS = 200, 7, 128, 8  # tokens; questions about each document
SIGMA = 0.5  # of the logarithm of speeds
READ: list[int] = []  # one entry for each time that a simulated worker reads a document


class StubBatch:
    """The parts of a `PromptBatch` that the client needs. tokens: of each prompt."""

    n_samples, max_tokens = 1, MOST_DRAWN

    def __init__(self, tokens: list[list[int]]) -> None:
        self.tokens = tokens

    def ids(self, prompt: PromptLine) -> list[int]:
        return self.tokens[prompt.index]

    def key(self, prompt: PromptLine, _sample: int) -> str:
        return str(prompt.index)


def stub_answer(
    key: str, number: int, line: str, alone: bool, _parts: tuple[int, ...] = (), _beginning: Beginning | None = None
) -> Answered:
    """Runs on a worker: waits as long as generating would take; a worker reads the beginning of a prompt once."""
    worker = get_worker()
    told = json.loads(line)
    if not alone:
        worker.log_event(key, number)
    known = worker.__dict__.setdefault("stub_known", set())
    seconds = told["own"]
    if told["document"] not in known:
        known.add(told["document"])
        READ.append(told["document"])
        seconds += told["shared"]
    time.sleep(seconds / getattr(type(worker), "stub_speeds", {}).get(worker.name, 1.0))
    return Answered(line, (0,) * 6)


def answered(cluster: LocalCluster, tokens: list[list[int]], lines: list[str]) -> tuple[float, list[str]]:
    """Seconds of all answers, and the notes."""
    prompts = [PromptLine(i, "", None, line=line) for i, line in enumerate(lines)]
    notes: list[str] = []
    out = io.StringIO()
    address = ClusterAddress(cluster.scheduler_address, "address", cluster.scheduler_address)
    with connected(address) as connection:
        batch: Any = StubBatch(tokens)
        start = time.perf_counter()
        ClusterBatch(connection, batch, "stub", notes.append).run(prompts, out)
        seconds = time.perf_counter() - start
    assert out.getvalue().splitlines() == lines, "every answer, in order"
    return seconds, notes


@contextmanager
def in_this_process(n: int) -> Iterator[LocalCluster]:
    # otherwise each worker samples the process and its disks twice a second, and its threads a hundred times
    with dask.config.set(
        {"distributed.admin.system-monitor.interval": "1h", "distributed.worker.profile.enabled": False}
    ):
        cluster = LocalCluster(
            n_workers=n,
            threads_per_worker=1,
            processes=False,
            protocol="tcp://",
            host="127.0.0.1",
            dashboard_address=None,
            silence_logs=60,
            memory_limit=0,
        )
        try:
            yield cluster
        finally:
            with suppress(TimeoutError):  # closing that many takes long
                cluster.close()


def simulate(n: int, n_documents: int, seconds: float, seed: int) -> None:
    """Print the time beside the ideal one."""
    rng = np.random.default_rng(seed)
    n_documents *= n
    documents = [[1, *rng.integers(10, 1000, DOCUMENT).tolist()] for _ in range(n_documents)]
    asked = rng.permutation(np.repeat(np.arange(n_documents), QUESTIONS))
    tokens = [[*documents[d], *rng.integers(1000, 2000, QUESTION).tolist()] for d in asked]
    drawn = DRAWN * rng.integers(20, MOST_DRAWN + 1, len(tokens))  # the client knows only the maximum of 128
    speeds = rng.lognormal(0, SIGMA, n)
    own = QUESTION + drawn
    shared = {i: g.shared for g in plan(tokens, MOST_DRAWN, n) for i in g.members}
    work = float(own.sum()) + n_documents * (DOCUMENT + 1)  # every document is read once
    scale = seconds * float(speeds.sum()) / work
    prompts.PROMPT_RATE = 1 / scale  # of a worker with speed 1
    lines = [
        json.dumps({"own": own[i] * scale, "shared": shared[i] * scale, "document": int(asked[i])})
        for i in range(len(tokens))
    ]
    with in_this_process(n) as cluster:
        Worker.stub_speeds = {i: float(s) for i, s in enumerate(speeds)}
        died: list[int] = []

        def die(name: int) -> None:
            worker = cluster.workers.pop(name, None)
            if worker is None:  # it died before, and is not back yet
                return
            died.append(name)
            Worker.stub_speeds[n - 1 + len(died)] = float(speeds[name])  # its name after the restart

            for executor in worker.executors.values():  # a killed process does not finish its task
                executor.shutdown = lambda *_, **__: None

            async def lost() -> None:
                await cluster.scheduler.remove_worker(worker.address, stimulus_id=f"died-{name}", safe=False)
                cluster.scale(n)  # restarts it

            cluster.loop.add_callback(lost)

        timers = [
            threading.Timer(float(rng.uniform(0.05, 0.9)) * seconds, die, [int(name)])
            for name in rng.choice(n, n // 10, replace=False)
        ]
        for timer in timers:
            timer.start()
        computed = time.process_time()
        took, notes = answered(cluster, tokens, lines)
        computed = time.process_time() - computed
        for timer in timers:
            timer.cancel()
        print(
            f"{len(tokens)} answers about {n_documents} documents, {n} workers, {len(died)} of which died: "
            f"{took:.1f} s, {took / seconds:.3f} of the ideal {seconds:.1f} s; every document read by "
            f"{len(READ) / n_documents:.2f} workers; {len(notes)} notes; "
            f"{computed / took:.2f} cores computed",
            flush=True,
        )


def tasks(n: int) -> None:
    """Print the time per answer."""
    tokens = [[1, *range(10 * i, 10 * i + 5)] for i in range(2000)]
    line = json.dumps({"own": 0, "shared": 0, "document": 0})
    with LocalCluster(
        n_workers=n,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address=":0",
        silence_logs=60,
        worker_dashboard_address=None,
    ) as cluster:
        answered(cluster, tokens[:200], [line] * 200)
        took, _ = answered(cluster, tokens, [line] * len(tokens))
    print(f"{len(tokens)} answers that take no time, {n} workers: {took / len(tokens) * 1e3:.2f} ms each")


def throughput(model: Path, n: int, n_prompts: int, n_tokens: int, rounds: int) -> None:
    """Print answers per second of both, medians of alternating rounds. Starting is not included: see `timed`."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "prompts.jsonl"

        def timed(count: int, *more: str) -> float:
            text = "".join(json.dumps({"prompt": f"{i} of the states that are kept are"}) + "\n" for i in range(count))
            file.write_text(text)
            words = ["run", str(model), "-f", str(file), "-n", str(n_tokens), "-c", "512", "--seed", "1", *more]
            start = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "hybrid.cli", *words, "-o", str(Path(folder) / f"{time.monotonic_ns()}.jsonl")],
                check=True,
                capture_output=True,
            )
            return time.perf_counter() - start

        ways = {
            f"one process, {n} threads": ("-t", str(n), "--parallel", "8"),
            f"{n} processes": ("--cluster", f"local:{n}", "--parallel", "8"),
        }
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for i in range(rounds + 1):  # the first round compiles
            for name, more in ways.items():
                few = timed(n, *more)  # the time to start, and for one answer of each
                all_of_them = timed(n_prompts, *more)
                if i:
                    rates[name].append((n_prompts - n) / (all_of_them - few))
        for name, found in rates.items():
            spread = max(found) / min(found) - 1
            print(f"{name}: {median(found):.2f} answers/s of {n_tokens} tokens, spread {spread:.0%}")
        one, many = (median(found) for found in rates.values())
        print(f"ratio {many / one:.2f}")


def stages(path: Path, n: int, n_answers: list[int], n_tokens: int, rounds: int) -> None:
    """Print the rates for each number of answers."""
    most, depth = max(n_answers), StagedRunner.depth
    options = LoadOptions(n_ctx=2 * n_tokens, n_seq_max=most, n_threads=1, checkpoint_budget=0)
    address = ClusterAddress("local", f"local:{n}", n_workers=n)
    with staged(path, options, address, n, print) as parts, LoadedModel.load(path, options) as whole:
        prompts = np.random.default_rng(0).integers(300, 1000, (most, 4)).tolist()

        def rate(model: LoadedModel, n_jobs: int) -> float:
            jobs = []
            for ids in prompts[:n_jobs]:
                drawing = Drawing(Sampler(SamplingParams(temp=0), model.n_vocab), model.tokenizer, n_tokens, [], True)
                jobs.append(Job(ids, drawing))
            start = time.perf_counter()
            answer_all(model, jobs, n_jobs)
            return n_jobs * n_tokens / (time.perf_counter() - start)

        for n_jobs in n_answers:
            whole_rates, one_rates, many_rates = list[float](), list[float](), list[float]()
            for _ in range(rounds + 1):  # the first round compiles
                whole_rates.append(rate(whole, n_jobs))
                StagedRunner.depth = property(lambda _: 1)  # type: ignore[assignment, method-assign]
                one_rates.append(rate(parts, n_jobs))
                StagedRunner.depth = depth  # type: ignore[method-assign]
                many_rates.append(rate(parts, n_jobs))
            alone, one, many = (median(found[1:]) for found in (whole_rates, one_rates, many_rates))
            per_pass = 1e3 * n_jobs * (1 / one - 1 / alone)
            print(
                f"{n_jobs} answers: {alone:.1f} tokens/s in one process with one thread; in {n} stages {one:.1f} in "
                f"one pass ({per_pass:+.1f} ms per pass), {many:.1f} in {n}, ratio {many / one:.2f}"
            )


def main() -> None:
    """Run one of the four."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways = parser.add_subparsers(dest="way", required=True)
    way = ways.add_parser("simulate")
    way.add_argument("--workers", type=int, default=100)
    way.add_argument("--documents", type=int, default=10, help=f"per worker, with {QUESTIONS} questions about each")
    way.add_argument("--seconds", type=float, default=400.0, help="minimum time of the work")
    way.add_argument("--seed", type=int, default=0)
    way = ways.add_parser("tasks")
    way.add_argument("--workers", type=int, default=2)
    way = ways.add_parser("throughput")
    way.add_argument("model", type=Path)
    way.add_argument("--workers", type=int, default=2)
    way.add_argument("--prompts", type=int, default=32)
    way.add_argument("--tokens", type=int, default=32)
    way.add_argument("--rounds", type=int, default=3)
    way = ways.add_parser("stages")
    way.add_argument("model", type=Path)
    way.add_argument("--workers", type=int, default=2)
    way.add_argument("--answers", type=int, nargs="+", default=[4, 16, 32])
    way.add_argument("--tokens", type=int, default=32)
    way.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    prompt_worker.answer = stub_answer if given.way in ("simulate", "tasks") else prompt_worker.answer
    with Watch() as watch:
        if given.way == "simulate":
            simulate(given.workers, given.documents, given.seconds, given.seed)
        elif given.way == "tasks":
            tasks(given.workers)
        elif given.way == "stages":
            stages(given.model, given.workers, given.answers, given.tokens, given.rounds)
        else:
            throughput(given.model, given.workers, given.prompts, given.tokens, given.rounds)
    print(cpu_name() + (f"; others used {watch.usage.others:.1f} cores" if watch.usage else ""))


if __name__ == "__main__":
    sys.exit(main())
