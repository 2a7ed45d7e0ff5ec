"""Two commits in one run: does this change make anything slower?

    python benchmarks/commits.py REF                  the working tree against REF
    python benchmarks/commits.py REF --rounds 9 --only jamba-11m

REF is checked out into a temporary worktree and run by this Python with its installed packages: only `hybrid` itself
comes from the worktree. Both sides measure the same files in turn (A B B A A B ...), each with its own cache of
compiled kernels. A test's ratio is the median of the rounds' ratios. Its noise is the 95 % interval that their spread
gives (Student's t on their logarithms): one row in twenty is outside by chance. Rows outside by more than 2 % are
marked. Then the kernels follow, from `hybrid bench --profile`, if both commits have it.
"""

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median, stdev

from model_files import shape_file
from programs import command
from quiet import Watch, busy_now

from hybrid.infer.bench.tables import markdown_table
from hybrid.pipeline.models import bundled_checkpoint
from hybrid.quant.ggml.errors import HybridError, UsageError

ROOT = Path(__file__).resolve().parent.parent
LEAST = 0.02
"""A difference below this is not worth a mark however sure it is, an op that takes less of the time not a row."""
# two-sided 95 % of Student's t by degrees of freedom
_T = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_OP = re.compile(r"^\| (\S+) +\| (\S[^|]*?) +\| +\d+ \| +([\d.]+) (us|ms|s) \|", re.MULTILINE)


@dataclass
class Side:
    """One commit's `hybrid` and its results: values of the rounds by test, larger is better."""

    name: str
    python: Sequence[str]
    """Words in front of hybrid's arguments."""
    cache: Path
    values: dict[str, list[float]] = field(default_factory=dict)

    def hybrid(self, *words: str) -> str:
        """The output of `hybrid WORDS` on this side, with its own kernel cache."""
        env = {**os.environ, "XDG_CACHE_HOME": str(self.cache), "PYTHONDONTWRITEBYTECODE": "1"}
        env.pop("PYTHONPATH", None)
        return command([*self.python, *words], env)[0]

    def add(self, values: Mapping[str, float]) -> None:
        """Add a round: test -> tokens per second."""
        for test, value in values.items():
            self.values.setdefault(test, []).append(value)


@dataclass(frozen=True)
class Difference:
    """The new side's rate divided by the old one's. `noise`: half the 95 % interval, as a share; None with one
    round."""

    test: str
    old: float
    new: float
    ratio: float
    noise: float | None

    @property
    def mark(self) -> str:
        """The word faster or SLOWER if the difference is above the noise and LEAST; otherwise empty."""
        if self.noise is None or abs(math.log(self.ratio)) <= max(self.noise, math.log1p(LEAST)):
            return ""
        return "faster" if self.ratio > 1 else "SLOWER"


def difference(test: str, old: Sequence[float], new: Sequence[float]) -> Difference:
    """The difference of a test, from equally many rounds of both sides."""
    logs = [math.log(b / a) for a, b in zip(old, new, strict=True)]
    noise = None
    if len(logs) > 1:
        t = _T[min(len(logs) - 1, len(_T)) - 1]
        # the larger of the two: a median far from the mean must not reduce the noise
        noise = t * stdev(logs) / math.sqrt(len(logs)) + abs(fmean(logs) - median(logs))
    return Difference(test, median(old), median(new), math.exp(median(logs)), noise)


def differences(old: Mapping[str, Sequence[float]], new: Mapping[str, Sequence[float]]) -> list[Difference]:
    """The differences of tests that both sides have in the same number of rounds."""
    return [difference(t, old[t], new[t]) for t in old if t in new and len(old[t]) == len(new[t])]


def table(compared: Sequence[Difference], names: tuple[str, str], unit: str) -> str:
    """A Markdown table; `names`: headers of the old and the new side's columns."""
    rows = []
    for d in compared:
        noise = "?" if d.noise is None else f"± {math.expm1(d.noise):.1%}" if d.noise < 0.7 else "> 100%"
        rows.append([d.test, f"{d.old:.4g}", f"{d.new:.4g}", f"{d.ratio:.3f}", noise, d.mark])
    return markdown_table([unit, *names, "ratio", "noise", ""], rows)


