"""Many mixed requests to `hybrid serve`: clients that leave, damaged or too large bodies, and conversations that are
sent back repeatedly.

    python benchmarks/serve_soak.py [MODEL.gguf] [--requests 20000] [--conversations 1000] [--alone 200] [--seed 0]

Every request must get its answer, and the same answer whenever it is repeated, streamed or whole. At the end `--alone`
of the answers are requested from a new server that runs one at a time, where their text and the bits of their logprobs
must be the same. The server's resident memory is sampled throughout: in the second half it should be flat. Prints the
results; exits with 1 if anything is wrong. Nothing is timed, so the machine need not be idle.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from http_connection import Connection
from servers import Running, ours
from soak_requests import (
    CHAT,
    COMPLETIONS,
    OTHERS,
    Agent,
    Answer,
    Ask,
    Parts,
    Talk,
    broken,
    completion,
    other,
    sentence,
    whole_answer,
)

from hybrid.convert import convert
from hybrid.pipeline.models import bundled_checkpoint

PARALLEL, QUEUE, CLIENTS = 4, 8, 16
OPTIONS = ("--parallel", PARALLEL, "--queue", QUEUE, "-c", 1024, "--checkpoint-budget", "32MiB")
WAIT = 300  # seconds: a request that takes longer is lost
MOST_BODY = 32 << 20
FLAT = 0.02  # permitted growth in the second half, as a share of the memory at half time
LEAST_SAMPLES, LEAST_REQUESTS = 10, 2000  # below these numbers memory is not judged


@dataclass
class Result:
    """Results of a soak. memory: samples of (requests done, resident bytes of the server, bytes of its ledger)."""

    n_done: int = 0
    n_alone: int = 0
    others: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    memory: list[tuple[int, int, int]] = field(default_factory=list)

    def growth(self) -> tuple[float, float, float] | None:
        """(bytes at half time, growth in the second half, the ledger's growth) from lines fitted to the samples. None:
        too few samples."""
        second = [sample for sample in self.memory if sample[0] >= self.n_done / 2]
        if len(second) < LEAST_SAMPLES or self.n_done < LEAST_REQUESTS:
            return None
        n, size, ledger = np.array(second, float).T
        (slope, start), of_ledger = np.polyfit(n - n[0], size, 1), np.polyfit(n - n[0], ledger, 1)[0]
        return float(start), float(slope * (n[-1] - n[0])), float(of_ledger * (n[-1] - n[0]))

    @property
    def is_flat(self) -> bool:
        """Without the ledger, which fills up to a budget of its own."""
        growth = self.growth()
        return growth is None or growth[1] - growth[2] <= FLAT * growth[0]


class Soak:
    """Sends `n` requests to a server from CLIENTS clients at a time."""

    def __init__(self, server: Running, n: int, n_talks: int, seed: int) -> None:
        self.server, self.n = server, n
        self.rng = random.Random(seed)
        self.talks: list[Talk] = [Talk(i) for i in range(n_talks)]
        self.agents: list[Talk] = [Agent(n_talks + i) for i in range(max(2, n_talks // 50))]
        self.known: dict[str, tuple[Ask, Answer]] = {}
        self.result = Result()
        self.n_vocab = 0
        self.others: list[str] = []  # the entries of OTHERS that this server has
        self._left = n

    async def run(self) -> None:
        async with Connection(self.server.port) as connection:
            _, models = await connection.ask("GET", "/v1/models")
            self.n_vocab = models["data"][0]["meta"]["n_vocab"]
            for path in OTHERS:
                one = other(self.rng, path)
                status, _ = await connection.ask("POST", path, one.body)
                self.others += [path] * (status == 200)
            self.result.others = self.others
        sampling = asyncio.ensure_future(self._sample())
        await asyncio.gather(*(self._client() for _ in range(CLIENTS)))
        sampling.cancel()
        await self._look_at_the_end()

    async def _client(self) -> None:
        connection = Connection(self.server.port)
        kinds = {
            self._turn: 30, self._agent: 15, self._complete: 18, self._again: 12, self._leave: 9, self._broken: 5,
            self._oversized: 2, self._cut: 2, self._small: 7, self._other: 8,
        }  # fmt: skip
        while self._left > 0:
            self._left -= 1
            (kind,) = self.rng.choices(list(kinds), list(kinds.values()))
            name = kind.__name__.strip("_")
            try:
                await asyncio.wait_for(kind(connection), WAIT)
            except (TimeoutError, OSError, ValueError, KeyError, IndexError, asyncio.LimitOverrunError) as error:
                self._fault(f"{name}: {type(error).__name__}: {error}")
                connection.leave()
            self.result.kinds[name] += 1
            self.result.n_done += 1
        connection.leave()

    def _fault(self, text: str) -> None:
        self.result.faults.append(text[:500])

    async def _sample(self) -> None:
        while True:
            async with Connection(self.server.port) as connection:
                _, text = await connection.ask("GET", "/metrics")
            ledger = next(float(x.split()[1]) for x in text.splitlines() if x.startswith("hybrid:ledger_bytes"))
            memory = await asyncio.to_thread(self.server.memory)
            self.result.memory.append((self.result.n_done, memory, int(ledger)))
            await asyncio.sleep(0.5)

    # --- kinds of requests ---
    async def _turn(self, connection: Connection) -> None:
        await self._next_turn(connection, self.talks)

    async def _agent(self, connection: Connection) -> None:
        if self.agents:
            await self._next_turn(connection, self.agents)

    async def _next_turn(self, connection: Connection, talks: list[Talk]) -> None:
        talk = talks.pop(self.rng.randrange(len(talks)))  # nobody else continues it meanwhile
        ask = talk.ask(self.rng)
        try:
            answer = await self._answered(connection, ask)
        except BaseException:
            talk.forget()
            raise
        else:
            talk.heard(ask, answer)
        finally:
            talks.append(talk)

    async def _complete(self, connection: Connection) -> None:
        await self._answered(connection, completion(self.rng, self.n_vocab))

    async def _other(self, connection: Connection) -> None:
        """A request of another API, if the server has one."""
        if self.others:
            await self._answered(connection, other(self.rng, self.rng.choice(self.others)))

    async def _again(self, connection: Connection) -> None:
        if self.known:
            await self._answered(connection, self.known[self.rng.choice(list(self.known))][0])

    async def _leave(self, connection: Connection) -> None:
        """Leave in the queue, while the prompt is processed, or during the answer."""
        ask = completion(self.rng, self.n_vocab) if self.rng.random() < 0.5 else Talk(-1).ask(self.rng)
        stream = self.rng.random() < 0.6
        body = {**ask.body, "max_tokens": 300, "ignore_eos": True, "stream": stream}
        await connection.send("POST", ask.path, json.dumps(body).encode())
        if stream and await connection.status() == 200:
            left = self.rng.randrange(8)
            async for _ in connection.events():
                left -= 1
                if left < 0:
                    break
        else:
            await asyncio.sleep(self.rng.random() * 0.05)
        connection.leave()

    async def _broken(self, connection: Connection) -> None:
        path, body = broken(self.rng)
        await connection.send("POST", path, body)
        await self._refused(connection, path, body)

    async def _oversized(self, connection: Connection) -> None:
        if self.rng.random() < 0.9:  # the size is only stated
            await connection.send("POST", "/v1/completions", b'{"prompt": "', stated=MOST_BODY + 1)
            await self._refused(connection, "oversized", b"")
        else:
            body = b'{"prompt": "' + b"x" * (MOST_BODY - 20) + b'"}'
            await connection.send("POST", "/v1/completions", body)
            await self._refused(connection, "a long prompt", b"")
        connection.leave()

    async def _cut(self, connection: Connection) -> None:
        """Leave within the request's body."""
        body = json.dumps({"prompt": sentence(self.rng, 40)}).encode()
        await connection.send("POST", "/v1/completions", body[:-5], stated=len(body))
        connection.leave()

    async def _small(self, connection: Connection) -> None:
        text = sentence(self.rng, 30)
        kind = self.rng.randrange(4)
        if kind == 0:
            _, tokens = await connection.ask("POST", "/tokenize", {"content": text})
            _, back = await connection.ask("POST", "/detokenize", tokens)
            if back["content"].strip() != text:
                self._fault(f"tokens of {text!r} came back as {back!r}")
            return
        method, path, want = [
            ("GET", "/health", 200),
            ("GET", "/metrics", 200),
            ("GET", "/v1/models", 200),
            ("GET", "/nothing", 404),
            ("DELETE", "/v1/models", 405),
            ("GET", "/v1/completions", 405),
        ][self.rng.randrange(6)]
        status, _ = await connection.ask(method, path)
        self.result.statuses[status] += 1
        if status != want:
            self._fault(f"{method} {path}: {status}, expected {want}")

    # --- answers ---
    async def _refused(self, connection: Connection, what: str, body: bytes) -> None:
        status = await connection.status()
        text = b"".join([part async for part in connection.parts()])
        self.result.statuses[status] += 1
        if not 400 <= status < 500 or "message" not in json.loads(text)["error"]:
            self._fault(f"{what} {body[:200]!r}: {status} {text[:200]!r}")

    async def _answered(self, connection: Connection, ask: Ask) -> Answer:
        """Ask until the queue has room."""
        stream = ask.path in (CHAT, COMPLETIONS) and self.rng.random() < 0.5
        while True:
            await connection.send("POST", ask.path, json.dumps(ask.streamed() if stream else ask.body).encode())
            status = await connection.status()
            self.result.statuses[status] += 1
            if status == 200:
                break
            text = b"".join([part async for part in connection.parts()])
            if status != 429:
                raise ValueError(f"{status} {text[:300]!r} for {ask.key[:300]}")
            await asyncio.sleep(0.05 + 0.1 * self.rng.random())
        if stream:
            parts = Parts()
            async for event in connection.events():
                if event is not None:
                    parts.add(event)
            answer = parts.answer()
        else:
            answer = whole_answer(json.loads(b"".join([part async for part in connection.parts()])))
        _, before = self.known.setdefault(ask.key, (ask, answer))
        if answer != before:
            self._fault(f"{ask.key[:300]}: answered {before!r:.300}, now {answer!r:.300}")
        return answer

    async def _look_at_the_end(self) -> None:
        """Check that nothing is left running, and that the server has reported no faults."""
        async with Connection(self.server.port) as connection:
            for _ in range(200):
                _, text = await connection.ask("GET", "/metrics")
                busy = [line for line in text.splitlines() if line.startswith("llamacpp:requests_")]
                if all(line.split()[1] == "0" for line in busy):
                    break
                await asyncio.sleep(0.1)
            else:
                self._fault(f"something is left running: {busy}")
        log = self.server.log.read_text(errors="replace")
        if "Traceback" in log or self.server.process.poll() is not None:
            self._fault(f"the server has said: {log[-400:]}")


async def ask_alone(server: Running, asks: list[tuple[Ask, Answer]], result: Result) -> None:
    """Repeat the requests, each after its conversation, one after the other."""
    async with Connection(server.port) as connection:
        for ask, want in asks:
            for one in (*ask.earlier, ask):
                status, reply = await connection.ask("POST", one.path, one.body)
                if status != 200:
                    result.faults.append(f"alone: {status} {reply!r:.300}")
                    break
            else:
                if whole_answer(reply) != want:
                    result.faults.append(f"alone {whole_answer(reply)!r:.300}, not {want!r:.300}: {ask.key[:300]}")
                result.n_alone += 1


def soak(model: Path, n: int, n_talks: int, n_alone: int, seed: int = 0) -> Result:
    """Send n requests to a server of `model`; return the result."""
    with ours(model, *OPTIONS) as server:
        one = Soak(server, n, n_talks, seed)
        asyncio.run(one.run())
    known = list(one.known.values())
    sample = random.Random(seed).sample(known, min(n_alone, len(known)))
    with ours(model, "--parallel", 1, "-c", 1024) as server:
        asyncio.run(ask_alone(server, sample, one.result))
    return one.result


def report(result: Result) -> str:
    """The result as text."""
    lines = [f"{result.n_done} requests: {', '.join(f'{n} {kind}' for kind, n in result.kinds.most_common())}"]
    lines.append(f"statuses: {', '.join(f'{n} x {status}' for status, n in sorted(result.statuses.items()))}")
    lines.append(f"{result.n_alone} answers asked alone; other routes: {', '.join(result.others) or 'none'}")
    growth = result.growth()
    if growth is None:
        lines.append("memory: too few samples")
    else:
        start, more, ledger = growth
        per_thousand = more / (result.n_done / 2) * 1000
        most = max(size for _, size, _ in result.memory)
        lines += [
            f"memory: {start / 1e6:.1f} MB at half time, {more / 1e6:+.2f} MB in the second half"
            f" ({per_thousand / 1e3:+.1f} kB per 1000 requests), of which the ledger {ledger / 1e6:+.2f} MB;"
            f" at most {most / 1e6:.1f} MB: {'flat' if result.is_flat else 'GROWS'}"
        ]
    lines.append(f"faults: {len(result.faults)}")
    return "\n".join(lines + [f"  {fault}" for fault in result.faults[:20]])


def main() -> int:
    """Print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?", help="a GGUF file with a chat template (default: bundled)")
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--conversations", type=int, default=1000)
    parser.add_argument("--alone", type=int, default=200, help="answers repeated alone (default: 200)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--memory", type=Path, help="write memory samples to this file, as JSON")
    given: Any = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = given.model
        if model is None:
            model = Path(folder) / "bundled.gguf"
            convert(bundled_checkpoint(), model, outtype="bf16")
        result = soak(model, given.requests, given.conversations, given.alone, given.seed)
    if given.memory:
        given.memory.write_text(json.dumps(result.memory))
    print(report(result))
    return int(bool(result.faults) or not result.is_flat)


if __name__ == "__main__":
    sys.exit(main())
