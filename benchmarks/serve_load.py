"""Streams over HTTP: tokens per second, time to the first token and gaps between tokens, with and without a long prompt
processed beside them; the cost of HTTP itself; and with `--peer` the same for llama-server, in turn.

    python benchmarks/serve_load.py MODEL.gguf [--peer path/to/llama-server] [--streams 1 4 8 16] [--tokens 128]
        [--prompt 64] [--beside 4000] [--rounds 3] [--json FILE]

Each stream has a new prompt of `--prompt` random tokens, and a greedy answer of `--tokens` (the end of text is
ignored). `beside`: when the first stream is a quarter through, a prompt of `--beside` random tokens with an answer of
one token arrives; gaps are then those between its arrival and its answer. Rounds of both sides alternate; figures are
medians of rounds, gaps percentiles over all of them. `in process`: the same answers from a Batcher without HTTP, as
streams of text. Tokens per second are all tokens of the answers divided by the time from the first request to the last
token.

Nothing else may compute meanwhile: the use by others is printed.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from http_connection import Connection
from quiet import Watch
from servers import ours, peer

from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.batcher import Batcher, Job
from hybrid.infer.answers.drawing.drawing import Drawing
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.bench.machine import cpu_name
from hybrid.quant.ggml.reader import GGUFFile

BUDGET = 1 << 30  # bytes of checkpoints
PERCENTILES = (50, 95, 99)
MOST_ID = 250  # random prompts use the first tokens, which every vocabulary has
STREAM = {"temperature": 0, "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}


@dataclass
class Round:
    """One round of one side, in seconds. first: time to the first token of each stream. beside: of the long prompt,
    until its answer."""

    n_tokens: int = 0
    seconds: float = 0.0
    first: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    beside: float | None = None

    @property
    def rate(self) -> float:
        return self.n_tokens / self.seconds


class Streams:
    """One round: n streams of a server, optionally with a long prompt beside them."""

    def __init__(self, port: int, prompts: Sequence[list[int]], n_tokens: int, long: list[int] | None) -> None:
        self.port, self.prompts, self.n_tokens, self.long = port, prompts, n_tokens, long
        self._times: list[list[float]] = [[] for _ in prompts]
        self._quarter = asyncio.Event()
        self._counted = 0

    async def run(self) -> Round:
        begin = time.perf_counter()
        beside = asyncio.ensure_future(self._beside()) if self.long is not None else None
        await asyncio.gather(*(self._stream(i) for i in range(len(self.prompts))))
        done = Round(self._counted, max(times[-1] for times in self._times) - begin)
        done.first = [times[0] - begin for times in self._times]
        since, until = (begin, float("inf")) if beside is None else await beside
        done.beside = None if beside is None else until - since
        for times in self._times:
            done.gaps += [b - a for a, b in pairwise(times) if b > since and a < until]
        return done

    async def _stream(self, index: int) -> None:
        body = {"prompt": self.prompts[index], "max_tokens": self.n_tokens, **STREAM}
        async with Connection(self.port) as connection:
            await connection.send("POST", "/v1/completions", json.dumps(body).encode())
            status = await connection.status()
            if status != 200:
                raise SystemExit(f"error: {status} {b''.join([part async for part in connection.parts()])!r}")
            async for event in connection.events():
                if event and "error" in event:
                    raise SystemExit(f"error: {event}")
                if event and event["choices"]:
                    self._times[index].append(time.perf_counter())
                    if len(self._times[index]) >= self.n_tokens / 4:
                        self._quarter.set()
                if event and event.get("usage"):
                    self._counted += event["usage"]["completion_tokens"]
        self._quarter.set()

    async def _beside(self) -> tuple[float, float]:
        await self._quarter.wait()
        begin = time.perf_counter()
        async with Connection(self.port) as connection:
            body = {"prompt": self.long, "max_tokens": 1, "temperature": 0}
            status, reply = await connection.ask("POST", "/v1/completions", body)
            if status != 200:
                raise SystemExit(f"error: {status} {reply}")
        return begin, time.perf_counter()


def in_process(model: LoadedModel, prompts: Sequence[list[int]], n_tokens: int) -> Round:
    """The same answers from a Batcher in this process."""
    done, times = Round(), [list[float]() for _ in prompts]
    batcher = Batcher(model.runner, len(prompts))
    jobs = []
    for ids, mine in zip(prompts, times, strict=True):
        sampler = Sampler(SamplingParams(temp=0), model.n_vocab)
        drawing = Drawing(sampler, model.tokenizer, n_tokens, [], True, None)
        jobs.append(Job(ids, drawing, remember=True, on_text=lambda _, mine=mine: mine.append(time.perf_counter())))
    begin = time.perf_counter()
    for job in jobs:
        batcher.submit(job)
    for _ in batcher.run():
        pass
    done.n_tokens, done.seconds = sum(len(job.result.ids) for job in jobs), time.perf_counter() - begin
    done.first = [mine[0] - begin for mine in times]
    done.gaps = [b - a for mine in times for a, b in pairwise(mine)]
    batcher.close()
    return done


@dataclass
class Case:
    """The rounds of one side with n streams; others: average cores used by other processes."""

    n: int
    side: str
    beside: bool
    rounds: list[Round] = field(default_factory=list)
    others: float | None = None

    def row(self, without: "Case | None") -> list[str]:
        """A row of the table. without: the same case without HTTP."""
        rates = [one.rate for one in self.rounds]
        gaps = np.array([gap for one in self.rounds for gap in one.gaps]) * 1000
        waits = [one.beside for one in self.rounds if one.beside is not None]
        cost = f"{1 - median(rates) / median(one.rate for one in without.rounds):.1%}" if without else ""
        return [
            str(self.n),
            self.side + (", long prompt beside" if self.beside else ""),
            f"{median(rates):.1f}",
            f"{max(rates) / min(rates) - 1:.0%}",
            f"{median(t for one in self.rounds for t in one.first) * 1000:.0f}",
            *(f"{np.percentile(gaps, p):.0f}" if len(gaps) else "" for p in PERCENTILES),
            f"{gaps.max(initial=0):.0f}",
            f"{median(waits):.2f}" if waits else "",
            cost,
        ]


HEAD = [
    "streams",
    "side",
    "t/s",
    "spread",
    "first token ms",
    *(f"gap p{p} ms" for p in PERCENTILES),
    "most ms",
    "long prompt s",
    "cost of HTTP",
]


class Load:
    """All cases with one number of streams. Prompts are new in every round."""

    def __init__(self, given: argparse.Namespace, n: int) -> None:
        self.given, self.n, self.rng = given, n, random.Random(n)
        self.n_ctx = max(given.prompt + given.tokens, given.beside) + 64
        self.most = min(MOST_ID, len(GGUFFile.open(given.model).metadata["tokenizer.ggml.tokens"]))

    def ids(self, n: int) -> list[int]:
        return [self.rng.randrange(3, self.most) for _ in range(n)]

    def cases(self) -> list[Case]:
        """Measure and return the cases."""
        given, n = self.given, self.n
        n_jobs = n + 1  # the long prompt has a slot of its own
        with Watch() as watch, ExitStack() as stack:
            sides: dict[str, Callable[[bool], Round]] = {}
            server = stack.enter_context(
                ours(given.model, "--parallel", n_jobs, "-c", self.n_ctx, "--checkpoint-budget", BUDGET)
            )
            sides["hybrid"] = lambda beside: self._over_http(server.port, beside)
            if given.peer:
                options = ("-np", n_jobs, "-c", self.n_ctx * n_jobs, "--no-webui")
                other = stack.enter_context(peer(given.peer, given.model, *options))
                sides["llama-server"] = lambda beside: self._over_http(other.port, beside)
            loading = {"n_ctx": self.n_ctx, "n_seq_max": n_jobs, "checkpoint_budget": BUDGET}
            model = stack.enter_context(LoadedModel.load(given.model, **loading))
            sides["in process"] = lambda _: in_process(model, [self.ids(given.prompt) for _ in range(n)], given.tokens)
            found = [Case(n, side, beside) for beside in (False, True) for side in sides]
            found = [case for case in found if not (case.beside and case.side == "in process")]
            for i in range(given.rounds + 1):  # the first round compiles and measures steps
                for case in found[:: 1 if i % 2 else -1]:
                    one = sides[case.side](case.beside)
                    if i:
                        case.rounds.append(one)
        for case in found:
            case.others = watch.usage.others if watch.usage else None
        return found

    def _over_http(self, port: int, beside: bool) -> Round:
        prompts = [self.ids(self.given.prompt) for _ in range(self.n)]
        long = self.ids(self.given.beside) if beside else None
        return asyncio.run(Streams(port, prompts, self.given.tokens, long).run())


def rows(cases: Sequence[Case]) -> Iterator[list[str]]:
    """The rows of the table."""
    alone = next((case for case in cases if case.side == "in process"), None)
    for case in cases:
        yield case.row(alone if case.side == "hybrid" and not case.beside else None)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--peer", type=Path, help="llama-server")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4, 8, 16])
    parser.add_argument("--tokens", type=int, default=128, help="tokens of an answer (default: 128)")
    parser.add_argument("--prompt", type=int, default=64, help="tokens of a stream's prompt (default: 64)")
    parser.add_argument("--beside", type=int, default=4000, help="tokens of the long prompt (default: 4000)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="append the measurements to this file, one line per row")
    given: Any = parser.parse_args()
    print(f"{given.model.name}, answers of {given.tokens} tokens; {cpu_name()}, numba {metadata.version('numba')}\n")
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * 2}{'---:|' * (len(HEAD) - 2)}")
    for n in given.streams:
        cases = Load(given, n).cases()
        for row in rows(cases):
            print(f"| {' | '.join(row)} |", flush=True)
        if cases[0].others is not None and cases[0].others > 0.25:
            print(f"| | ~ others used {cases[0].others:.1f} cores |")
        if given.json:
            with given.json.open("a", encoding="utf-8") as out:
                out.writelines(json.dumps(asdict(case)) + "\n" for case in cases)


if __name__ == "__main__":
    sys.exit(main())
