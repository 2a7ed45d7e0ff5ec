"""`hybrid run -f FILE.jsonl --cluster`: the bytes of a single process, whatever happens to workers, scheduler and
client."""

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from cluster_workers import Workers, meanwhile, preload_file
from distributed import LocalCluster, Security
from end_to_end.outcomes import Cli, failed, ok

from hybrid.infer.kernels.emit.isa import host

pytestmark = [pytest.mark.exhaustive, pytest.mark.cluster]

HYBRID = [sys.executable, "-m", "hybrid.cli"]
PATIENCE = 120  # seconds, for a busy machine
N = 24
POISON = "Question 7:"


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Questions about a few documents, in mixed order, and prompts that share nothing."""
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    documents = [f"A document about number {i} and its many states, which are kept. " * 3 for i in range(5)]
    lines = [{"prompt": f"{documents[i % 5]}Question {i}:", "id": f"q{i}"} for i in range(N - 4)]
    lines += [{"prompt": f"{i} memories are"} for i in range(4)]
    path.write_text("".join(json.dumps(line) + "\n\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def command(files: dict[str, Path], prompts: Path) -> list[str]:
    return ["run", str(files["q8_0"]), "-f", str(prompts), "-n", "12", "-c", "256", "--seed", "5", "--parallel", "4"]


@pytest.fixture(scope="module")
def whole(command: list[str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The output of a single process."""
    out = tmp_path_factory.mktemp("whole") / "out.jsonl"
    subprocess.run([*HYBRID, *command, "-o", str(out)], check=True, capture_output=True, timeout=PATIENCE)
    return out.read_text()


# --- the same bytes ---
def test_the_bytes_of_one_process(cli: Cli, command: list[str], whole: str, obedient: Workers) -> None:
    """To stdout, in order."""
    code, out, err = cli(*command, "--cluster", obedient.address)
    assert (code, out) == (0, whole)
    assert f"{N} answers, " in err
    by_process = {line.split()[1] for line in obedient.read("answered")}
    assert len(by_process) == 2, "both worked"


def test_samples_probabilities_and_forms(cli: Cli, command: list[str], obedient: Workers, tmp_path: Path) -> None:
    """All options and settings of lines reach the workers."""
    more = ["--n-samples", "3", "--n-probs", "2", "--regex", "[a-z ]{1,20}", "--stop", "the"]
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": "One is"}\n"Two is"\n{"prompt": "Three is", "choice": ["yes", "no"], "id": [1]}\n')
    given = [str(file) if Path(word).suffix == ".jsonl" else word for word in command]
    expected = ok(cli(*given, *more))
    assert ok(cli(*given, *more, "--cluster", obedient.address)) == expected
    assert len(set(expected.splitlines())) == 9


