"""Several models behind one address of `hybrid serve`: random requests, a bound of memory, kill -9 and a new start.

    python benchmarks/household.py MODEL.gguf... --memory 2G [--requests 2000] [--clients 6] [--seed 0]
    python benchmarks/household.py MODEL.gguf... --gaps         # streams of the first beside prompts of the last
    python benchmarks/household.py MODEL.gguf... --wake         # from asleep to the first token, for each

The first form sends requests for models at random: new texts, and conversations that go on. No answer may have a 5xx
status, the resident memory must stay within the bound, a text that comes again must not be read again, also after its
model has left the memory, and every 50th answer is asked again from its model alone, where it must be the same. In the
middle the server is killed with SIGKILL and started again. Exits with 1 if anything is wrong.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
from servers import Running, ours

from hybrid.infer.memory.cache_store import WORTH_FETCHING
from hybrid.quant.ggml.byte_sizes import parse_size, size_text

WORDS = """state space model memory attention token layer reads keeps forgets writes long short text table number river
stone bread letter window answer question machine garden winter music""".split()  # noqa: SIM905
CHECKED = 25  # of 25 answers to new texts, which are half of all answers, one is asked again alone
WAIT = 600.0
WINDOW = 8.0  # seconds of a stream whose rate is measured
LONG = 4000  # tokens of the prompt that is read beside a stream


@dataclass
class Tally:
    """What the requests have shown."""

    n: int = 0
    wrong: list[str] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    n_again: int = 0
    n_read_again: int = 0
    most_memory: int = 0
    checked: list[tuple[str, dict[str, Any], str]] = field(default_factory=list)


@dataclass
class Text:
    """A growing text of one model: all questions and answers so far."""

    model: str
    text: str
    n_tokens: int = 0


def words(rng: random.Random, n: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(n))


async def client(http: httpx.AsyncClient, names: Sequence[str], rng: random.Random, n: int, tally: Tally) -> None:
    """Sends n requests, one after the other."""
    known: list[Text] = []
    for _ in range(n):
        if known and rng.random() < 0.5:
            text = rng.choice(known)
            text.text += " " + words(rng, 5)
        else:
            text = Text(rng.choice(names), words(rng, rng.choice((10, 40, 120))))
            known.append(text)
        body = {"model": text.model, "prompt": text.text, "max_tokens": rng.choice((1, 4, 12)), "temperature": 0}
        try:
            reply = await http.post("/v1/completions", json=body)
        except httpx.TransportError as error:
            tally.wrong.append(f"{text.model}: {error!r}")
            continue
        tally.n += 1
        tally.statuses[reply.status_code] = tally.statuses.get(reply.status_code, 0) + 1
        if reply.status_code != 200:
            tally.wrong.append(f"{text.model}: {reply.status_code} {reply.text[:200]}")
            continue
        answer = reply.json()
        usage, said = answer["usage"], answer["choices"][0]["text"]
        if text.n_tokens:
            tally.n_again += 1
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            # fewer tokens are not fetched from disk, and the last tokens of a text may join with the next text
            if cached < text.n_tokens - WORTH_FETCHING - 4:
                tally.n_read_again += 1
                tally.wrong.append(f"{text.model}: {text.n_tokens - cached} of {text.n_tokens} tokens are read again")
        elif (tally.n - tally.n_again) % CHECKED == 0:  # a text with answers in it counts as their tokens here
            tally.checked.append((text.model, body, said))
        text.text += said
        text.n_tokens = usage["prompt_tokens"] + usage["completion_tokens"] - 1


async def watched(server: Running, tally: Tally, over: asyncio.Event) -> None:
    """Samples the memory."""
    while not over.is_set():
        tally.most_memory = max(tally.most_memory, server.memory())
        await asyncio.sleep(0.2)


async def soak(server: Running, names: Sequence[str], options: argparse.Namespace, tally: Tally, seed: int) -> None:
    """Half of the requests."""
    over = asyncio.Event()
    watch = asyncio.ensure_future(watched(server, tally, over))
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=WAIT) as http:
        each = options.requests // 2 // options.clients
        await asyncio.gather(
            *(client(http, names, random.Random(f"{seed} {i}"), each, tally) for i in range(options.clients))
        )
    over.set()
    await watch


def alone(files: dict[str, Path], tally: Tally, context: int) -> None:
    """Asks some of the requests again, from each model alone."""
    for name, path in files.items():
        asked = [(body, said) for model, body, said in tally.checked if model == name]
        if not asked:
            continue
        with ours(path, "-c", context, "--parallel", 1, "--checkpoint-budget", 0) as server:
            for body, said in asked:
                reply = httpx.post(f"http://127.0.0.1:{server.port}/v1/completions", json=body, timeout=WAIT)
                if (text := reply.json()["choices"][0]["text"]) != said:
                    tally.wrong.append(f"{name}: {said!r} in the household, {text!r} alone, to {body['prompt'][:60]!r}")


def run_soak(files: dict[str, Path], options: argparse.Namespace) -> int:
    """The soak; returns the exit code."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        words_of = [*(f"{name}={path}" for name, path in files.items()), "-c", options.ctx, "--parallel", 4]
        words_of += ["--queue", 64, "--memory", options.memory, "--state-dir", folder, "--checkpoint-budget", "64MiB"]
        for half in range(2):
            with ours(Path(str(words_of[0])), *words_of[1:]) as server:
                asyncio.run(soak(server, [*files], options, tally, 2 * options.seed + half))
                if half == 0:
                    server.process.kill()
    alone(files, tally, options.ctx)
    bound = parse_size(options.memory, "--memory")
    if tally.most_memory > bound:
        tally.wrong.append(f"{size_text(tally.most_memory)} of memory, {size_text(bound)} allowed")
    print(
        f"{tally.n} requests for {len(files)} models, statuses {tally.statuses}; memory at most "
        f"{size_text(tally.most_memory)} of {size_text(bound)}; {tally.n_again} texts came again, {tally.n_read_again} "
        f"were read again in part; {len(tally.checked)} answers compared with the model alone"
    )
    for line in tally.wrong[:20]:
        print(line)
    print(f"{len(tally.wrong)} faults")
    return 1 if tally.wrong else 0


