"""--cluster where something ends or fails in the middle: no half file, no unfinished one, no process left behind."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("distributed")
import psutil
from distributed import Client, LocalCluster
from end_to_end.outcomes import Cli, failed, ok

from hybrid.cli.main import run

pytestmark = pytest.mark.slow
OLD = b"what was there before"
PATIENCE = 240  # seconds in which a process has to end on a busy machine


@contextlib.contextmanager
def started(*args: object) -> Iterator[subprocess.Popen[str]]:
    """A command in a group of its own, which a terminal's Ctrl-C would reach as a whole."""
    process = subprocess.Popen(
        [sys.executable, "-m", "hybrid.cli", *map(str, args), "--cluster", "local:2"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
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


def unfinished(folder: Path) -> list[Path]:
    return list(folder.glob(".*.tmp"))


@pytest.fixture
def expected(files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("alone") / "out.gguf"
    assert run(["quantize", str(files["bf16"]), str(path), "Q4_K_M", "--effort", "1"]) == 0
    return path


def test_a_worker_killed_while_it_writes(files: dict[str, Path], tmp_path: Path, expected: Path) -> None:
    out = tmp_path / "out.gguf"
    out.write_bytes(OLD)
    with started("quantize", files["bf16"], out, "Q4_K_M", "--effort", 1) as process:
        waited_for(process, lambda: unfinished(tmp_path))
        before = workers_of(process)
        time.sleep(0.1)
        os.kill(before[0].pid, signal.SIGKILL)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0 and "Traceback" not in err, err
    assert out.read_bytes() == expected.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["out.gguf"]


@pytest.mark.parametrize(
    "command",
    ["quantize {bf16} {out} Q4_K_M --effort 1", "perplexity {bf16} -f {prose} -c 32 --kl-divergence-base {out}"],
)
def test_interrupted(command: str, files: dict[str, Path], prose: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    out.write_bytes(OLD)
    with started(*command.format(**files, prose=prose, out=out).split()) as process:
        waited_for(process, lambda: unfinished(tmp_path))
        left = workers_of(process)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in err, err
    assert process.returncode == 130 and err.splitlines()[-1].startswith("interrupted"), err
    assert [path.name for path in tmp_path.iterdir()] == ["out.gguf"] and out.read_bytes() == OLD
    psutil.wait_procs(left, timeout=10)
    assert not [worker for worker in left if worker.is_running()]


def test_a_local_worker_that_dask_gives_up_comes_again() -> None:
    """Dask closes the nanny of a process that died while it started."""
    from hybrid.cli.cluster.local_workers import kept_up

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=":0", silence_logs=50,
            worker_dashboard_address=None,
        ) as cluster,
        kept_up(cluster, 2),
        Client(cluster, set_as_default=False) as client,
    ):  # fmt: skip
        before = set(client.scheduler_info(n_workers=-1)["workers"])
        nanny = cluster.workers[1]
        cluster.sync(nanny.close)
        deadline = time.monotonic() + PATIENCE
        while cluster.workers.get(1) in (nanny, None) and time.monotonic() < deadline:
            time.sleep(0.05)
        client.wait_for_workers(2, timeout=PATIENCE)
        assert len(before & set(client.scheduler_info(n_workers=-1)["workers"])) == 1


@pytest.fixture(scope="module")
def workers() -> Iterator[LocalCluster]:
    with LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=":0", silence_logs=50,
        worker_dashboard_address=None,
    ) as cluster:  # fmt: skip
        yield cluster


@pytest.mark.parametrize("command", ["quantize {bf16} {out} Q6_K", "convert {bundled} -o {out}"])
def test_a_disk_that_takes_no_more(
    command: str, files: dict[str, Path], bundled: Path, tmp_path: Path, cli: Cli, workers: LocalCluster
) -> None:
    out = tmp_path / "out.gguf"
    words = [*command.format(**files, bundled=bundled, out=out).split(), "--cluster", workers.scheduler_address]

    def limit(n: int) -> None:
        def apply() -> None:
            import resource

            resource.setrlimit(resource.RLIMIT_FSIZE, (n, resource.RLIM_INFINITY))

        with Client(workers, set_as_default=False) as client:
            client.run(apply, workers=[workers.workers[1].worker_address])

    limit(1 << 20)
    try:
        says = failed(cli(*words), 1)
    finally:
        limit(resource.RLIM_INFINITY)
    assert f"worker 1 ({workers.workers[1].worker_address}): {out} cannot be written: File too large" in says
    assert list(tmp_path.iterdir()) == []
    ok(cli(*words))


def test_a_folder_that_workers_do_not_see(
    files: dict[str, Path], tmp_path: Path, cli: Cli, workers: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on machines that have each a disk of its own."""
    from hybrid.quant.ggml.writer import GGUFWriter

    lay_out = GGUFWriter.lay_out

    def elsewhere(self: GGUFWriter) -> dict[str, object]:
        from dataclasses import replace

        there = Path("/nowhere") / "x.tmp"
        return {name: replace(place, path=there) for name, place in lay_out(self).items()}

    monkeypatch.setattr(GGUFWriter, "lay_out", elsewhere)
    says = failed(
        cli("quantize", files["bf16"], tmp_path / "out.gguf", "Q6_K", "--cluster", workers.scheduler_address), 1
    )
    assert "error: worker " in says and "/nowhere is not there. Give a path that all workers share." in says
    assert list(tmp_path.iterdir()) == []


def test_another_source_on_a_worker(bundled: Path, tmp_path: Path) -> None:
    """A checkpoint of the same path whose files are others."""
    from hybrid.cli.cluster.sources import FolderAsked
    from hybrid.quant.ggml.errors import ClusterError

    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for path in bundled.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    asked = FolderAsked.of(folder)
    assert asked.found() == folder
    part = folder / "model-00002-of-00004.safetensors"
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    with pytest.raises(ClusterError, match=r"checkpoint is another checkpoint there than at the client\. Share one\.$"):
        asked.found()
