"""The measured programs, ours and llama.cpp's: their command lines, and the parsing of their output."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hybrid.infer.bench.benchmark import BenchTest
from hybrid.quant.ggml.errors import UsageError

_FINAL = re.compile(r"Final estimate: PPL = (\S+) \+/- (\S+)")
LARGE_FILE = 1 << 30
FIRST_PROMPT = 8
"""Tokens of the prompt that takes the place of warm-ups with files of that size; its rate is not used."""


@dataclass
class Programs:
    """A folder with a side's programs. `name` is for messages."""

    name: str
    folder: Path
    version: str = ""

    def tool(self, name: str) -> str:
        """Path of a program. Raises UsageError if it does not exist."""
        path = self.folder / name
        if not path.exists():
            raise UsageError(f"{path}: no such program. {self.name} is expected in that folder.")
        return str(path)


@dataclass
class Hybrid(Programs):
    """Our program. `options` are added to every call."""

    options: Sequence[str] = field(default_factory=list)

    def rates(self, path: Path, tests: Sequence[BenchTest], threads: int) -> dict[str, float]:
        """Tokens per second by test name. All tests have the same depth."""
        words = [self.tool("hybrid"), "bench", str(path), "--no-start", *lists(tests, large(path, tests))]
        words += ["-np", listed(t.n_parallel for t in tests if t.n_gen)] if any(t.n_parallel > 1 for t in tests) else []
        out, _ = command([*words, *common(large(path, tests), threads), *self.options])
        return parse_bench(out)[0]

    def warm_up(self, path: Path, threads: int) -> None:
        """Compile missing kernels, and bring the file into memory."""
        words = [self.tool("hybrid"), "bench", str(path), "--no-start", "-p", "16", "-n", "2", "-t", str(threads)]
        command([*words, "-r", "1", *self.options])

    def perplexity(self, path: Path, text: Path, context: int, threads: int, chunks: int = 0) -> dict[str, float]:
        words = [self.tool("hybrid"), "perplexity", str(path), "-f", str(text), "-c", str(context), "--json"]
        words += ["-t", str(threads), *(["--chunks", str(chunks)] if chunks else []), *self.options]
        out, seconds = command(words)
        result = json.loads(out)
        return {"ppl": result["ppl"], "stderr": result["stderr"], "seconds": seconds}


