"""Ctrl-C at given times, as a terminal sends it: one line, exit code 130, unchanged files.

An interrupt after the finished file has replaced the old one, and before the process ends, leaves the finished file,
which equals the file of an uninterrupted run.
"""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from end_to_end.interrupted import check_said, contents, parts_and_adapter
from harness_tasks import write_tasks

from hybrid.cli.main import run
from hybrid.quant.imatrix import Imatrix

pytestmark = [pytest.mark.exhaustive, pytest.mark.soak]

HYBRID = [sys.executable, "-m", "hybrid.cli"]
OLD = b"what was there before"
# Signals that Python itself has started and the command has begun: messages of Python before that are not ours. Printed
# within the `try` of `main`, as the process may continue with any delay after printing.
BEGINS = """
import hybrid.cli.__main__ as m
first = m.lose_no_interrupt
m.lose_no_interrupt = lambda: (first(), print("begun", flush=True))
m.main()
"""
# seconds after that, from the first imports to the work itself
MOMENTS = (0.1, 0.7, 1.8)
AT_ONCE = 5  # attempts with an immediate interrupt, if the machine was too busy for the first moment
PATIENCE = 240  # seconds until a process has to end on a busy machine

COMMANDS = {
    "convert": "convert {bundled} -o {out}",
    "convert in parts": "convert {bundled} -o {out} --split-max-size 4M",
    "quantize": "quantize {bf16} {out} Q4_K_M --effort 1",
    "quantize to a size": "quantize {bf16} {out} --target-size 8M -f {prose}",
    "quantize a folder in parts": "quantize {bundled} {out} Q6_K --split-max-size 2M",
    "imatrix": "imatrix {q8_0} -f {prose} -o {out} -c 64 --save-every 1000",
    "imatrix.dat": "imatrix {q8_0} -f {prose} -o {out}.dat -c 64 --save-every 1000",
    "gguf split": "gguf split {bf16} {out} --split-max-size 2M",
    "gguf merge": "gguf merge {parts} {out}",
    "gguf merge-lora": "gguf merge-lora {bf16} {lora} -o {out}",
    "gguf set": "gguf set {copy} general.name {long}",
    "gguf hash": "gguf hash {bf16}",
    "perplexity": "perplexity {q8_0} -f {prose} -c 64",
    "base": "perplexity {q8_0} -f {prose} -c 64 --kl-divergence-base {out}",
    "embed": "embed {q8_0} -f {prose} -o {out} --npy",
    "eval": "eval {q8_0} --tasks reading --tasks-dir {tasks}",
    "bench": "bench {q8_0} -p 64 -n 64 -r 50",
    "run": "run {q8_0} -p State -n -1 -c 4096 --state {out}",
}
"""Each replaces a file OUT that is there, or reads alone."""


def as_before_or_whole(folder: Path, before: dict[str, bytes], command: list[str]) -> bool:
    """Whether the files are unchanged, or are what an uninterrupted run of the command writes."""
    found = contents(folder)
    return found == before or (command[0] != "run" and run(command) == 0 and found == contents(folder))


