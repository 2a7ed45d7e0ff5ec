"""--cluster commands that end or fail in the middle: no partial file, no unfinished file, no process left behind."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("distributed")
import psutil
from cluster_workers import Workers, meanwhile, preload_file
from distributed import Client, LocalCluster, Worker
from end_to_end.outcomes import Cli, failed, ok

pytestmark = [pytest.mark.exhaustive, pytest.mark.cluster]
OLD = b"what was there before"
PATIENCE = 240  # seconds until a process has to end on a busy machine


@contextlib.contextmanager
def started(*args: object) -> Iterator[subprocess.Popen[str]]:
    """A command in a process group of its own, all of which gets a terminal's Ctrl-C."""
    process = subprocess.Popen(
        [sys.executable, "-m", "hybrid.cli", *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def waited_for(process: subprocess.Popen[str], there: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not there() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    children = psutil.Process(process.pid).children(recursive=True)
    return [child for child in children if "spawn_main" in " ".join(child.cmdline())]


@contextlib.contextmanager
def daskd(file: Path, orders: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A scheduler in a process of its own, which writes `file`, and a worker that follows `orders`."""
    given = ["--scheduler-file", str(file), "--no-dashboard", "--host", "127.0.0.1"]
    dask, quiet = [sys.executable, "-m", "dask"], {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    scheduler = subprocess.Popen([*dask, "scheduler", "--port", "0", *given], **quiet)  # type: ignore[call-overload]
    processes = [scheduler]
    try:
        wait_for(file.exists, "no scheduler")
        more = ["--nthreads", "4", "--no-nanny", "--preload", str(preload_file(orders)), "--death-timeout", "5"]
        processes.append(subprocess.Popen([*dask, "worker", *given, *more], cwd=file.parent, **quiet))  # type: ignore[call-overload]
        yield scheduler
    finally:
        for process in processes:
            process.kill()
            process.wait()


def wait_for(happened: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def unfinished(folder: Path) -> list[Path]:
    return list(folder.glob(".*.tmp"))


@pytest.mark.parametrize(
    "command",
    ["quantize {bf16} {out} Q4_K_M --effort 1", "perplexity {bf16} -f {prose} -c 32 --kl-divergence-base {out}"],
)
def test_interrupted(command: str, files: dict[str, Path], prose: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    out.write_bytes(OLD)
    with started(*command.format(**files, prose=prose, out=out).split(), "--cluster", "local:2") as process:
        waited_for(process, lambda: unfinished(tmp_path))
        left = workers_of(process)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in err, err
    assert process.returncode == 130 and err.splitlines()[-1].startswith("interrupted"), err
    assert [path.name for path in tmp_path.iterdir()] == ["out.gguf"] and out.read_bytes() == OLD
    psutil.wait_procs(left, timeout=PATIENCE)
    assert not [worker for worker in left if worker.is_running()]


def test_a_local_worker_that_dask_gives_up_comes_again() -> None:
    """Dask closes the nanny of a process that died while starting."""
    from hybrid.cli.cluster.local_workers import kept_up

    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=":0",
            silence_logs=50,
            worker_dashboard_address=None,
        ) as cluster,
        kept_up(cluster, 2),
        Client(cluster, set_as_default=False) as client,
    ):
        before = set(client.scheduler_info(n_workers=-1)["workers"])
        nanny = cluster.workers[1]
        cluster.sync(nanny.close)
        deadline = time.monotonic() + PATIENCE
        while cluster.workers.get(1) in (nanny, None) and time.monotonic() < deadline:
            time.sleep(0.05)
        client.wait_for_workers(2, timeout=PATIENCE)
        assert len(before & set(client.scheduler_info(n_workers=-1)["workers"])) == 1


# --- workers are killed ---
@pytest.mark.parametrize("command", ["quantize {bf16} {out} Q6_K", "convert {bundled} -o {out}"])
def test_workers_killed_around_a_tensor(
    command: str, files: dict[str, Path], bundled: Path, tmp_path: Path, cli: Cli, obedient: Workers
) -> None:
    """One before it writes, one while it writes, one before it reports that it is done."""
    alone, out = tmp_path / "alone.gguf", tmp_path / "out.gguf"
    ok(cli(*command.format(**files, bundled=bundled, out=alone).split()))
    out.write_bytes(OLD)
    for moment in ("part", "writing", "done"):
        obedient.order(moment)
    code, _, err = cli(*command.format(**files, bundled=bundled, out=out).split(), "--cluster", obedient.address)
    assert code == 0 and "worker" not in err, err
    assert all(obedient.done(moment) for moment in ("part", "writing", "done")), "three were killed"
    assert out.read_bytes() == alone.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone.gguf", "out.gguf"]


def test_workers_killed_around_a_measurement(files: dict[str, Path], prose: Path, cli: Cli, obedient: Workers) -> None:
    """One during the check of the workers, one while loading the model, one before its measurement, one after."""
    command = ("perplexity", files["q8_0"], "-f", prose, "-c", 64, "-b", 64, "--chunks", 12, "-t", 1)
    moments = ("connecting", "loading", "part", "done")
    for moment in moments:
        obedient.order(moment)
    code, out, err = cli(*command, "--cluster", obedient.address)
    assert all(obedient.done(moment) for moment in moments), "four were killed"
    assert (code, out, err) == cli(*command)


def test_a_copy_goes_with_the_worker_that_made_it(files: dict[str, Path], obedient: Workers) -> None:
    """The copy, as large as the model, in which matrices are quantized on trial."""

    def make(path: Path) -> tuple[Path, int]:
        from hybrid.cli.cluster.held_models import HERE
        from hybrid.cli.cluster.targeting import _CopyAsked
        from hybrid.infer.stages.worker_fit import FileAsked

        asked = _CopyAsked(FileAsked.of(path), 1)
        HERE.use()
        return HERE.thing(asked, asked.made)._path, os.getpid()

    copy, pid = obedient.client.submit(make, files["q8_0"], pure=False).result(PATIENCE)
    assert copy.stat().st_size == files["q8_0"].stat().st_size
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not copy.exists(), "it stays")


def test_one_joins_late_and_one_does_not_fit(files: dict[str, Path], prose: Path, cli: Cli, obedient: Workers) -> None:
    command = ("perplexity", files["q8_0"], "-f", prose, "-c", 64, "-b", 64, "--chunks", 30, "-t", 1)
    obedient.order("hold")

    def join(ended: threading.Event) -> None:
        wait_for(lambda: len(set(obedient.read("taken"))) == 2, "they never began")
        there = set(obedient.slots)
        with obedient.late("old", {"OTHER_VERSION": "1", "SECONDS_TO_LOOK": "1.5"}):
            wait_for(lambda: set(obedient.slots) - there, "it never came")
            wait_for(lambda: set(obedient.slots) == there, "it stays")
        with obedient.late("late"):
            wait_for(lambda: len(obedient.slots) == 3, "it never came")
            (obedient.orders / "hold").unlink()
            ended.wait(PATIENCE)

    with meanwhile(obedient, join):
        code, out, err = cli(*command, "--cluster", obedient.address)
    assert len(set(obedient.read("taken"))) == 3, "three processes have measured"
    assert (code, out) == cli(*command)[:2]
    assert len(err.splitlines()) == 1 and err.startswith("worker old (tcp://127.0.0.1:"), err
    assert "is not used: it has hybrid 0.0.9, the client " in err


# --- Ctrl-C with somebody else's workers ---
@pytest.mark.parametrize(
    ("command", "begun", "outlasts"),
    [
        ("run {q8_0} -f {prompts} -n 4 -c 64 -o {out}", "taken", True),
        ("perplexity {q8_0} -f {prose} -c 64 --kl-divergence-base {out}", "taken", True),
        ("convert {bundled} -o {out}", "taken", True),
        ("convert {bundled} -o {out}", "taken", False),
        ("run {q8_0} -p One --stages 2", "opened", False),
    ],
)
def test_an_interrupt_leaves_workers_to_others(
    command: str,
    begun: str,
    outlasts: bool,
    files: dict[str, Path],
    prose: Path,
    bundled: Path,
    tmp_path: Path,
    cli: Cli,
    obedient: Workers,
) -> None:
    """The workers stop, keep nothing of the command, and do the next work. outlasts: a worker's current step takes
    longer than the client lives."""
    out, prompts = tmp_path / "out", tmp_path / "prompts.jsonl"
    prompts.write_text('"One is"\n"Two are"\n')
    words = command.format(**files, prompts=prompts, prose=prose, bundled=bundled, out=out).split()
    obedient.order("hold")

    def interrupt(_: threading.Event) -> None:
        wait_for(lambda: len(obedient.read(begun)) >= 2, "it never began")
        os.kill(os.getpid(), signal.SIGINT)
        if outlasts:
            wait_for(lambda: not any(obedient.client.run(users).values()), "they are in use")
        (obedient.orders / "hold").unlink()

    def users() -> int:  # a local function: workers do not have this test's module
        from hybrid.cli.cluster.held_models import HERE

        return HERE._users

    with meanwhile(obedient, interrupt):
        code, said, err = cli(*words, "--cluster", obedient.address)
    assert code == 130 and not said and len(err.splitlines()) == 1 and err.startswith("interrupted"), err
    assert [path.name for path in tmp_path.iterdir() if path.read_bytes()] == ["prompts.jsonl"]

    def held() -> list[str]:
        from hybrid.cli.cluster.held_models import HERE

        return [str(key) for key in HERE._things]

    def tasks(dask_worker: Worker) -> int:
        return len(dask_worker.state.executing) + len(dask_worker.state.long_running)

    wait_for(lambda: not any(obedient.client.run(tasks).values()), "they have not stopped")
    wait_for(lambda: not any(obedient.client.run(held).values()), "they hold something")
    ok(cli("perplexity", files["q8_0"], "-f", prose, "-c", 64, "--chunks", 2, "--cluster", obedient.address))


# --- a scheduler is killed, a disk is full, a folder is missing ---
def test_the_scheduler_is_killed(files: dict[str, Path], prose: Path, tmp_path: Path) -> None:
    """While one command measures and another one writes."""
    file, orders, out = tmp_path / "scheduler.json", tmp_path / "orders", tmp_path / "out" / "out.gguf"
    orders.mkdir()
    (orders / "hold").touch()
    out.parent.mkdir()
    out.write_bytes(OLD)
    commands = [
        ["perplexity", str(files["q8_0"]), "-f", str(prose), "-c", "64", "--chunks", "30"],
        ["quantize", str(files["bf16"]), str(out), "q6_k"],
    ]
    with daskd(file, orders) as scheduler, ExitStack() as stack:
        doing, running = orders / "doing", []
        for command, what in zip(commands, ("_on_model", "_fill"), strict=True):
            running.append(stack.enter_context(started(*command, "--cluster", file)))
            wait_for(lambda what=what: doing.exists() and what in doing.read_text(), f"no {what}")  # type: ignore[misc]
        scheduler.kill()
        ends = [(process.communicate(timeout=PATIENCE), process.returncode) for process in running]
    for (written, err), code in ends:
        assert code == 1 and not written, err
        assert err.splitlines() == ["error: the scheduler of the workers is gone. Start it, then this again."]
    assert [path.name for path in out.parent.iterdir()] == ["out.gguf"] and out.read_bytes() == OLD


@pytest.mark.parametrize("command", ["quantize {bf16} {out} Q6_K", "convert {bundled} -o {out}"])
def test_a_disk_that_takes_no_more(
    command: str, files: dict[str, Path], bundled: Path, tmp_path: Path, cli: Cli, obedient: Workers
) -> None:
    out = tmp_path / "out.gguf"
    words = [*command.format(**files, bundled=bundled, out=out).split(), "--cluster", obedient.address]
    full = list(obedient.slots)[-1]

    def limit(n: int) -> None:
        def apply() -> None:
            import resource

            resource.setrlimit(resource.RLIMIT_FSIZE, (n, resource.RLIM_INFINITY))

        obedient.client.run(apply, workers=[full])

    limit(1 << 20)
    try:
        says = failed(cli(*words), 1)
    finally:
        limit(resource.RLIM_INFINITY)
    assert f" ({full}): {out} cannot be written: File too large" in says and "error: worker " in says
    assert list(tmp_path.iterdir()) == []
    ok(cli(*words))


def test_a_folder_that_workers_do_not_see(
    files: dict[str, Path], tmp_path: Path, cli: Cli, obedient: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on machines with separate disks."""
    from hybrid.quant.ggml.writer import GGUFWriter

    lay_out = GGUFWriter.lay_out

    def elsewhere(self: GGUFWriter) -> dict[str, object]:
        from dataclasses import replace

        there = Path("/nowhere") / "x.tmp"
        return {name: replace(place, path=there) for name, place in lay_out(self).items()}

    monkeypatch.setattr(GGUFWriter, "lay_out", elsewhere)
    says = failed(cli("quantize", files["bf16"], tmp_path / "out.gguf", "Q6_K", "--cluster", obedient.address), 1)
    assert "error: worker " in says and "/nowhere is not there. Give a path that all workers share." in says
    assert list(tmp_path.iterdir()) == []
