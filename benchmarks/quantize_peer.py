"""Compares files of `hybrid quantize --ssm-type like-llama` with those of llama-quantize, tensor by tensor, byte by
byte.

    python benchmarks/quantize_peer.py --peer path/to/llama.cpp/build/bin model.gguf ... [--types Q4_K_M ...]
        [--imatrix FILE | random] [--threads 2] [--rounds 3] [--folder /dev/shm] [--slow-model small.gguf] [--record]

Prints for each file and file type how many tensors are equal, which differ in type or in how many blocks, and for both
sides, run in turn: median seconds, median CPU seconds of all cores, and peak memory (ours includes the start of
Python). New files go into --folder; with /dev/shm the time is that of quantizing, not of the disk. Exit code 1 if a
tensor differs. --record writes the rows to benchmarks/quantize_speed.jsonl, where they replace older ones, and renews
benchmarks/QUANTIZE_SPEED.md. New files are removed after every type.

For 3 billion weights on 2 cores of Zen 3 llama-quantize takes half a minute up to Q8_0, TQ and Q3_K, one for Q6_K, two
to three for Q2_K, Q4_K and Q5_K, seven and more for the IQ types, and up to four times that with importance.
--slow-model replaces the models for the types of `SLOW`.
"""

import argparse
import datetime
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from quiet import Watch

from hybrid.infer.bench.machine import cpu_name
from hybrid.quant import TARGETS, Imatrix, InputSums
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import TRAITS

RECORDS = Path(__file__).with_name("quantize_speed.jsonl")
TABLE = Path(__file__).with_name("QUANTIZE_SPEED.md")
# Types for which llama-quantize needs at least a quarter of a microsecond of a core per weight.
SLOW = {kind.name for kind in TARGETS if kind.name.startswith("IQ")}


@dataclass(frozen=True)
class Run:
    """Costs of one process: `seconds` of wall time, `cpu` seconds of all cores with kernel time, `peak` bytes."""

    seconds: float
    cpu: float
    peak: int


@dataclass(frozen=True)
class Record:
    """A row of the table: medians of `rounds` runs of each side, in turn. `floor`: time of reading the source and
    writing as many bytes as the new file has, in the same rounds; `others`: cores used by other processes."""

    machine: str
    date: str
    model: str
    type: str
    importance: bool
    threads: int
    rounds: int
    folder: str
    weights: int
    equal: int
    tensors: int
    ours: Run
    theirs: Run
    floor: float
    others: float | None
    note: str = ""


def differences(ours: Path, theirs: Path) -> tuple[int, list[str]]:
    """The number of tensors, and a line for each that differs."""
    lines = []
    with GGUFFile.open(ours) as a, GGUFFile.open(theirs) as b:
        if list(a.tensors) != list(b.tensors):
            lines.append("the tensors are not the same, or not in the same order")
        for name, t in a.tensors.items():
            other = b.tensors.get(name)
            if other is None or other.type is not t.type:
                lines.append(f"{name}: {t.type.name}, there {other.type.name if other else 'missing'}")
                continue
            x, y = (f.raw(name).reshape(-1, TRAITS[t.type].nbytes) for f in (a, b))
            n = int((x != y).any(axis=1).sum())
            if n:
                lines.append(f"{name}: {n} of {len(x)} blocks of {t.type.name}")
        return len(a.tensors), lines


def measured(command: Sequence[str]) -> Run:
    """Run a command. Raises RuntimeError with its last line if it fails."""
    with tempfile.TemporaryFile() as said:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=said, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            lines = said.read().decode(errors="replace").strip().splitlines() or ["no message"]
            raise RuntimeError(lines[-2:][0][-160:])
    return Run(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * (1 if sys.platform == "darwin" else 1024))


