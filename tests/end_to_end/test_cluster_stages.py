"""`--stages N --cluster`: the output of a single process, by workers with some of the layers each."""

import asyncio
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import httpx
import psutil
import pytest
from cluster_workers import Workers, meanwhile
from distributed import Client, Future
from end_to_end.outcomes import Cli, failed, ok
from http_server import serving, until

from hybrid.cli.cluster import stages
from hybrid.infer import LoadedModel

pytestmark = [pytest.mark.exhaustive, pytest.mark.cluster]

HYBRID = [sys.executable, "-m", "hybrid.cli"]
PATIENCE = 120  # seconds, for a busy machine
PROMPT = "A state that is kept says more than"


@pytest.fixture
def staged(two: Workers) -> list[str]:
    two.clear()
    two.all_there(PATIENCE)
    return ["--stages", "2", "--cluster", two.address]


def test_an_answer(cli: Cli, files: dict[str, Path], staged: list[str]) -> None:
    command = [
        "run",
        str(files["q8_0"]),
        "--raw",
        "-p",
        PROMPT,
        "-n",
        "24",
        "--seed",
        "3",
        "--temp",
        "0.8",
        "--spec",
        "ngram",
    ]
    assert ok(cli(*command, *staged)) == ok(cli(*command))


def test_as_few_as_have_the_memory(cli: Cli, files: dict[str, Path], staged: list[str]) -> None:
    command = ["run", str(files["q8_0"]), "--raw", "-p", PROMPT, "-n", "8", "--seed", "3"]
    given = ["auto" if word == "2" else word for word in staged]
    assert ok(cli(*command, *given)) == ok(cli(*command))


def test_many_answers(cli: Cli, files: dict[str, Path], staged: list[str], tmp_path: Path) -> None:
    prompts = tmp_path / "p.jsonl"
    prompts.write_text("".join(f'{{"prompt": "{PROMPT} {i}, which"}}\n' for i in range(5)))
    command = ["run", str(files["q8_0"]), "-f", str(prompts), "-n", "8", "--seed", "4", "-c", "128", "--parallel", "3"]
    assert ok(cli(*command, *staged)) == ok(cli(*command))


def test_perplexity(cli: Cli, files: dict[str, Path], prose: Path, staged: list[str]) -> None:
    command = ["perplexity", str(files["q8_0"]), "-f", str(prose), "-c", "256", "--chunks", "4"]
    assert ok(cli(*command, *staged)) == ok(cli(*command))


def test_a_state_goes_from_stages_to_one_process(
    cli: Cli, files: dict[str, Path], staged: list[str], tmp_path: Path
) -> None:
    texts = []
    for first, then in ((staged, []), ([], staged), ([], [])):
        state = tmp_path / f"{len(texts)}.state"
        begun = ["run", str(files["q8_0"]), "--raw", "-p", PROMPT, "-n", "6", "--seed", "2", "--state", str(state)]
        on = ["run", str(files["q8_0"]), "--raw", "-p", " and", "-n", "6", "--seed", "2", "--state", str(state)]
        texts.append((ok(cli(*begun, *first)), ok(cli(*on, *then))))
    assert texts[0] == texts[1] == texts[2]


def test_bench(cli: Cli, files: dict[str, Path], staged: list[str]) -> None:
    out = ok(cli("bench", str(files["q8_0"]), "-p", "32", "-n", "4", "-r", "1", "--no-start", *staged))
    assert "pp32" in out and "tg4" in out
    assert "--profile" in failed(cli("bench", str(files["q8_0"]), "--profile", *staged), 2)


def kill_one(two: Workers, but: int = -1) -> None:
    os.kill(next(pid for pid in two.client.run(os.getpid).values() if pid != but), signal.SIGKILL)


def kept(two: Workers) -> list[Path]:
    """The files that stages keep on disk."""
    (folder,) = set(two.client.run(lambda dask_worker: dask_worker.local_directory.rpartition("/")[0]).values())
    return [*Path(folder, "hybrid-stages").glob("*/*/*")]


def read_again(said: str, n: int = 1) -> list[tuple[int, int]]:
    """(tokens read again, of how many) after each of n lost workers, from a command's stderr."""
    lost = re.findall(r"the worker with blocks \d+ to \d+ has gone\. Waiting for one in its place\.", said)
    found = re.findall(r"All stages are there\. Reading (\d+) of (\d+) tokens again\.", said)
    assert len(lost) == len(found) == n and "Traceback" not in said, said
    return [(int(again), int(of)) for again, of in found]