def parse_profile(text: str) -> dict[str, float]:
    """Passes per second of every op with at least 2 % of the time, from `hybrid bench --profile`.

    Times of an op's kernels are added: kernels may be renamed between commits, ops keep their names.
    """
    seconds: dict[str, float] = {}
    for op, _, value, unit in _OP.findall(text):
        seconds[op] = seconds.get(op, 0.0) + float(value) * _UNITS[unit]
    return {op: 1 / s for op, s in seconds.items() if s > LEAST * sum(seconds.values())}


# --- commits ----------------------------------------------------------------------------------------------------------
def entry_point(checkout: Path) -> tuple[str, str]:
    """Module and function of `hybrid`, from that commit's pyproject.toml. Raises UsageError if it has none."""
    try:
        project = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))
        module, _, function = project["project"]["scripts"]["hybrid"].partition(":")
    except (OSError, KeyError, tomllib.TOMLDecodeError) as error:
        raise UsageError(
            f"{checkout.name}: this commit has no command hybrid ({error!r}). Choose a later one."
        ) from error
    return module, function


def packages(checkout: Path) -> dict[str, str]:
    """Top-level folders by their import names: hybrid.cli is cli."""
    project = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))
    folders: dict[str, str] = project["tool"]["setuptools"]["package-dir"]
    return folders


