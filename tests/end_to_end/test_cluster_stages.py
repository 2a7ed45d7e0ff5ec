"""`--stages N --cluster`: the output of one process, by workers that have some of the layers each."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_workers import Workers, workers
from end_to_end.outcomes import Cli, failed, ok

HYBRID = [sys.executable, "-m", "hybrid.cli"]
PATIENCE = 120  # seconds on a busy machine
PROMPT = "A state that is kept says more than"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    with workers(tmp_path_factory.mktemp("workers") / "orders") as made:
        yield made


@pytest.fixture
def staged(two: Workers) -> list[str]:
    two.all_there(PATIENCE)
    return ["--stages", "2", "--cluster", two.address]


def test_an_answer(cli: Cli, files: dict[str, Path], staged: list[str]) -> None:
    command = ["run", str(files["q8_0"]), "-p", PROMPT, "-n", "24", "--seed", "3", "--temp", "0.8", "--spec", "ngram"]
    assert ok(cli(*command, *staged)) == ok(cli(*command))


def test_as_few_as_have_the_memory(cli: Cli, files: dict[str, Path], staged: list[str]) -> None:
    command = ["run", str(files["q8_0"]), "-p", PROMPT, "-n", "8", "--seed", "3"]
    given = ["auto" if word == "2" else word for word in staged]
    assert ok(cli(*command, *given)) == ok(cli(*command))
    for wrong in ("0", "-1", "two", "5000", "²"):
        assert "neither a number of stages from 1 to 4096 nor auto" in failed(cli(*command, "--stages", wrong), 2)


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
        begun = ["run", str(files["q8_0"]), "-p", PROMPT, "-n", "6", "--seed", "2", "--state", str(state)]
        on = ["run", str(files["q8_0"]), "-p", " and", "-n", "6", "--seed", "2", "--state", str(state)]
        texts.append((ok(cli(*begun, *first)), ok(cli(*on, *then))))
    assert texts[0] == texts[1] == texts[2]


def test_bench(cli: Cli, files: dict[str, Path], staged: list[str]) -> None:
    out = ok(cli("bench", str(files["q8_0"]), "-p", "32", "-n", "4", "-r", "1", "--no-start", *staged))
    assert "pp32" in out and "tg4" in out
    assert "--profile" in failed(cli("bench", str(files["q8_0"]), "--profile", *staged), 2)


def test_a_worker_that_dies_in_an_answer(files: dict[str, Path], two: Workers, staged: list[str]) -> None:
    """A line says so; its worker comes back, and the answer goes on as if nothing had been."""
    command = [*HYBRID, "run", str(files["q8_0"]), "-p", PROMPT, "-n", "150", "--temp", "0"]
    whole = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=True).stdout
    process = subprocess.Popen([*command, *staged], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    assert process.stdout is not None
    begun = process.stdout.read(1)  # it is unbuffered: `communicate` gets the rest
    victim = next(iter(two.client.run(os.getpid).values()))
    os.kill(victim, signal.SIGKILL)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0 and begun + out == whole, err
    lines = re.findall(r"the worker with blocks \d+ to \d+ has gone\. Reading \d+ tokens again\.", err.decode())
    assert len(lines) == 1 and b"Traceback" not in err


def test_what_cannot_be(cli: Cli, files: dict[str, Path], staged: list[str], two: Workers) -> None:
    model = str(files["q8_0"])
    assert "--stages needs --cluster" in failed(cli("run", model, "-p", "a", "--stages", "2"), 2)
    assert "add --stages" in failed(cli("bench", model, "--cluster", two.address), 2)
    more = ["--cluster", two.address, "--stages"]
    assert "3 stages need as many workers, there are 2" in failed(cli("run", model, "-p", "a", *more, "3"), 2)
    assert "--draft" in failed(cli("run", model, "-p", "a", *staged, "--draft", model), 2)
    assert "leave out" in failed(cli("perplexity", model, "-f", "a", "--hellaswag", *staged), 2)


@pytest.mark.slow
def test_four_processes_of_this_machine(cli: Cli, files: dict[str, Path], prose: Path) -> None:
    more = ["--stages", "4", "--cluster", "local:4"]
    answer = ["run", str(files["q8_0"]), "-p", PROMPT, "-n", "24", "--seed", "2"]
    ppl = ["perplexity", str(files["q8_0"]), "-f", str(prose), "-c", "256", "--chunks", "2"]
    for command in (answer, ppl):
        found = subprocess.run([*HYBRID, *command, *more], capture_output=True, timeout=PATIENCE, check=True).stdout
        assert found.decode() == ok(cli(*command))