async def stream(http: httpx.AsyncClient, model: str, n: int, times: list[float]) -> None:
    """Streams an answer of n tokens; notes when each piece came."""
    body = {"model": model, "prompt": "A river", "max_tokens": n, "stream": True, "ignore_eos": True, "temperature": 0}
    async with http.stream("POST", "/v1/completions", json=body) as reply:
        async for line in reply.aiter_lines():
            if line.startswith("data: {") and json.loads(line[6:])["choices"]:
                times.append(time.perf_counter())


async def gaps(server: Running, names: Sequence[str]) -> None:
    """The pauses of a stream of the first model, alone and while the last one reads prompts; and rates."""
    first, last = names[0], names[-1]
    rng = random.Random(0)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=WAIT) as http:
        for name in (first, last):
            await http.post("/v1/completions", json={"model": name, "prompt": words(rng, 300), "max_tokens": 4})
        for label in ("alone", f"beside prompts of {last}"):
            times: list[float] = []
            task = asyncio.ensure_future(stream(http, first, 300, times))
            n_read, begin = 0, time.perf_counter()
            while label != "alone" and not task.done():
                body = {"model": last, "prompt": words(rng, LONG), "max_tokens": 1, "truncate_prompt_tokens": LONG}
                n_read += (await http.post("/v1/completions", json=body)).json()["usage"]["prompt_tokens"]
            seconds = time.perf_counter() - begin
            await task
            pauses = sorted(b - a for a, b in pairwise(times))
            told = [f"{1000 * pauses[int(share * (len(pauses) - 1))]:.0f} ms" for share in (0.5, 0.99, 1)]
            rate = (len(times) - 1) / (times[-1] - times[0])
            more = f"; prompts read at {n_read / seconds:.0f} tokens/s meanwhile" if n_read else ""
            print(f"{first} {label}: median gap {told[0]}, p99 {told[1]}, longest {told[2]}; {rate:.1f} tokens/s{more}")
        await both_rates(http, first, last)


async def both_rates(http: httpx.AsyncClient, first: str, last: str) -> None:
    """Rates of generation, each alone and both at once, in windows of the same length."""

    async def rate(name: str) -> float:
        times: list[float] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(WINDOW):
                await stream(http, name, 6000, times)
        return (len(times) - 1) / (times[-1] - times[0])

    shares, alone_rates = [], list[list[float]]()
    for _ in range(3):
        alone_rates.append([await rate(first), await rate(last)])
        together = await asyncio.gather(rate(first), rate(last))
        shares.append(sum(a / b for a, b in zip(together, alone_rates[-1], strict=True)))
    told = ", ".join(f"{statistics.median(rates):.1f}" for rates in zip(*alone_rates, strict=True))
    print(f"answers at once: {told} tokens/s alone; together {statistics.median(shares):.2f} of taking turns")


def wake(server: Running, names: Sequence[str]) -> None:
    """From asleep to the first token, and the memory that an asleep model keeps."""
    url = f"http://127.0.0.1:{server.port}"
    for name in names:
        seconds, kept = [], []
        for _ in range(5):
            before = server.memory()
            begin = time.perf_counter()
            body = {"model": name, "prompt": "A river", "max_tokens": 1}
            assert httpx.post(f"{url}/v1/completions", json=body, timeout=WAIT).status_code == 200
            seconds.append(time.perf_counter() - begin)
            httpx.post(f"{url}/models/unload", json={"model": name}, timeout=WAIT)
            kept.append(server.memory() - before)
        told = [size_text(max(0, size)) for size in (kept[0], sum(kept[1:]))]
        print(
            f"{name}: first token {seconds[0]:.2f} s after the first load, {statistics.median(seconds[1:]):.2f} s "
            f"after waking; asleep it keeps {told[0]} at first, {told[1]} more later"
        )


def main() -> int:
    """Runs what the command line asks for; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--memory", default="4G")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--ctx", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gaps", action="store_true")
    parser.add_argument("--wake", action="store_true")
    options = parser.parse_args()
    files = {path.stem: path for path in options.models}
    if not (options.gaps or options.wake):
        return run_soak(files, options)
    with ExitStack() as stack:
        context = 8192 if options.gaps else options.ctx
        server = stack.enter_context(ours(options.models[0], *options.models[1:], "-c", context))
        if options.gaps:
            asyncio.run(gaps(server, [*files]))
        if options.wake:
            wake(server, [*files])
    return 0


if __name__ == "__main__":
    sys.exit(main())
