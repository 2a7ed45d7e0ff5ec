"""benchmarks/threads.py: its disturbances are real and end, and it compares what it claims to compare."""

import contextlib
import importlib.util
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmarks_threads", ROOT / "benchmarks" / "threads.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_quiet_and_disturbed_runs_alternate(bench: ModuleType) -> None:
    loud = False

    @contextlib.contextmanager
    def disturbed() -> Iterator[None]:
        nonlocal loud
        loud = True
        yield
        loud = False

    order = []

    def measure() -> dict[str, float]:
        order.append(loud)
        return {"prompt": 40.0 if loud else 100.0 + len(order), "generation": 7.0}

    assert bench.compare(measure, disturbed, 3) == {"prompt": (103.0, 40.0), "generation": (7.0, 7.0)}
    assert order == [False, True] * 3


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux confines threads one by one")
def test_one_core_is_for_all_threads_and_ends(bench: ModuleType) -> None:
    before = os.sched_getaffinity(0)
    ended = threading.Event()
    other = threading.Thread(target=ended.wait)
    other.start()
    try:
        with bench.one_core():
            tasks = [int(t.name) for t in Path("/proc/self/task").iterdir()]
            assert {frozenset(os.sched_getaffinity(t)) for t in tasks} == {frozenset({min(before)})}
        assert os.sched_getaffinity(other.native_id or 0) == before
    finally:
        ended.set()
        other.join()


def test_ops_cost_something(bench: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(sys, "argv", ["threads.py", "-t", "1"])
    assert bench.main() == 0
    rows = [line.split("|")[1:4] for line in capsys.readouterr().out.splitlines()[2:] if line]
    assert [int(threads) for threads, _, _ in rows] == [1, 2]
    assert all(float(per_op) > 0 and float(per_run) > 0 for _, per_op, per_run in rows)
