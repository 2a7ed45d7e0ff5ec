"""Speed and perplexity beside llama.cpp's, on the same files, on this machine, in the same run.

    python benchmarks/compare.py                              ours alone, on a random-weight jamba-3b
    python benchmarks/compare.py --peer DIR                   DIR holds llama-bench and llama-perplexity
    python benchmarks/compare.py --peer DIR --model m.gguf --text heldout.txt --write

Both sides run as their users run them, as processes of their own, one after the other and again (A B A B ...), so that
a busy neighbour or a warm CPU meets both. What is printed is the median of the rounds, with lowest and highest.
A first run of ours, not counted, compiles the kernels.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from hybrid.cli.models import cache_dir
from hybrid.infer.bench.machine import Machine, measure_machine
from hybrid.infer.bench.params import parse_ints
from hybrid.infer.bench.shapes import find_shape, find_type, write_shape
from hybrid.infer.bench.tables import duration, markdown_table, size
from hybrid.infer.threads import default_threads
from hybrid.quant.ggml.errors import HybridError, UsageError

RESULTS = Path(__file__).with_name("RESULTS.md")
_FINAL = re.compile(r"Final estimate: PPL = (\S+) \+/- (\S+)")


@dataclass
class Side:
    """Ours or the peer: where its programs are, and what it measured."""

    name: str
    folder: Path
    version: str = ""
    rates: dict[tuple[Path, str], list[float]] = field(default_factory=dict)
    """Tokens per second of each round, by file and test."""
    ppl: dict[Path, tuple[float, float]] = field(default_factory=dict)
    seconds: dict[Path, list[float]] = field(default_factory=dict)

    def tool(self, name: str) -> str:
        path = self.folder / name
        if not path.exists():
            raise UsageError(f"{path}: no such program. {self.name} is expected in that folder.")
        return str(path)

    def add(self, path: Path, records: list[dict[str, Any]]) -> None:
        """Records of `hybrid bench -o json` or `llama-bench -o json`; the fields used have the same names."""
        for record in records:
            test = f"pp{record['n_prompt']}" if record["n_prompt"] else f"tg{record['n_gen']}"
            test += f" @ d{record['n_depth']}" if record["n_depth"] else ""
            self.rates.setdefault((path, test), []).append(float(record["avg_ts"]))
            if "build_commit" in record:
                self.version = f"llama.cpp {record['build_commit']}"


def main() -> int:
    """Measure both sides and print the tables; exit code 1 or 2 with one line on bad input."""
    args = parse_arguments()
    try:
        text = run(args)
    except HybridError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(text)
    if args.write:
        RESULTS.write_text(text)
        print(f"written to {RESULTS}", file=sys.stderr)
    return 0


def parse_arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--peer", type=Path, help="folder with llama-bench and llama-perplexity, or one of the two")
    parser.add_argument("--model", type=Path, action="append", default=[], help="a GGUF file (several times)")
    parser.add_argument("--shape", action="append", default=[], help="a random-weight model (jamba-3b without --model)")
    parser.add_argument("--type", default="Q8_0,Q4_0", help="types of the --shape files")
    parser.add_argument("-p", default="512", help="prompt lengths")
    parser.add_argument("-n", default="64", help="numbers of tokens to generate")
    parser.add_argument("-d", default="0", help="depths")
    parser.add_argument("-t", type=int, default=0, help="threads, 0: all cores")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--text", type=Path, help="also measure perplexity on this file")
    parser.add_argument("-c", type=int, default=512, help="context of the perplexity")
    parser.add_argument("--exact", action="store_true", help="ours without 8-bit activations")
    parser.add_argument("--write", action="store_true", help=f"keep the result in {RESULTS.name}")
    return parser.parse_args()


def run(args: argparse.Namespace) -> str:
    """Measure everything; the report as markdown."""
    for option, text in [("-p", args.p), ("-n", args.n), ("-d", args.d)]:
        parse_ints(text, option)
    args.t = args.t or default_threads()
    paths = [*args.model, *shape_files(args.shape or ([] if args.model else ["jamba-3b"]), args.type)]
    ours = Side("hybrid", Path(sys.executable).parent, f"hybrid-lm {version('hybrid-lm')}")
    theirs = None
    if args.peer is not None:
        theirs = Side("llama.cpp", args.peer if args.peer.is_dir() else args.peer.parent)
    machines = []
    for path in paths:
        machines += measure_speed(path, args, ours, theirs)
        if args.text is not None:
            measure_perplexity(path, args, ours, theirs)
    machine = machines[-1]
    read = median(m.read_gb_s for m in machines)
    int8 = "" if machine.int8_gop_s is None else f", {machine.int8_gop_s:.0f} Gop/s int8"
    versions = [ours.version, f"numba {version('numba')}", f"Python {sys.version.split()[0]}"]
    versions += [theirs.version] if theirs is not None else []
    parts = [
        f"# Measured {datetime.now(UTC):%Y-%m-%d %H:%M} UTC\n",
        f"{machine.cpu}, {args.t} threads. Read bandwidth {read:.1f} GB/s (median), peak {machine.f32_gflop_s:.0f} "
        f"GFLOP/s f32{int8}. {', '.join(versions)}. Median of {args.rounds} interleaved rounds (lowest - highest).\n",
        f"`{' '.join(['python benchmarks/compare.py', *arguments_without_folders()])}`\n",
        speed_table(ours, theirs, read),
    ]
    if args.text is not None:
        parts.append(f"Perplexity of {args.text.name}, context {args.c}; time of the whole process:\n")
        parts.append(perplexity_table(paths, ours, theirs))
    return "\n".join(parts)


def measure_speed(path: Path, args: argparse.Namespace, ours: Side, theirs: Side | None) -> list[Machine]:
    """All rounds of one file; the machine's limits as they were in each."""
    exact = ["--exact"] if args.exact else []
    common = ["-t", str(args.t), "-r", "1"]
    tests = ["-p", args.p, "-n", args.n, "-d", args.d, *common, "-o", "json"]
    hybrid = [ours.tool("hybrid"), "bench", str(path), "--no-state", *exact]
    note(f"{path.name}: compiling")
    command([*hybrid, "-p", "16", "-n", "2", *common])
    machines = []
    for i in range(args.rounds):
        machines.append(measure_machine(args.t))
        note(f"{path.name}: round {i + 1} of {args.rounds}")
        ours.add(path, json.loads(command([*hybrid, *tests])[0]))
        if theirs is not None:
            theirs.add(path, json.loads(command([theirs.tool("llama-bench"), "-m", str(path), *tests])[0]))
    return machines


