"""Threads that run programs: every share runs once, every thread is awaited, signals lose nothing; the number of
threads."""

import contextlib
import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from numa_kernel import NODES, needs_kernel, thread_policy
from pool_programs import NO_BATCH, program, slow_program

from hybrid.infer.kernels import execute
from hybrid.infer.kernels.build.jit import kernel
from hybrid.infer.kernels.emit.emitter import atomic_add
from hybrid.infer.kernels.emit.fields import Address
from hybrid.infer.kernels.execute import (
    CLOSED,
    GENERATION,
    GROUP_BYTES,
    GROUPS,
    N_SHARES,
    SYNC_BYTES,
    TICKS_PER_US,
    executor,
)
from hybrid.infer.kernels.groups import n_groups
from hybrid.infer.program import threads
from hybrid.infer.program.builder import Builder, aligned_empty
from hybrid.infer.program.threads import Pool, cpu_quota, default_threads, physical_cores
from hybrid.quant.ggml.cpus import as_list
from hybrid.quant.ggml.numa import INTERLEAVE, Policy, policy


@pytest.mark.parametrize("stoppable", [False, True])
@pytest.mark.parametrize("n_threads", [1, 2, 5, 9, 16])
def test_every_op_sees_what_the_one_before_wrote(n_threads: int, stoppable: bool) -> None:
    cells = np.zeros(101, np.int64)
    doubling = program(cells, 20, n_threads)
    pool = Pool(n_threads)
    for _ in range(5):
        cells[:] = 0
        pool.run(doubling, stoppable=stoppable)
        assert (cells == 2 * (2**20 - 1)).all()
    pool.close()


@pytest.mark.soak
def test_idle_threads_use_no_time() -> None:
    cells = np.zeros(10, np.int64)
    pool = Pool(2)
    pool.run(program(cells, 5, 2), stoppable=True)
    begin = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - begin < 0.1
    pool.close()


def test_a_pool_that_nobody_closed_ends_its_workers() -> None:
    """Otherwise they wait in memory that is no longer theirs."""
    pool = Pool(3)
    pool.run(program(np.zeros(10, np.int64), 5, 3), stoppable=True)
    threads = pool._threads
    del pool
    gc.collect()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


def test_cores_are_counted() -> None:
    assert physical_cores() >= 1


@kernel
def enter(a, tid, nth, *, cells: Address):
    """Counts the calls of each share."""
    atomic_add(cells + 8 * tid, 1)


@pytest.mark.parametrize("n_threads", [1, 2, 3, 7, 8, 13, 33])
def test_every_share_of_every_op_is_called_once(n_threads: int) -> None:
    cells = np.zeros(n_threads, np.int64)
    b = Builder(1, n_threads, exact=False, batch=NO_BATCH)
    for _ in range(500):
        b.op(enter, cells=cells.ctypes.data)
    entering = b.build()
    entering.link()
    pool = Pool(n_threads)
    for _ in range(20):
        pool.run(entering, stoppable=False)
    pool.close()
    assert (cells == 10_000).all(), cells