def environment(checkout: Path, folder: Path) -> list[str]:
    """A virtual environment in `folder` that imports hybrid from `checkout` and everything else as this process
    does."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    library = next(folder.glob("lib/python*/site-packages"))
    # Python searches a path in a .pth file but does not read its .pth files: our editable install stays out
    installed = [word for word in sys.path if "site-packages" in word]
    (library / "installed.pth").write_text("\n".join(installed) + "\n")
    folders = packages(checkout)
    for name, place in folders.items():
        package = library / name.replace(".", "/")
        package.parent.mkdir(parents=True, exist_ok=True)
        if any(other.startswith(f"{name}.") for other in folders):  # other folders are packages within it
            package.mkdir(exist_ok=True)
            for path in (checkout / place).iterdir():
                (package / path.name).symlink_to(path)
        else:
            package.symlink_to(checkout / place, target_is_directory=True)
    module, function = entry_point(checkout)
    # helper processes started by hybrid use the same Python, and thus the same code
    return [
        str(folder / "bin" / "python"),
        "-c",
        f"import sys; from {module} import {function}; sys.exit({function}())",
    ]


@contextmanager
def checked_out(ref: str, folder: Path) -> Iterator[Path]:
    """A worktree of `ref`, removed at the end. Raises UsageError if git does not know `ref`."""
    place = folder / "checkout"
    done = subprocess.run(
        ["git", "worktree", "add", "--detach", "--quiet", str(place), ref], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no output"]
        raise UsageError(f"REF {ref} cannot be checked out: {lines[-1]}")
    try:
        yield place
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(place)], cwd=ROOT, capture_output=True)


def commit_name(folder: Path) -> str:
    words = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True).stdout.strip() or "?"


# --- measuring --------------------------------------------------------------------------------------------------------
def model_files(side: Side, folder: Path, only: Sequence[str]) -> list[tuple[str, Path]]:
    """The bundled trained model in two types and a random mamba-130m, written by `side`."""
    wanted = [(m, t) for m, t in MODELS if not only or any(word in f"{m} {t}" for word in only)]
    if not wanted:
        names = ", ".join(" ".join(pair) for pair in MODELS)
        raise UsageError(f"--only {' '.join(only)}: none of the models measured. These are: {names}.")
    files = []
    for model, kind in wanted:
        path = folder / f"{model}-{kind}.gguf"
        if model == "mamba-130m":
            cached = shape_file(model, kind)
            if cached.exists():
                path = cached
            else:
                from hybrid.infer.bench.shapes import find_type, write_shape

                write_shape(model, path, find_type(kind), ssm_f32=False)
        else:
            source = folder / f"{model}.gguf"
            if not source.exists():
                side.hybrid("convert", str(bundled_checkpoint()), "-o", str(source))
            side.hybrid("quantize", str(source), str(path), kind)
        files.append((f"{model} {kind}", path))
    return files


MODELS = (("jamba-11m", "Q8_0"), ("jamba-11m", "Q4_0"), ("mamba-130m", "Q8_0"))


def speed(side: Side, name: str, path: Path, args: argparse.Namespace) -> dict[str, float]:
    """Tokens per second by test: medians of three repetitions in one process."""
    out = side.hybrid(
        "bench", str(path), "-p", args.p, "-n", args.n, "-r", "3", "-t", str(args.t), "--no-state", "-o", "json"
    )
    rates = {}
    for r in json.loads(out):
        test = f"pp{r['n_prompt']}" if r["n_prompt"] else f"tg{r['n_gen']}"
        rates[f"{name} {test}"] = median(r.get("samples_ts") or [r["avg_ts"]])
    return rates


def kernels(side: Side, name: str, path: Path, args: argparse.Namespace) -> dict[str, float]:
    """Passes per second of the ops of a prompt and of generation."""
    rates = {}
    for test, options in [(f"pp{args.p}", ("-p", args.p, "-n", "0")), ("tg8", ("-p", "0", "-n", "8"))]:
        out = side.hybrid("bench", str(path), *options, "-t", str(args.t), "--profile")
        rates.update({f"{name} {test} {op}": rate for op, rate in parse_profile(out).items()})
    return rates


def measure(old: Side, new: Side, folder: Path, args: argparse.Namespace) -> str:
    """Run all rounds; return the report."""
    files = model_files(new, folder, args.only)
    for side in (old, new):
        note(f"{side.name}: compiling")
        for _, path in files:
            side.hybrid("bench", str(path), "-p", "16,512", "-n", "2", "-r", "1", "-t", str(args.t), "--no-state")
    ops: tuple[dict[str, list[float]], dict[str, list[float]]] = ({}, {})
    with_kernels = not args.no_kernels
    with Watch() as watch:
        for i in range(args.rounds):
            note(f"round {i + 1} of {args.rounds}")
            sides = [old, new] if i % 2 == 0 else [new, old]
            for name, path in files:
                for side in sides:
                    side.add(speed(side, name, path, args))
            for side in sides if with_kernels else []:
                try:
                    for op, rate in kernels(side, *files[-1], args).items():
                        ops[side is new].setdefault(op, []).append(rate)
                except UsageError as error:
                    note(f"no kernels: {error}")
                    with_kernels = False
                    break
    names = (old.name, new.name)
    parts = [table(differences(old.values, new.values), names, "tokens per second")]
    marked = [d for d in differences(*ops) if d.mark or args.all]
    if with_kernels:
        none = f"No op of {files[-1][0]} is outside the noise (--all shows them).\n"
        parts.append(table(marked, names, "passes per second of an op") if marked else none)
    if watch.usage is not None:
        parts.append(f"Others used {watch.usage.others:.1f} cores meanwhile.\n")
    return "\n".join(parts)


def main() -> int:
    """Measure both commits in turn and print the table; exit code 1 or 2 with one line on bad input."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ref", help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=[], help="only models whose names contain one of these")
    parser.add_argument("-p", default="512", help="prompt length")
    parser.add_argument("-n", default="32", help="tokens to generate")
    parser.add_argument("-t", type=int, default=0, help="threads, 0: all cores")
    parser.add_argument("--no-kernels", action="store_true", help="only whole models")
    parser.add_argument("--all", action="store_true", help="also the ops that did not change")
    parser.add_argument("--busy", action="store_true", help="measure although others compute")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="hybrid-commits-"))
    try:
        if not args.busy and (reason := busy_now()):
            raise UsageError(f"the machine is busy: {reason}. Wait, or use --busy.")
        with checked_out(args.ref, folder) as checkout:
            old, new = (
                Side(commit_name(place), environment(place, folder / f"venv-{name}"), folder / f"cache-{name}")
                for name, place in [("old", checkout), ("new", ROOT)]
            )
            print(measure(old, new, folder, args))
    except HybridError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def note(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