def copying(source: Path, new: Path, scratch: Path) -> float:
    """Seconds to read one file and to write as many bytes as another has: a lower limit of quantizing."""
    buffer = bytearray(1 << 20)
    began = time.perf_counter()
    with source.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    size = new.stat().st_size if new.exists() else 0
    with scratch.open("wb", buffering=0) as file:
        for _ in range(-(-size // len(buffer))):
            file.write(buffer)
        os.fsync(file.fileno())
    scratch.unlink()
    return time.perf_counter() - began


def random_importance(model: Path, path: Path) -> None:
    """Write an importance matrix of random numbers for all matrices of a model; the time does not depend on values."""
    rng = np.random.default_rng(0)
    with GGUFFile.open(model) as file:
        entries = {
            name: InputSums(
                rng.exponential(size=(math.prod(t.shape[:-2]), t.shape[-1])).astype(np.float32),
                np.ones(math.prod(t.shape[:-2]), np.float32),
            )
            for name, t in file.tensors.items()
            if len(t.shape) > 1 and name.endswith(".weight")
        }
    Imatrix(entries, ["random"], 1, 1).write(path)


def medians(runs: Sequence[Run]) -> Run:
    """Medians of seconds and CPU seconds, and the highest peak."""
    return Run(
        statistics.median(r.seconds for r in runs), statistics.median(r.cpu for r in runs), max(r.peak for r in runs)
    )


def record(new: Record) -> None:
    """Add a row to the records, or replace an older one, and write the table."""
    lines = RECORDS.read_text().splitlines() if RECORDS.exists() else []
    kept = [r for line in lines if (r := json.loads(line)) and _key(r) != _key(asdict(new))]
    rows = sorted([*kept, asdict(new)], key=lambda r: (r["machine"], r["model"], r["importance"], _order(r["type"])))
    RECORDS.write_text("".join(json.dumps(r) + "\n" for r in rows))
    TABLE.write_text(table(rows))


def _key(row: dict[str, object]) -> tuple[object, ...]:
    return tuple(row[name] for name in ("machine", "model", "type", "importance", "threads"))


def _order(name: str) -> int:
    return next(i for i, kind in enumerate(TARGETS) if kind.name == name)


def table(rows: Sequence[dict[str, object]]) -> str:
    """Markdown of `Record` rows."""
    text = [
        "# How fast it quantizes\n",
        "`hybrid quantize --ssm-type like-llama` and llama-quantize (llama.cpp as llama-cpp-python 0.3.36 has it, "
        "`-DGGML_NATIVE=ON`) on the same BF16 file with random weights (`hybrid bench --shape`), in turn. Made by\n",
        "    python benchmarks/quantize_peer.py --peer llama.cpp/build/bin MODEL.gguf --types TYPE --folder FOLDER "
        "--rounds N --record\n",
        "Seconds are medians, ours with the start of Python. *CPU* are seconds of all cores, in the process and in the "
        "kernel, and say most where *others* computed meanwhile (cores, on average). *Floor*: reading the source and "
        "writing as many bytes as the new file has, with nothing in between; we, unlike llama-quantize, also wait "
        "until the disk has the file. *Equal*: tensors of equal bytes.\n",
    ]
    group = None
    for r in rows:
        of = (r["machine"], r["model"], r["threads"], r["importance"])
        if of != group:
            group = of
            weighted = ", with an importance matrix" if r["importance"] else ""
            text.append(f"\n## {r['model']}{weighted}, {r['threads']} threads, {r['machine']}\n")
            text.append(
                "| type | ours s | llama s | **speed** | ours CPU s | llama CPU s | **of CPU** | ours peak MB "
                "| llama peak MB | floor s | equal | others | rounds | folder, date |\n|" + "---|" * 14
            )
        ours, theirs = Run(**r["ours"]), Run(**r["theirs"])  # type: ignore[arg-type]
        others = "" if r["others"] is None else f"{r['others']:.1f}"
        text.append(
            f"| {r['type']} | {ours.seconds:.1f} | {theirs.seconds:.1f} | **{theirs.seconds / ours.seconds:.2f}** "
            f"| {ours.cpu:.1f} | {theirs.cpu:.1f} | **{theirs.cpu / ours.cpu:.2f}** | {ours.peak / 1e6:.0f} "
            f"| {theirs.peak / 1e6:.0f} | {r['floor']:.1f} | {r['equal']} of {r['tensors']} | {others} | {r['rounds']} "
            f"| {r['folder']}, {r['date']}{', ' * bool(r['note'])}{r['note']} |"
        )
    return "\n".join(text) + "\n"


def main() -> int:
    """Quantize with both, compare tensor by tensor, print a row for every type; return 1 if bytes differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--peer", type=Path, required=True, help="folder of llama-quantize")
    parser.add_argument("--types", nargs="*", default=[t.name for t in TARGETS if not t.name.startswith("P")])
    parser.add_argument("--imatrix", type=Path, help="a file, or the word random")
    parser.add_argument("--slow-model", type=Path, help="replaces the models for the IQ types")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="for new files (default: a temporary folder)")
    parser.add_argument("--note", default="", help="a note for these rows")
    parser.add_argument("--record", action="store_true", help="write benchmarks/quantize_speed.jsonl and its table")
    args = parser.parse_args()
    failed = False
    hybrid = [sys.executable, "-m", "hybrid.cli", "quantize", "--ssm-type", "like-llama", "-t", str(args.threads)]
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        ours, theirs, scratch = (Path(folder, name) for name in ("ours.gguf", "theirs.gguf", "scratch"))
        small = [(args.slow_model, name) for name in args.types if name in SLOW] if args.slow_model else []
        slow = {name for _, name in small}
        of_model: Path | None = None
        importance: list[str] = []
        for model, name in [*((m, n) for m in args.models for n in args.types if n not in slow), *small]:
            if model != of_model:
                of_model, given = model, args.imatrix
                if given == Path("random"):
                    random_importance(model, given := Path(folder, "random.imatrix"))
                importance = ["--imatrix", str(given)] if given else []
                copying(model, model.parent / "none", scratch)  # brings it into memory for both sides, if it fits
            mine, peer = [*hybrid, *importance, str(model), str(ours), name], [
                    str(args.peer / "llama-quantize"), *importance, str(model), str(theirs), name, str(args.threads),
                ]  # fmt: skip
            floors, both = [], []
            try:
                with Watch() as watch:
                    for _ in range(args.rounds):
                        both.append((measured(mine), measured(peer)))
                        floors.append(copying(model, ours, scratch))
            except RuntimeError as error:
                print(f"{model.stem:24} {name:9} not compared: {error}")
                continue
            # in another process: memory mapped by this one would count for processes that it starts
            with ProcessPoolExecutor(1, get_context("spawn")) as other:
                n, differing = other.submit(differences, ours, theirs).result()
            failed |= bool(differing)
            with GGUFFile.open(model) as file:
                weights = sum(int(np.prod(t.shape)) for t in file.tensors.values())
            a, b = (medians(runs) for runs in zip(*both, strict=True))
            print(
                f"{model.stem:24} {name:9} {n - len(differing):4} of {n:4} tensors equal"
                f"   {a.seconds:7.2f} s {b.seconds:7.2f} s  x {b.seconds / a.seconds:.2f}"
                f"   CPU {a.cpu:7.2f} s {b.cpu:7.2f} s  x {b.cpu / a.cpu:.2f}"
                f"   peak {a.peak / 1e6:.0f} {b.peak / 1e6:.0f} MB   floor {statistics.median(floors):.2f} s",
                flush=True,
            )
            for line in differing:
                print(f"    {line}")
            ours.unlink()
            theirs.unlink()
            if args.record:
                record(
                    Record(
                        cpu_name(),
                        datetime.date.today().isoformat(),
                        model.stem,
                        name,
                        args.imatrix is not None,
                        args.threads,
                        args.rounds,
                        str(args.folder or tempfile.gettempdir()),
                        weights,
                        n - len(differing),
                        n,
                        a,
                        b,
                        statistics.median(floors),
                        watch.usage.others if watch.usage else None,
                        args.note,
                    )
                )
    return int(failed)


if __name__ == "__main__":
    np.seterr(all="raise")
    sys.exit(main())