@contextlib.contextmanager
def started(command: list[str], cache: Path) -> Iterator[subprocess.Popen[str]]:
    """A command in a process group of its own, so that its helpers get signals as in a terminal."""
    env = {**os.environ, "XDG_STATE_HOME": str(cache / "state")}
    process = subprocess.Popen(
        [sys.executable, "-c", BEGINS, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=env,
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def interrupted(process: subprocess.Popen[str]) -> bool:
    """Send Ctrl-C; check that the output has only notes and one line. False: the interrupt came too late."""
    with contextlib.suppress(ProcessLookupError):  # it has ended, and `poll` has noticed
        os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    if process.returncode == 0:
        assert "Traceback" not in err and "Exception ignored" not in err and "rror" not in err, err
        return False
    assert process.returncode == 130, err
    check_said(err)
    return True


@pytest.fixture(scope="module")
def model_files(
    files: dict[str, Path], bundled: Path, prose: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("interrupts")
    parts, adapter = parts_and_adapter(files["bf16"], bundled, folder)
    return {
        **{name: str(path) for name, path in files.items()},
        "bundled": str(bundled),
        "prose": str(prose),
        "parts": str(parts),
        "lora": str(adapter),
        "long": "x" * 3000,
        "tasks": str(write_tasks(folder / "tasks", prose)),
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_files_are_as_before(name: str, model_files: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    out = folder / "out.gguf"
    for path in (out, Path(f"{out}.dat"), folder / "out-00001-of-00003.gguf"):
        path.write_bytes(OLD)
    copy = folder / "copy.gguf"
    copy.write_bytes(Path(model_files["bf16"]).read_bytes())
    if name in ("run",):
        out.unlink()
    command = [word.format(**model_files, out=out, copy=copy) for word in COMMANDS[name].split()]

    def stopped(moment: float) -> bool:
        before = contents(folder)
        with started(command, tmp_path) as process:
            time.sleep(moment)
            in_time = interrupted(process)
        assert not in_time or as_before_or_whole(folder, before, command), f"after {moment} s"
        return in_time

    hit = any([*itertools.takewhile(bool, map(stopped, MOMENTS))])
    assert hit or any(stopped(0) for _ in range(AT_ONCE)), "never interrupted"


@pytest.mark.parametrize("name", ["convert", "quantize", "gguf split", "gguf merge", "base"])
def test_while_the_file_is_being_written(name: str, model_files: dict[str, str], tmp_path: Path) -> None:
    """Interrupt as soon as there is an unfinished file. No unfinished file stays, even if the interrupt came too
    late."""
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "out.gguf").write_bytes(OLD)
    command = [word.format(**model_files, out=folder / "out.gguf", copy="") for word in COMMANDS[name].split()]
    before = contents(folder)
    with started(command, tmp_path) as process:
        deadline = time.monotonic() + 240
        while not list(folder.glob(".out*.tmp")) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.0005)
        if interrupted(process):
            assert as_before_or_whole(folder, before, command)
    assert not list(folder.glob(".*"))


def test_an_importance_matrix_goes_on(model_files: dict[str, str], tmp_path: Path) -> None:
    """The file written last is complete, and --resume gives the result of an uninterrupted run."""
    out, whole = tmp_path / "i.gguf", tmp_path / "whole.gguf"
    options = ["-f", model_files["prose"], "-c", "32", "-b", "64", "--chunks", "60", "--save-every", "2"]
    subprocess.run([*HYBRID, "imatrix", model_files["q8_0"], *options, "-o", str(whole)], check=True)
    with started(["imatrix", model_files["q8_0"], *options, "-o", str(out)], tmp_path) as process:
        while not out.exists() and process.poll() is None:
            time.sleep(0.002)
        time.sleep(0.05)
        with contextlib.suppress(ProcessLookupError):  # it has ended, and `poll` has noticed
            os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    if process.returncode == 130:
        done = Imatrix.read(out).chunk_count
        assert 0 < done < 60
        said = err.splitlines()[-1]
        assert said in (f"interrupted; --resume goes on after the chunks that are in {out}", "interrupted")
        assert said != "interrupted" or done == 2, "what was written first may not be known yet"
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
    subprocess.run([*HYBRID, "imatrix", model_files["q8_0"], *options, "-o", str(out), "--resume"], check=True)
    a, b = Imatrix.read(out), Imatrix.read(whole)
    assert a.chunk_count == b.chunk_count == 60 and a.entries.keys() == b.entries.keys()
    for name, entry in b.entries.items():
        np.testing.assert_allclose(a.entries[name].sums, entry.sums, rtol=1e-5)  # sums of sums, in f32


def test_twice(model_files: dict[str, str], tmp_path: Path) -> None:
    """Repeated Ctrl-C gives no traceback."""
    for moment in (0.5, 1.0):
        command = ["quantize", model_files["bf16"], str(tmp_path / "out.gguf"), "Q4_K_M", "--effort", "1"]
        with started(command, tmp_path) as process:
            time.sleep(moment)
            for _ in range(3):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGINT)
                time.sleep(0.01)
            _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode in (0, 130), err
        assert "Traceback" not in err, err


def test_compiling_is_said(model_files: dict[str, str], tmp_path: Path) -> None:
    """Encoders are also compiled once per machine, and a note gives the reason for waiting."""
    said = "compiling kernels for this processor (only the first time)\n"
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [*HYBRID, "quantize", model_files["bf16"], str(tmp_path / "out.gguf"), "Q8_0"]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True, env=env) for _ in range(2)]
    assert [process.stderr for process in runs] == [said, ""]
    assert runs[0].stdout.splitlines()[:-1] == runs[1].stdout.splitlines()[:-1]