def test_a_worker_that_dies_in_a_prompt(
    cli: Cli, files: dict[str, Path], prose: Path, two: Workers, staged: list[str]
) -> None:
    """Two lines report it; its worker comes back, and the answer is unchanged."""
    command = ["run", str(files["q8_0"]), "--raw", "-p", prose.read_text()[:12000], "-n", "8", "--temp", "0"]
    whole = ok(cli(*command))
    process = subprocess.Popen([*HYBRID, *command, *staged], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(lambda: kept(two) or process.poll() is not None)
    two.order("opening")
    kill_one(two)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0 and out == whole, err
    assert two.done("opening"), "one was killed while all stages were opened again"
    read_again(err)
    assert not kept(two)


def test_a_worker_that_dies_while_its_stage_is_opened(
    cli: Cli, files: dict[str, Path], two: Workers, staged: list[str]
) -> None:
    """Before any computation the command ends: the model may be too large for that worker."""
    two.order("opening")
    says = failed(cli("run", files["q8_0"], "--raw", "-p", PROMPT, "-n", "4", *staged), 1)
    assert "error: a worker was lost while its stage was opened (" in says and two.done("opening")


def test_a_worker_that_dies_when_its_stage_is_open(
    cli: Cli, files: dict[str, Path], two: Workers, staged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies before it reports its address. Dask would open the stage again on the returned worker, which has another
    address."""
    answers, before = stages.ClusterLine._answers, set(two.slots)

    async def killed_first(line: stages.ClusterLine, tasks: Sequence[Future]) -> list[str]:
        if not two.done("told"):
            two.order("told.done")
            os.kill(pids[0], signal.SIGKILL)
            while before <= set(two.slots):
                await asyncio.sleep(0.01)
        return await answers(line, tasks)

    pids = list(two.client.run(os.getpid).values())
    monkeypatch.setattr(stages.ClusterLine, "_answers", killed_first)
    says = failed(cli("run", files["q8_0"], "--raw", "-p", PROMPT, "-n", "4", *staged), 1)
    assert "error: a worker was lost while its stage was opened (CommClosedError)" in says


@pytest.mark.parametrize("fits", [True, False])
def test_who_joins_late_takes_the_place_of_one_that_dies(
    fits: bool, cli: Cli, files: dict[str, Path], two: Workers, staged: list[str]
) -> None:
    """A worker that does not fit never computes, even if it joins before it has found that out."""
    command = ["run", str(files["q8_0"]), "--raw", "-p", PROMPT, "-n", "8", "--temp", "0"]
    env = {} if fits else {"OTHER_VERSION": "1", "SECONDS_TO_LOOK": "1"}
    whole, before = ok(cli(*command)), set(two.slots)

    def replace(ended: threading.Event) -> None:
        until(lambda: two.read("held"))  # so all stages are open
        with two.late("late", env):
            until(lambda: len(two.slots) == 3)
            (late,) = two.client.run(os.getpid, workers=[*set(two.slots) - before]).values()
            kill_one(two, but=late)
            (two.orders / "hold").unlink()
            assert ended.wait(PATIENCE)
            assert (str(late) in two.read("opened")) == fits

    two.order("hold")
    with meanwhile(two, replace):
        code, out, err = cli(*command, *staged)
    assert (code, out) == (0, whole), err
    read_again(err)
    assert ("worker late (tcp://127.0.0.1:" in err) == ("is not used: it has hybrid 0.0.9" in err) == (not fits)


def test_a_disk_that_has_no_room_for_checkpoints(
    cli: Cli, files: dict[str, Path], prose: Path, two: Workers, staged: list[str]
) -> None:
    """One worker's disk: it reports that once, and the answer is unchanged."""
    command = ["run", str(files["q8_0"]), "--raw", "-p", prose.read_text()[:6000], "-n", "8", "--temp", "0"]
    (full, *_) = two.slots

    def limit(n: int) -> None:
        def apply() -> None:
            import resource

            resource.setrlimit(resource.RLIMIT_FSIZE, (n, resource.RLIM_INFINITY))

        two.client.run(apply, workers=[full])

    limit(1000)
    try:
        code, out, err = cli(*command, *staged)
    finally:
        limit(resource.RLIM_INFINITY)
    assert (code, out) == (0, ok(cli(*command)))
    said = [line for line in err.splitlines() if "no checkpoints are kept there" in line]
    assert len(said) == 1 and said[0].startswith(f"{full}: ") and said[0].endswith(": File too large"), err
    assert len(err.splitlines()) == 2 and not kept(two), err


def test_serve(files: dict[str, Path], two: Workers, staged: list[str], tmp_path: Path) -> None:
    """The answers equal a plain server's; a server that loses a stage continues, and can reuse its texts afterwards."""
    prompt = PROMPT * 75
    body = {"prompt": prompt, "max_tokens": 80, "temperature": 0.9, "seed": 5, "ignore_eos": True}
    with (
        LoadedModel.load(files["q8_0"], n_ctx=1024, n_seq_max=5, checkpoint_budget=64 << 20) as model,
        serving(model) as plain,
    ):
        expected = plain.http.post("/v1/completions", json=body).json()["choices"][0]["text"]
        assert plain.http.get("/props").json()["stages"] == []
    command = [*HYBRID, "serve", str(files["q8_0"]), "--unix", str(tmp_path / "socket"), "-c", "1024", *staged]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen([*command, "--parallel", "1"], stderr=log)
    try:
        until(lambda: process.poll() is not None or "/v1" in (tmp_path / "log").read_text())
        transport = httpx.HTTPTransport(uds=str(tmp_path / "socket"))
        with httpx.Client(transport=transport, base_url="http://x", timeout=PATIENCE) as http:
            first, second = http.get("/props").json()["stages"]
            assert first["blocks"][0] == 0 and second["blocks"][0] == first["blocks"][1] + 1
            with http.stream("POST", "/v1/completions", json=body | {"stream": True}) as response:
                lines = (line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: {"))
                text = json.loads(next(lines))["choices"][0]["text"]
                kill_one(two)
                text += "".join(json.loads(line)["choices"][0]["text"] for line in lines)
            assert text == expected
            answer = http.post("/v1/completions", json=body).json()
            assert answer["choices"][0]["text"] == expected
            assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] >= 512
            kill_one(two)  # while no request runs
            assert http.post("/v1/completions", json=body).json()["choices"][0]["text"] == expected
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        in_an_answer, idle = read_again((tmp_path / "log").read_text(), 2)
        assert in_an_answer[0] <= in_an_answer[1] - 512 and idle[0] < 80
        left = two.client.run(lambda: [t.name for t in __import__("threading").enumerate() if "stage-" in t.name])
        assert not any(left.values()) and not kept(two)
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_an_interrupt_leaves_nothing(files: dict[str, Path], prose: Path, tmp_path: Path) -> None:
    """The signal goes to the command and its workers, as from a terminal."""
    text = tmp_path / "text.txt"
    text.write_text(prose.read_text() * 20)
    command = ["perplexity", str(files["q8_0"]), "-f", str(text), "-c", "256"]
    process = subprocess.Popen(
        [*HYBRID, *command, "--stages", "2", "--cluster", "local:2"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"DASK_TEMPORARY_DIRECTORY": str(tmp_path / "dask")},
    )
    until(lambda: [*tmp_path.glob("dask/**/hybrid-stages/*/*")] or process.poll() is not None)
    below = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130 and err.splitlines() == ["interrupted"], err
    psutil.wait_procs(below, timeout=PATIENCE)
    assert not any(child.is_running() for child in below)
    assert not [*tmp_path.glob("dask/**/hybrid-stages/*/*/*")]


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["opening", "reading"])
def test_the_scheduler_is_killed(moment: str, files: dict[str, Path], prose: Path, tmp_path: Path) -> None:
    file, prompt = tmp_path / "scheduler.json", (prose.read_text() * 5)[:60000]
    given = ["--scheduler-file", str(file), "--no-dashboard", "--host", "127.0.0.1"]
    dask, env = [sys.executable, "-m", "dask"], os.environ | {"DASK_TEMPORARY_DIRECTORY": str(tmp_path / "dask")}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": env}
    processes = [subprocess.Popen([*dask, "scheduler", "--port", "0", *given], **quiet)]  # type: ignore[call-overload]
    there = "dask/**/hybrid-stages/*/*" + ("/page*" if moment == "reading" else "")
    try:
        until(file.exists)
        worker = [*dask, "worker", *given, "--nthreads", "1", "--no-nanny", "--death-timeout", "5"]
        processes += [subprocess.Popen(worker, **quiet) for _ in range(2)]  # type: ignore[call-overload]
        with Client(scheduler_file=str(file)) as client:
            client.wait_for_workers(2, timeout=PATIENCE)
        command = ["run", str(files["q8_0"]), "--raw", "-p", prompt, "-c", "32768", "-n", "8", "--stages", "2"]
        asked = subprocess.Popen(
            [*HYBRID, *command, "--cluster", str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        processes.append(asked)
        until(lambda: [*tmp_path.glob(there)] or asked.poll() is not None)
        processes[0].kill()
        out, err = asked.communicate(timeout=PATIENCE)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert asked.returncode == 1 and not out and "Traceback" not in err, err
    last = err.splitlines()[-1]  # while stages open, workers may be missed first: they end with the scheduler
    missed = last.startswith("error: a worker was lost while its stage was opened (")
    assert missed or last == "error: the scheduler has gone: start it again, then this."


def test_what_cannot_be(cli: Cli, files: dict[str, Path], staged: list[str], two: Workers) -> None:
    model = str(files["q8_0"])
    assert "add --stages" in failed(cli("bench", model, "--cluster", two.address), 2)
    more = ["--cluster", two.address, "--stages"]
    assert "3 stages need as many workers, there are 2" in failed(cli("run", model, "--raw", "-p", "a", *more, "3"), 2)
    assert "--draft" in failed(cli("run", model, "--raw", "-p", "a", *staged, "--draft", model), 2)
    assert "leave out" in failed(cli("perplexity", model, "-f", "a", "--hellaswag", *staged), 2)


@pytest.mark.slow
def test_four_processes_of_this_machine(cli: Cli, files: dict[str, Path], prose: Path) -> None:
    more = ["--stages", "4", "--cluster", "local:4"]
    answer = ["run", str(files["q8_0"]), "--raw", "-p", PROMPT, "-n", "24", "--seed", "2"]
    ppl = ["perplexity", str(files["q8_0"]), "-f", str(prose), "-c", "256", "--chunks", "2"]
    for command in (answer, ppl):
        found = subprocess.run([*HYBRID, *command, *more], capture_output=True, timeout=PATIENCE, check=True).stdout
        assert found.decode() == ok(cli(*command))