@pytest.mark.parametrize(
    ("n_threads", "groups"), [(1, 1), (7, 1), (8, 2), (9, 2), (16, 4), (31, 7), (32, 4), (64, 8), (512, 64)]
)
def test_groups_have_four_to_nine_threads(n_threads: int, groups: int) -> None:
    firsts = [execute._first.function(g, groups, n_threads) for g in range(groups + 1)]
    sizes = np.diff(firsts)
    assert n_groups.function(n_threads) == groups
    assert firsts[0] == 0 and firsts[-1] == n_threads
    assert groups == 1 or (sizes.min() >= 4 and sizes.max() <= 9)
    assert GROUPS + groups * GROUP_BYTES <= SYNC_BYTES
    assert [((i + 1) * groups - 1) // n_threads for i in range(n_threads)] == [*np.arange(groups).repeat(sizes)]


@pytest.mark.parametrize(("n_threads", "groups"), [(7, 0), (8, 2), (13, 3)])
def test_every_group_reports_once_per_op(n_threads: int, groups: int) -> None:
    """And the word common to all threads changes twice per run, however many ops the run has."""
    cells = np.zeros(50, np.int64)
    pool = Pool(n_threads)
    for run in (1, 2):
        cells[:] = 0
        pool.run(program(cells, 30, n_threads), stoppable=False)
        assert pool._word(execute.ROOT).value == run * 60 * groups
        assert pool._state.value == CLOSED | (run * 61 << GENERATION)
        assert (cells == 2 * (2**30 - 1)).all()
    pool.close()


def test_shares_that_take_longer_than_the_spin_are_waited_for() -> None:
    slow_ops = slow_program(3, 20)
    pool = Pool(3)
    pool.run(slow_ops, stoppable=True)
    pool.close()
    assert (slow_ops.arena[: 3 * 64].view(np.int64).reshape(3, 8)[:, 1] == 20).all()


@pytest.mark.parametrize("n_shares", [5, 11])
def test_a_run_ends_without_threads_that_never_come(n_shares: int) -> None:
    """The caller runs all shares alone; a worker that comes late finds nothing of the past run."""
    cells = np.zeros(101, np.int64)
    doubling = program(cells, 20, n_shares)
    sync = aligned_empty(SYNC_BYTES).view(np.int64)
    sync[:] = 0
    sync[0], sync[N_SHARES // 8], sync[TICKS_PER_US // 8] = CLOSED, n_shares, 1000
    sync[GROUPS // 8 :: GROUP_BYTES // 8] = CLOSED
    address, run = int(sync.ctypes.data), executor()
    late: threading.Thread | None = None
    for round_ in range(1, 4):
        cells[:] = 0
        doubling.counters[:] = 0
        before = int(sync[0]) >> GENERATION
        while int(sync[0]) >> GENERATION != before + 1 + len(doubling.ops):
            run(address, before, doubling.records.ctypes.data, len(doubling.ops), 0)
        assert (cells == 2 * (2**20 - 1)).all()
        if round_ == 2:
            late = threading.Thread(target=run, args=(address, 0, 0, 0, 0))
            late.start()
    sync[execute.EXIT // 8] = 1
    run(address, 0, 0, 0, 0)
    assert late is not None
    late.join(60)
    assert not late.is_alive()


def test_the_caller_hears_of_signals_while_a_run_goes_on() -> None:
    """The executor returns to Python now and then, and continues where it was."""
    slow_ops = slow_program(1, 1000)
    pool = Pool(1)
    pool._word(TICKS_PER_US).value = 1  # its clock runs so fast that the run is long on any machine
    calls = 0
    inner = pool._execute

    def counted(*args: int) -> int:
        nonlocal calls
        calls += 1
        return int(inner(*args))

    pool._execute = counted  # type: ignore[assignment]
    pool.run(slow_ops, stoppable=True)
    assert slow_ops.arena[8:16].view(np.int64)[0] == 1000
    assert calls > 1
    pool._execute = inner
    pool.close()


def test_threads_left_alone_do_not_keep_the_process_alive() -> None:
    code = (
        "from hybrid.infer.program.threads import Pool\nfrom hybrid.infer.program.builder import *\n"
        "import numpy as np\n"
        "from hybrid.infer.kernels.rows.elementwise import copy_rows\n"
        "b = Builder(1, 2, exact=False, batch=Batch(*[0] * 12)); count = np.zeros(1, np.int64)\n"
        "b.op(copy_rows, count=count.ctypes.data, x=0, ldx=0, out=0, ldout=0, n=0); p = b.build(); p.link()\n"
        "pool = Pool(2); pool.run(p, stoppable=False); print('done')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert done.stdout == "done\n", done.stderr
    assert done.returncode == 0


# --- how many ---
def group(root: Path, path: str, **files: str) -> None:
    folder = root / path
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_the_quota_of_a_control_group_is_found(tmp_path: Path) -> None:
    group(tmp_path, "proc/self", cgroup="0::/a/b\n")
    assert cpu_quota(tmp_path) is None
    group(tmp_path, "sys/fs/cgroup/a/b", cpu__max="max 100000\n")
    assert cpu_quota(tmp_path) is None
    group(tmp_path, "sys/fs/cgroup/a", cpu__max="150000 100000\n")
    assert cpu_quota(tmp_path) == 1.5
    group(tmp_path, "sys/fs/cgroup/a/b", cpu__max="50000 100000\n")
    assert cpu_quota(tmp_path) == 0.5
    group(tmp_path, "sys/fs/cgroup/a/b", cpu__max="nonsense\n")
    assert cpu_quota(tmp_path) == 1.5


def test_the_quota_of_a_container_is_at_the_mount(tmp_path: Path) -> None:
    group(tmp_path, "proc/self", cgroup="0::/../elsewhere\n")
    group(tmp_path, "sys/fs/cgroup", cpu__max="200000 100000\n")
    assert cpu_quota(tmp_path) == 2.0


def test_the_quota_of_version_1(tmp_path: Path) -> None:
    group(tmp_path, "proc/self", cgroup="3:cpuset:/\n2:cpu,cpuacct:/docker/x\n1:name=systemd:/\n")
    group(tmp_path, "sys/fs/cgroup/cpu", cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    assert cpu_quota(tmp_path) is None
    group(tmp_path, "sys/fs/cgroup/cpu/docker/x", cpu__cfs_quota_us="250000\n", cpu__cfs_period_us="100000\n")
    assert cpu_quota(tmp_path) == 2.5


@pytest.mark.parametrize(("quota", "cores", "expected"), [(None, 4, 4), (1.5, 4, 2), (0.3, 4, 1), (8.0, 2, 2)])
def test_threads_fit_cores_and_quota(
    quota: float | None, cores: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "cpu_quota", lambda: quota)
    monkeypatch.setattr(threads, "physical_cores", lambda: cores)
    assert default_threads() == expected


# --- other systems and other machines ---
PORTABLE = """
import sys
sys.platform = "other"  # what the executor's pieces ask when they are compiled
import numpy as np
from hybrid.infer.kernels import execute
from hybrid.infer.kernels.build.compiler import assembly
from hybrid.infer.kernels.emit.emitter import atomic_add
from hybrid.infer.kernels.emit.fields import Address
from hybrid.infer.kernels.build.jit import kernel
from hybrid.infer.program.builder import Batch, Builder
from hybrid.infer.program.threads import Pool

@kernel
def enter(a, tid, nth, *, cells: Address):
    atomic_add(cells + 8 * tid, 1)

execute.EXECUTE.compile()
assert "syscall" not in assembly(execute.EXECUTE)
cells = np.zeros(3, np.int64)
b = Builder(1, 3, exact=False, batch=Batch(*[0] * 12))
for _ in range(300):
    b.op(enter, cells=cells.ctypes.data)
made = b.build()
made.link()
pool = Pool(3)
for _ in range(30):
    pool.run(made, stoppable=False)
pool.close()
print(*cells)
"""


@pytest.mark.slow
def test_threads_work_without_futexes(tmp_path: Path) -> None:
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", PORTABLE], env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["9000"] * 3


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_threads_are_pinned_and_the_caller_is_free_between_runs() -> None:
    allowed = os.sched_getaffinity(0)
    cpus = (sorted(allowed) * 3)[-3:]  # the last first, where there are several
    pool = Pool(3, cpus)
    cells = np.zeros(101, np.int64)
    during = []

    try:
        run = pool._run
        pool._run = lambda *given: (during.append(os.sched_getaffinity(0)), run(*given))[1]  # type: ignore[method-assign,func-returns-value]
        for _ in range(2):
            cells[:] = 0
            pool.run(program(cells, 20, 3), stoppable=False)
            assert (cells == 2 * (2**20 - 1)).all()
            assert os.sched_getaffinity(0) == allowed
        assert during == [{cpus[0]}] * 2
        assert [os.sched_getaffinity(t.native_id or 0) for t in pool._threads] == [{cpus[1]}, {cpus[2]}]
    finally:
        pool.close()


@pytest.mark.exhaustive
@needs_kernel
def test_policies_of_memory_hold_in_runs_and_the_callers_own_comes_back() -> None:
    wanted, before = Policy(INTERLEAVE, NODES), policy()
    pool = Pool(3, nodes=NODES)
    cells = np.zeros(101, np.int64)
    during = []
    try:
        run = pool._run
        pool._run = lambda *given: (during.append(policy()), run(*given))[1]  # type: ignore[method-assign,func-returns-value]
        for _ in range(2):
            cells[:] = 0
            pool.run(program(cells, 20, 3), stoppable=False)
            assert (cells == 2 * (2**20 - 1)).all()
            assert policy() == before != wanted
        assert during == [wanted] * 2
        assert [thread_policy(t.native_id) for t in pool._threads] == [f"interleave:{as_list(NODES)}"] * 2
        other = Pool(2)
        assert [thread_policy(t.native_id) for t in other._threads] == ["default"], "nothing asked for, nothing changed"
        other.close()
    finally:
        pool.close()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_a_core_that_is_taken_away_in_the_middle() -> None:
    """All threads end up on one core during runs, then go back: the runs end with the same results."""
    allowed = os.sched_getaffinity(0)
    cells = np.zeros(200, np.int64)
    doubling = program(cells, 400, 3)
    pool = Pool(3)
    ended = threading.Event()

    def confine() -> None:
        while not ended.is_set():
            for cpus in ({min(allowed)}, allowed):
                for task in Path("/proc/self/task").iterdir():
                    with contextlib.suppress(OSError):
                        os.sched_setaffinity(int(task.name), cpus)
                time.sleep(0.003)

    mover = threading.Thread(target=confine)
    mover.start()
    try:
        small = program(cells, 30, 3)
        for _ in range(20):
            pool.run(doubling, stoppable=False)
            cells[:] = 0
            pool.run(small, stoppable=True)
            assert (cells == 2 * (2**30 - 1)).all()
    finally:
        ended.set()
        mover.join()
        pool.close()
        os.sched_setaffinity(0, allowed)