def measure_perplexity(path: Path, args: argparse.Namespace, ours: Side, theirs: Side | None) -> None:
    """Time and result of both perplexity commands on one file, added to the sides."""
    options = ["-f", str(args.text), "-c", str(args.c), "-t", str(args.t)]
    exact = ["--exact"] if args.exact else []
    mine = [ours.tool("hybrid"), "perplexity", str(path), *options, "--json", *exact]
    command([*mine, "--chunks", "1"])
    for i in range(args.rounds):
        note(f"{path.name}: perplexity, round {i + 1} of {args.rounds}")
        out, seconds = command(mine)
        result = json.loads(out)
        ours.ppl[path] = (result["ppl"], result["stderr"])
        ours.seconds.setdefault(path, []).append(seconds)
        if theirs is not None:
            out, seconds = command([theirs.tool("llama-perplexity"), "-m", str(path), *options])
            found = _FINAL.search(out)
            if found is None:
                raise UsageError(f"llama-perplexity gave no estimate for {path.name}. Is the text long enough?")
            theirs.ppl[path] = (float(found[1]), float(found[2]))
            theirs.seconds.setdefault(path, []).append(seconds)


def shape_files(names: list[str], types: str) -> list[Path]:
    """The random-weight files, written when not there; ssm_x and ssm_dt are quantized as llama-quantize does it."""
    paths = []
    for name in names:
        for kind in types.split(","):
            target = find_type(kind)
            folder = cache_dir() / "shapes"
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{find_shape(name).name}-{target.name}-as-llama-quantize.gguf"
            if not path.exists():
                note(f"writing {path}")
                write_shape(name, path, target, ssm_f32=False)
            paths.append(path)
    return paths


def speed_table(ours: Side, theirs: Side | None, read_gb_s: float) -> str:
    """Rates, their ratio, and for a generation the share of the read bandwidth that the file's bytes per second are."""
    header = ["model", "size", "test", "hybrid t/s", *(["llama.cpp t/s", "ratio"] if theirs else []), "of bandwidth"]
    rows = []
    for (path, test), mine in ours.rates.items():
        nbytes = path.stat().st_size
        row = [path.stem, size(nbytes), test, spread(mine)]
        if theirs is not None:
            other = theirs.rates[path, test]
            row += [spread(other), f"{median(mine) / median(other):.2f}"]
        share = median(mine) * nbytes / 1e9 / read_gb_s
        rows.append([*row, f"{share:.0%}" if test.startswith("tg") else "-"])
    return markdown_table(header, rows)


def perplexity_table(paths: list[Path], ours: Side, theirs: Side | None) -> str:
    """Markdown: both figures, their times, the difference and the ratio."""
    header = ["model", "hybrid PPL", "time", *(["llama.cpp PPL", "time", "difference", "time ratio"] if theirs else [])]
    rows = []
    for path in paths:
        ppl, stderr = ours.ppl[path]
        row = [path.stem, f"{ppl:.4f} ± {stderr:.4f}", duration(median(ours.seconds[path]))]
        if theirs is not None:
            other, other_stderr = theirs.ppl[path]
            ratio = median(ours.seconds[path]) / median(theirs.seconds[path])
            row += [f"{other:.4f} ± {other_stderr:.4f}", duration(median(theirs.seconds[path]))]
            row += [f"{ppl / other - 1:+.3%}", f"{ratio:.2f}"]
        rows.append(row)
    return markdown_table(header, rows)


def spread(values: list[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f} - {max(values):.2f})"


def command(words: list[str]) -> tuple[str, float]:
    """Standard output and error of a process in one text, and its wall time. UsageError when it cannot run or fails."""
    start = time.perf_counter()
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", env=os.environ)
    except OSError as error:
        raise UsageError(f"{words[0]}: cannot be run: {error.strerror}. Check --peer.") from error
    seconds = time.perf_counter() - start
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
        raise UsageError(f"{' '.join(words)} failed with {done.returncode}: {lines[-1]}")
    # llama-perplexity logs its result to standard error; what prints JSON prints nothing else on standard output
    return (done.stdout if done.stdout.lstrip()[:1] in ("[", "{") else done.stdout + done.stderr), seconds


def arguments_without_folders() -> list[str]:
    """Our own arguments as they can be published: folders of this machine left out."""
    return [Path(word).name if "/" in word else word for word in sys.argv[1:]]


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