def test_messages(cli: Cli, command: list[str], obedient: Workers, tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text("".join(json.dumps({"messages": [{"role": "user", "content": f"{i}?"}]}) + "\n" for i in range(4)))
    given = [str(file) if Path(word).suffix == ".jsonl" else word for word in command]
    assert ok(cli(*given, "--cluster", obedient.address)) == ok(cli(*given))


def test_a_run_goes_on_after_either_command(
    cli: Cli, command: list[str], whole: str, obedient: Workers, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    some = "".join(whole.splitlines(keepends=True)[:5])
    out.write_text(some + '{"index": 5, "id"')  # left by a killed process
    code, _, err = cli(*command, "-o", out, "--cluster", obedient.address)
    assert code == 0 and "(5 were there)" in err and out.read_text() == whole
    assert {int(line.split()[0]) for line in obedient.read("answered")} == set(range(5, N))
    out.write_text(whole.replace('"key": "', '"key": "0'))
    assert "other prompts or settings" in failed(cli(*command, "-o", out, "--cluster", obedient.address), 2)


@pytest.mark.slow
def test_four_processes_of_this_machine(command: list[str], whole: str, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    done = subprocess.run(
        [*HYBRID, *command, "-o", str(out), "--cluster", "local:4"], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    assert out.read_text() == whole
    assert done.stderr.count("\n") == 1, "nothing but what was done"


# --- workers die ---
@pytest.mark.parametrize(
    "phase",
    ["drawing", *(pytest.param(p, marks=pytest.mark.slow) for p in ("connecting", "loading", "reading", "between"))],
)
def test_a_worker_dies_in_every_phase(cli: Cli, command: list[str], whole: str, obedient: Workers, phase: str) -> None:
    """The phases are tested one by one: with several orders at once, a worker left without work would never reach its
    phase."""
    obedient.order(phase)
    code, out, err = cli(*command, "--cluster", obedient.address)
    assert obedient.done(phase), "one was killed"
    assert (code, out) == (0, whole), err
    numbers = [int(line.split()[0]) for line in obedient.read("answered")]
    assert len(numbers) <= N + 4, "of the worker that died what was not fetched yet was drawn again, no more"


def test_an_idle_worker_dies(cli: Cli, command: list[str], obedient: Workers, tmp_path: Path) -> None:
    """No output is lost, and no message is printed."""
    file = tmp_path / "p.jsonl"
    file.write_text('"One is"\n')
    given = [str(file) if Path(word).suffix == ".jsonl" else word for word in command]
    expected = cli(*given)[:2]
    obedient.order("hold")

    def kill(_: threading.Event) -> None:
        wait_for(lambda: obedient.read("taken"), "it never began")
        (idle,) = set(obedient.client.run(os.getpid).values()) - {int(pid) for pid in obedient.read("taken")}
        os.kill(idle, signal.SIGKILL)
        wait_for(lambda: gone([idle]), "it lives")
        (obedient.orders / "hold").unlink()

    with meanwhile(obedient, kill):
        code, out, err = cli(*given, "--cluster", obedient.address)
    assert (code, out) == expected and len(err.splitlines()) == 1, err
    assert len(obedient.read("taken")) == 1


def test_a_prompt_that_kills_is_set_aside(
    cli: Cli, command: list[str], whole: str, obedient: Workers, tmp_path: Path
) -> None:
    obedient.order("poison", POISON)
    out = tmp_path / "out.jsonl"
    code, _, err = cli(*command, "-o", out, "--cluster", obedient.address)
    assert code == 1
    lines = err.splitlines()
    assert lines[0].startswith("prompt 8 is set aside: workers died over it 2 times, the last one at tcp://127.0.0.1:")
    assert lines[-1].startswith('error: 1 of the answers are set aside: their lines have "error"'), err
    assert len(obedient.read("poisoned")) == 2, "it was tried again once"
    written = out.read_text().splitlines()
    assert [line for i, line in enumerate(written) if i != 7] == [
        line for i, line in enumerate(whole.splitlines()) if i != 7
    ]
    aside = json.loads(written[7])
    assert aside["error"] == "workers died over it 2 times" and aside["id"] == "q7" and "text" not in aside
    obedient.clear()
    out.write_text("\n".join(written[:7]) + "\n")
    assert cli(*command, "-o", out, "--cluster", obedient.address)[0] == 0
    assert out.read_text() == whole, "its line removed, it is answered"


# --- workers join ---
def test_one_joins_late_and_one_does_not_fit(
    cli: Cli, command: list[str], whole: str, files: dict[str, Path], obedient: Workers, tmp_path: Path
) -> None:
    """Both join a run that began without them. The worker with another file, where it would fail, gets no work and
    leaves."""
    name = files["q8_0"].name
    (tmp_path / name).write_bytes(files["bf16"].read_bytes())
    env = {"NO_SHARED_FOLDER": "1", "HYBRID_MODELS": str(tmp_path), "SECONDS_TO_LOOK": "1.5"}
    obedient.order("hold")

    def join(ended: threading.Event) -> None:
        wait_for(lambda: len(obedient.read("taken")) == 8, "they never began")
        there = set(obedient.slots)
        with obedient.late("other", env):
            wait_for(lambda: set(obedient.slots) - there, "it never came")
            wait_for(lambda: set(obedient.slots) == there, "it stays")
        with obedient.late("late"):
            wait_for(lambda: len(set(obedient.read("taken"))) == 3, "the third has nothing to do")
            (obedient.orders / "hold").unlink()
            ended.wait(PATIENCE)

    with meanwhile(obedient, join):
        code, out, err = cli(*command, "--cluster", obedient.address)
    assert (code, out) == (0, whole), err
    said = [line for line in err.splitlines() if "is not used" in line]
    assert len(said) == 1 and said[0].startswith("worker other (tcp://127.0.0.1:"), err
    assert f"{tmp_path / name} is another file there than at the client" in said[0]
    assert len({line.split()[1] for line in obedient.read("answered")}) == 3, "three processes have answered"


def test_a_worker_of_another_version(cli: Cli, command: list[str], obedient: Workers) -> None:
    with obedient.late("old", {"OTHER_VERSION": "1"}):
        obedient.client.wait_for_workers(3, timeout=PATIENCE)
        error = failed(cli(*command, "--cluster", obedient.address), 1)
    assert "worker old (tcp://127.0.0.1:" in error and "it has hybrid 0.0.9, the client " in error


def test_a_worker_of_another_code_path(
    cli: Cli, command: list[str], whole: str, files: dict[str, Path], obedient: Workers
) -> None:
    """Its code path matters for BF16 weights only, and not with --exact."""
    with obedient.late("plain", {"OTHER_PATH": "1"}):
        obedient.client.wait_for_workers(3, timeout=PATIENCE)
        assert ok(cli(*command, "--cluster", obedient.address)) == whole
        bf16 = [str(files["bf16"]) if word == str(files["q8_0"]) else word for word in command]
        error = failed(cli(*bf16, "--cluster", obedient.address), 1)
    assert "worker " in error and host().name in error and "products of BF16 weights differ in their bits" in error


def test_a_worker_with_another_file(
    cli: Cli, command: list[str], whole: str, files: dict[str, Path], obedient: Workers, tmp_path: Path
) -> None:
    """A worker that does not see the client's folder is judged by the content of its file, not by the name."""
    name, own = files["q8_0"].name, tmp_path / "own"
    own.mkdir()
    (own / name).write_bytes(files["bf16"].read_bytes())
    with obedient.late("apart", {"NO_SHARED_FOLDER": "1", "HYBRID_MODELS": str(own)}):
        obedient.client.wait_for_workers(3, timeout=PATIENCE)
        error = failed(cli(*command, "--cluster", obedient.address), 1)
        assert "error: worker apart (tcp://127.0.0.1:" in error
        assert f"{own / name} is another file there than at the client. Copy the client's there." in error
        (own / "named-otherwise.gguf").write_bytes(files["q8_0"].read_bytes())
        assert ok(cli(*command, "--cluster", obedient.address)) == whole
        assert len({line.split()[1] for line in obedient.read("answered")}) == 3


# --- the client, and the scheduler ---
def test_a_full_disk_at_the_client(cli: Cli, command: list[str], whole: str, obedient: Workers, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    room = len("".join(whole.splitlines(keepends=True)[:3])) + 50
    full = subprocess.run(
        [*HYBRID, *command, "-o", str(out), "--cluster", obedient.address],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert full.returncode == 1 and full.stderr.splitlines() == [f"error: {out}: File too large."]
    written = out.read_text()
    assert 1 <= written.count("\n") <= 3 and whole.startswith(written)
    assert cli(*command, "-o", out, "--cluster", obedient.address)[0] == 0
    assert out.read_text() == whole


def children(pid: int) -> list[int]:
    """Processes started by this one, directly and indirectly."""
    found = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(line.split()[0]): int(line.split()[1]) for line in found.splitlines()}
    below = {pid}
    while more := {p for p, parent in parents.items() if parent in below} - below:
        below |= more
    return sorted(below - {pid})


def gone(pids: list[int]) -> bool:
    for pid in pids:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            continue
        return False
    return True


def wait_for(happened: "object", what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not happened():  # type: ignore[operator]
        assert time.monotonic() < end, what
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["starting", "answering"])
def test_an_interrupt_leaves_no_process(moment: str, command: list[str], whole: str, tmp_path: Path) -> None:
    """The signal goes to the client and its workers, as from a terminal."""
    out, orders = tmp_path / "out.jsonl", tmp_path / "orders"
    orders.mkdir()
    (orders / "slow").write_text("0.3")
    env = os.environ | {"DASK_DISTRIBUTED__WORKER__PRELOAD": str(preload_file(orders))}
    client = subprocess.Popen(
        [*HYBRID, *command, "-o", str(out), "--cluster", "local:2"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=env,
    )
    wait_for(
        lambda: children(client.pid) if moment == "starting" else out.exists() and out.read_text(), "it never began"
    )
    below = children(client.pid)
    os.killpg(client.pid, signal.SIGINT)
    _, err = client.communicate(timeout=PATIENCE)
    assert client.returncode == 130, err
    lines = err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("interrupted"), err
    wait_for(lambda: gone(below), f"{below} are still there")
    assert whole.startswith(out.read_text() if out.exists() else "")


@pytest.mark.slow
def test_the_scheduler_is_killed(command: list[str], whole: str, tmp_path: Path) -> None:
    file, out, orders = tmp_path / "scheduler.json", tmp_path / "out.jsonl", tmp_path / "orders"
    orders.mkdir()
    (orders / "slow").write_text("0.3")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    given = ["--scheduler-file", str(file), "--no-dashboard", "--host", "127.0.0.1"]
    dask = [sys.executable, "-m", "dask"]
    processes = [subprocess.Popen([*dask, "scheduler", "--port", "0", *given], **quiet)]  # type: ignore[call-overload]
    try:
        wait_for(file.exists, "no scheduler")
        more = ["--nthreads", "2", "--no-nanny", "--preload", str(preload_file(orders)), "--death-timeout", "5"]
        processes.append(subprocess.Popen([*dask, "worker", *given, *more], cwd=tmp_path, **quiet))  # type: ignore[call-overload]
        client = subprocess.Popen(
            [*HYBRID, *command, "-o", str(out), "--cluster", str(file)], stderr=subprocess.PIPE, text=True
        )
        processes.append(client)
        wait_for(lambda: out.exists() and out.read_text(), "it never began")
        processes[0].kill()
        _, err = client.communicate(timeout=PATIENCE)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert client.returncode == 1
    assert len(err.splitlines()) == 1 and "its scheduler is gone, after " in err, err
    assert f"The same command goes on after those in {out}." in err
    written = out.read_text()
    assert written.endswith("\n") and whole.startswith(written) and len(written) < len(whole)


def test_no_certificates(files: dict[str, Path], tmp_path: Path) -> None:
    """In a process of its own: its output includes what Dask's client prints when it is destroyed."""
    file = tmp_path / "cluster.json"
    with LocalCluster(
        n_workers=0,
        host="127.0.0.1",
        protocol="tls://",
        security=Security.temporary(),
        dashboard_address=":0",
        silence_logs=50,
    ) as cluster:
        file.write_text(json.dumps({"address": cluster.scheduler_address}))
        done = subprocess.run(
            [*HYBRID, "perplexity", str(files["q8_0"]), "-f", str(file), "-c", "64", "--cluster", str(file)],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.endswith("Name the certificates, as docs/cluster.md shows.\n")
