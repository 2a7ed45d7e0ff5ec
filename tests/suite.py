"""The runs of the suite, each with its wall and CPU time.

    python tests/suite.py quick            the inner loop (`make quick`)
    python tests/suite.py test             what CI asks for (`make test`)
    python tests/suite.py all              that and every part of the long suite (`make test-all`)
    python tests/suite.py all matrix page  these parts only (`make test-all PART="matrix page"`)
    python tests/suite.py paths avx2       golden, property and kernel tests under these code paths only

The CPU time of a run is also told in units: the time of a small fixed computation that is repeated beside the run.
Whatever slows down a shared machine slows down both. `test` fails if a run with empty caches takes over one and a half
times the units that `tests/suite_cost.json` has for this kind of processor: find out why, or write down the new figure
with the reason.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import forced_isa
import llvmlite.binding as llvm
import pytest
from marks import PARTS

from hybrid.infer.kernels.emit.isa import host

ROOT = forced_isa.ROOT
FIGURES = ROOT / "tests" / "suite_cost.json"
MOST_GROWTH = 1.5  # two runs of the same tree differed by a sixth in units and by a fifth in CPU time
PYTEST = (sys.executable, "-m", "pytest", "-n", "auto", "--dist", "worksteal")
QUICK, TEST = "not slow and not exhaustive and not shared and not long", "not long"

# golden and property tests that do not use this process's kernels, or force code paths themselves
INDEPENDENT = {
    "test_block_formats.py",
    "test_chat_answers.py",
    "test_chat_grammar.py",
    "test_code_paths.py",
    "test_gguf_roundtrip.py",
    "test_peer.py",
    "test_peer_converter.py",
    "test_peer_quantizer.py",
    "test_tokenizers.py",
}
OF_PATHS = "not slow and (kernel or (not exhaustive and not long))"  # all kernels; the tests of models in `make quick`
OF_KERNELS = "not slow and not long and not exhaustive"
KERNELS = ("attention", "products", "recurrent", "rows", "weights")


@dataclass
class Meter:
    """Measures wall and CPU seconds of child processes, and the time of a unit of work meanwhile."""

    wall: float = field(default_factory=time.perf_counter)
    cpu: float = field(default_factory=lambda: _cpu_of_children())
    units: list[float] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "Meter":
        self.thread = threading.Thread(target=self._measure, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()
        self.wall = time.perf_counter() - self.wall
        self.cpu = _cpu_of_children() - self.cpu

    def _measure(self) -> None:
        while not self.ended.wait(2.0):
            self.units.append(_unit())

    @property
    def cost(self) -> float:
        """CPU time in units; 0 if the run was too short to measure a unit."""
        return self.cpu / statistics.fmean(self.units) if self.units else 0.0

    def __str__(self) -> str:
        return f"{self.wall:.0f} s of wall, {self.cpu:.0f} s of CPU time, {self.cost:.0f} units"


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _unit() -> float:
    """CPU seconds of one unit, which is typical Python: attributes, dictionaries, small objects."""
    start = time.thread_time()
    table: dict[str, int] = {}
    for i in range(20000):
        table[f"{i % 997}"] = len(table) + i
    sorted(table.items(), key=lambda item: item[1])
    return time.thread_time() - start


def kernel_tests() -> list[str]:
    """Test files of kernels."""
    folder = ROOT / "tests" / "unit" / "infer" / "kernels"
    return _names(path for room in KERNELS for path in (folder / room).glob("test_*.py"))


def path_tests() -> list[str]:
    """Test files whose results depend on the code path."""
    shelves = [ROOT / "tests" / "golden", ROOT / "tests" / "property"]
    models = (path for shelf in shelves for path in shelf.glob("test_*.py") if path.name not in INDEPENDENT)
    return _names(models) + kernel_tests()


def _names(paths: Iterable[Path]) -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in paths)


def run(*arguments: str, path: str | None = None) -> int:
    """pytest's exit status. path: the forced code path."""
    env = forced_isa.forced_environment(path) if path else dict(os.environ)
    return subprocess.run([*PYTEST, *arguments], env=env, cwd=ROOT).returncode


def other_paths() -> list[str]:
    """Code paths other than the native one that this processor can execute, smallest first."""
    return [path for path in forced_isa.FEATURES if path != host().name and forced_isa.executable(path)]


def under(paths: Sequence[str], tests: Sequence[str], marks: str) -> int:
    """Run tests under code paths; return the first exit status that is not 0."""
    for path in paths:
        print(f"code path {path}:", flush=True)
        if status := run("-m", marks, *tests, path=path):
            return status
    return 0


def test() -> int:
    """Run all tests of CI, then kernels under the executable path that differs most from the native one."""
    return run("-m", TEST, "--durations=10") or under(other_paths()[:1], kernel_tests(), OF_KERNELS)


def part(name: str) -> int:
    """Run a part of the long suite."""
    status = run("-m", name, "--durations=10")
    if status not in (0, pytest.ExitCode.NO_TESTS_COLLECTED):
        return status
    return under(other_paths(), path_tests(), OF_PATHS) if name == "paths" else 0


def known_costs() -> dict[str, int]:
    """Units of a run with empty caches, by LLVM's name of the processor."""
    costs: dict[str, int] = json.loads(FIGURES.read_text(encoding="utf-8"))
    return costs


def judged(cost: float) -> int:
    """1 if the run took over 1.5 times the known units of this kind of processor."""
    kind = llvm.get_host_cpu_name()
    known = known_costs().get(kind)
    if known is None:
        print(f"{FIGURES.name} has no figure for {kind}: {cost:.0f} would be the first")
    elif cost > MOST_GROWTH * known:
        print(
            f"error: the suite took {cost:.0f} units of CPU time on {kind}, {cost / known:.2f} times the {known} of "
            f"{FIGURES.name}. Make it cheaper, or write down the new figure with the reason.",
            file=sys.stderr,
        )
        return 1
    return 0


def measured(name: str, *arguments: str) -> int:
    """Run one kind of run, and print its cost."""
    with Meter() as meter:
        match name:
            case "quick":
                status = run("-m", QUICK)
            case "test":
                status = test()
            case "paths" if arguments:
                status = under(arguments, path_tests(), OF_PATHS)
            case _:
                status = part(name)
    print(f"{name}: {meter}", flush=True)
    return status or (judged(meter.cost) if name == "test" else 0)


def main(arguments: Sequence[str]) -> int:
    """Exit status of the first run that fails, or 0."""
    name, *more = arguments
    if name != "all":
        return measured(name, *more)
    if unknown := set(more) - set(PARTS):
        print(
            f"error: {', '.join(sorted(unknown))}: no part of the long suite; {', '.join(PARTS)} are", file=sys.stderr
        )
        return 2
    return next((status for each in more or ("test", *PARTS) if (status := measured(each))), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
