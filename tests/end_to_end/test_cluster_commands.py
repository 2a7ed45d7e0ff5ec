"""`--cluster` in short: each kind of work on two workers in this process, and stages on two local processes.

Workers in processes, some of which die, are in test_cluster.py and its siblings in the long suite.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from end_to_end.outcomes import Cli, failed, ok

pytest.importorskip("distributed")
from distributed import LocalCluster

from hybrid.cli.cluster.sources import FolderAsked
from hybrid.quant.ggml.errors import ClusterError

pytestmark = pytest.mark.exhaustive
SMALL = "jamba-dense"


@pytest.fixture(scope="module")
def workers() -> Iterator[str]:
    """The address of a scheduler with two workers in threads of this process."""
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=False,
        host="127.0.0.1",
        protocol="tcp://",
        dashboard_address=":0",
        silence_logs=50,
        worker_dashboard_address=None,
    ) as cluster:
        yield cluster.scheduler_address


def test_answers(cli: Cli, files: dict[str, Path], workers: str, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('"One is"\n{"prompt": "Two is", "choice": ["yes", "no"]}\n"Three is"\n')
    command = ("run", files["q8_0"], "-f", tmp_path / "p.jsonl", "-n", 4, "-c", 64, "--seed", 5, "--n-samples", 2)
    code, out, err = cli(*command, "--cluster", workers)
    assert code == 0 and "6 answers, " in err
    assert out == ok(cli(*command))


def test_a_measurement(cli: Cli, files: dict[str, Path], prose: Path, workers: str) -> None:
    command = ("perplexity", files["q8_0"], "-f", prose, "-c", 64, "-b", 64, "--chunks", 4, "-t", 1)
    assert ok(cli(*command, "--cluster", workers)) == ok(cli(*command))


def test_files(cli: Cli, data_dir: Path, workers: str, tmp_path: Path) -> None:
    folder = data_dir / "checkpoints" / SMALL
    for name, more in (("alone", ()), ("workers", ("--cluster", workers))):
        (tmp_path / name).mkdir()
        ok(cli("convert", folder, "-o", tmp_path / name / "m.gguf", *more))
        ok(cli("quantize", tmp_path / name / "m.gguf", tmp_path / name / "q.gguf", "q8_0", *more))
    for name in ("m.gguf", "q.gguf"):
        assert (tmp_path / "alone" / name).read_bytes() == (tmp_path / "workers" / name).read_bytes()


def test_stages(cli: Cli, files: dict[str, Path]) -> None:
    command = ("run", files["q8_0"], "--raw", "-p", "A state that is kept", "-n", 6, "--seed", 3)
    assert ok(cli(*command, "--stages", 2, "--cluster", "local:2")) == ok(cli(*command))


def test_what_cannot_be(cli: Cli, files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hybrid.cli.cluster.connection.CONNECT_SECONDS", 0.5)
    command = ("run", files["q8_0"], "--raw", "-p", "a")
    (tmp_path / "p.jsonl").write_text('"One is"\n')
    given = ("run", files["q8_0"], "-f", tmp_path / "p.jsonl")
    assert "no scheduler answers there" in failed(cli(*given, "--cluster", "tcp://127.0.0.1:9"), 1)
    (tmp_path / "f.json").write_text("[]")
    assert "it is no scheduler's file" in failed(cli(*given, "--cluster", tmp_path / "f.json"), 1)
    assert "--stages needs --cluster" in failed(cli(*command, "--stages", 2), 2)
    for wrong in ("0", "-1", "two", "5000", "²"):
        assert "neither a number of stages from 1 to 4096 nor auto" in failed(cli(*command, "--stages", wrong), 2)


def test_another_source_on_a_worker(bundled: Path, tmp_path: Path) -> None:
    """A checkpoint with the same path and other files."""
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
