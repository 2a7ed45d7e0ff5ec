"""--numa in every command that loads a model: a line on stderr says what was spread; without --numa it is absent."""

from pathlib import Path

import pytest
from end_to_end.outcomes import Cli

from hybrid.quant.ggml import numa

pytestmark = pytest.mark.exhaustive

ONE_NODE = "numa: memory is one node here (0), there is nothing to spread."


@pytest.fixture(autouse=True)
def one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numa, "usable_nodes", lambda: (0,))
    monkeypatch.setattr(numa, "machine_nodes", lambda: (0,))


@pytest.mark.parametrize(
    "line",
    [
        "run MODEL -p Once -n 1 --greedy -t 1",
        "bench MODEL -p 2 -n 0 -r 1 --no-start --no-warmup -t 1",
        "perplexity MODEL -f TEXT -c 16 --chunks 1 -t 1",
        "imatrix MODEL -f TEXT -c 16 --chunks 1 -t 1 -o OUT",
        "embed MODEL -f SHORT -t 1",
    ],
)
def test_commands_say_what_was_spread(cli: Cli, files: dict[str, Path], tmp_path: Path, line: str) -> None:
    (tmp_path / "text").write_text("A text of some words, and once more of some. " * 20)
    (tmp_path / "short").write_text("one text\n")
    places = {
        "MODEL": files["q8_0"],
        "TEXT": tmp_path / "text",
        "SHORT": tmp_path / "short",
        "OUT": tmp_path / "m.imatrix",
    }
    args = [places.get(word, word) for word in line.split()]
    code, _, err = cli(*args, "--numa", "interleave")
    assert code == 0 and err.count("numa:") == 1 and ONE_NODE in err
    code, _, err = cli(*args)
    assert code == 0 and "numa" not in err


def test_bench_has_it_among_the_settings(cli: Cli, files: dict[str, Path]) -> None:
    code, out, _ = cli(
        "bench", files["q8_0"], "-p", 2, "-n", 0, "-r", 1, "--no-start", "--no-warmup", "--numa", "interleave"
    )
    assert code == 0 and "| interleave |" in out


@pytest.mark.parametrize("command", ["run", "perplexity", "imatrix", "bench", "serve", "eval"])
def test_not_with_a_cluster(cli: Cli, files: dict[str, Path], tmp_path: Path, command: str) -> None:
    (tmp_path / "text").write_text("words")
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "words"}\n')
    more = {
        "run": ["-f", tmp_path / "prompts.jsonl"],
        "perplexity": ["-f", tmp_path / "text"],
        "imatrix": ["-f", tmp_path / "text", "-o", tmp_path / "out"],
        "bench": ["--stages", 2],
        "serve": ["--stages", 2],
        "eval": ["--tasks", "x"],
    }[command]
    code, _, err = cli(command, files["q8_0"], *more, "--numa", "interleave", "--cluster", "local:2")
    assert code == 2 and "--numa is about memory of this machine, --cluster works on others." in err, err


def test_a_system_without_it(cli: Cli, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr("sys.platform", "darwin")
    code, _, err = cli("run", files["q8_0"], "--raw", "-p", "Once", "-n", "1", "--numa", "interleave")
    assert code == 2
    assert err.splitlines()[-1] == "error: numa: darwin has no calls that spread memory over nodes. Leave it out."