@dataclass
class LlamaCpp(Programs):
    """llama.cpp: llama-bench, llama-batched-bench and llama-perplexity."""

    def rates(self, path: Path, tests: Sequence[BenchTest], threads: int) -> dict[str, float]:
        """Tokens per second by test name. All tests have the same depth."""
        if any(test.n_parallel > 1 for test in tests):
            return self._batched(path, tests, threads)
        words = [*lists(tests, large(path, tests)), *common(large(path, tests), threads)]
        out, _ = command([self.tool("llama-bench"), "-m", str(path), *words])
        rates, commit = parse_bench(out)
        if commit:
            self.version = commit
        return rates

    def _batched(self, path: Path, tests: Sequence[BenchTest], threads: int) -> dict[str, float]:
        """llama-batched-bench cannot start with an empty memory: depth 0 is measured after one token."""
        depth, n_gen = tests[0].n_depth, max(test.n_gen for test in tests)
        together = [test.n_parallel for test in tests]
        # its context is divided among the sequences, in multiples of 256
        context = max(together) * (-(-(max(1, depth) + n_gen) // 256) * 256)
        out, _ = command([
            self.tool("llama-batched-bench"), "-m", str(path), "-c", str(context), "-npp", str(max(1, depth)),
            "-ntg", listed(t.n_gen for t in tests), "-npl", listed(together), "-t", str(threads),
            "--output-format", "jsonl",
        ])  # fmt: skip
        return parse_batched(out)

    def perplexity(self, path: Path, text: Path, context: int, threads: int) -> dict[str, float]:
        words = [self.tool("llama-perplexity"), "-m", str(path), "-f", str(text), "-c", str(context)]
        out, seconds = command([*words, "-t", str(threads)])
        match = _FINAL.search(out)
        if match is None:
            raise UsageError(f"llama-perplexity gave no estimate for {path.name}. Is the text long enough?")
        return {"ppl": float(match[1]), "stderr": float(match[2]), "seconds": seconds}


def large(path: Path, tests: Sequence[BenchTest]) -> bool:
    """Whether warm-ups take too long: a short prompt then comes first, which also reads all weights.

    The warm-up of a generation is one token, so it stays.
    """
    return path.stat().st_size >= LARGE_FILE and any(test.n_prompt for test in tests)


def lists(tests: Sequence[BenchTest], is_large: bool = False) -> list[str]:
    """The options -p, -n and -d of both bench programs."""
    prompts = [FIRST_PROMPT] if is_large else []
    prompts += [t.n_prompt for t in tests if t.n_prompt]
    gens = listed(t.n_gen for t in tests if t.n_gen)
    return ["-p", listed(prompts) or "0", "-n", gens or "0", "-d", str(tests[0].n_depth)]


def common(is_large: bool, threads: int) -> list[str]:
    return ["-t", str(threads), "-r", "1", "-o", "json", *(["--no-warmup"] if is_large else [])]


def listed(values: Any) -> str:
    """'32,128,512', without repeated values."""
    return ",".join(str(value) for value in dict.fromkeys(values))


def parse_bench(text: str) -> tuple[dict[str, float], str]:
    """Tokens per second by test, and the peer's commit, from `llama-bench -o json` or `hybrid bench -o json`."""
    try:
        records = json.loads(text)
        rates = {
            BenchTest(r["n_prompt"], r["n_gen"], r["n_depth"], r.get("n_parallel", 1)).name: float(r["avg_ts"])
            for r in records
        }
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(f"a benchmark printed what is not llama-bench's JSON ({error!r}). Is it too old?") from error
    return rates, next((str(r["build_commit"]) for r in records if "build_commit" in r), "")


def parse_batched(text: str) -> dict[str, float]:
    """Tokens per second of all sequences by test, from `llama-batched-bench --output-format jsonl`.

    A prompt of one token stands for an empty one.
    """
    rates = {}
    for line in text.splitlines():
        if not line.startswith("{"):
            continue
        try:
            r = json.loads(line)
            depth = r["pp"] if r["pp"] > 1 else 0
            rates[BenchTest(0, r["tg"], depth, r["pl"]).name] = float(r["speed_tg"])
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(f"llama-batched-bench printed '{line[:60]}', which is not its JSON.") from error
    return rates


def command(words: Sequence[str], env: dict[str, str] | None = None) -> tuple[str, float]:
    """Standard output of a process (with standard error, unless it is JSON), and its wall time.

    Raises UsageError if it cannot run or fails.
    """
    start = time.perf_counter()
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", env=env or dict(os.environ))
    except OSError as error:
        raise UsageError(f"{words[0]}: cannot be run: {error.strerror}. Check --peer.") from error
    seconds = time.perf_counter() - start
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
        name = Path(words[0]).name
        raise UsageError(f"{name} {' '.join(words[1:])} failed with {done.returncode}: {lines[-1]}")
    # llama-perplexity logs its result to standard error; programs with JSON output print only that to standard output
    return (done.stdout if done.stdout.lstrip()[:1] in ("[", "{") else done.stdout + done.stderr), seconds


def ours(options: Sequence[str] = ()) -> Hybrid:
    """The `hybrid` beside this Python."""
    return Hybrid("hybrid", Path(sys.executable).parent, options=options)


def llama_cpp(folder: Path) -> LlamaCpp:
    """The programs in `folder`, which may also be one of them."""
    return LlamaCpp("llama.cpp", folder if folder.is_dir() else folder.parent)
