"""--cluster: commands whose work is divided into parts give the figures and files of one process, bit for bit."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hellaswag_tasks
import pytest
from end_to_end.outcomes import Cli, ok
from golden.scores import make
from harness_tasks import write_tasks

pytest.importorskip("distributed")
from distributed import LocalCluster

from hybrid.cli.cluster.targeting import measuring
from hybrid.cli.options.cluster_options import ClusterAddress
from hybrid.convert import convert
from hybrid.pipeline.max_kld import TypeChoice, choose
from hybrid.pipeline.target import Measuring, measured
from hybrid.quant import Options, tensor_parts

pytestmark = [pytest.mark.exhaustive, pytest.mark.cluster]


@pytest.fixture(scope="module")
def workers() -> Iterator[str]:
    """The address of a scheduler with two workers."""
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address=":0",
        silence_logs=50,
        worker_dashboard_address=None,
    ) as cluster:
        yield cluster.scheduler_address


@pytest.fixture
def same(cli: Cli, workers: str) -> Callable[..., str]:
    """same(command line): its output, which must be the same with workers."""

    def call(*args: object) -> str:
        alone = ok(cli(*args, "-t", 1))
        assert ok(cli(*args, "-t", 1, "--cluster", workers)) == alone
        return alone

    return call


def figures(text: str) -> Any:
    """The JSON output without the time."""
    value = json.loads(text)
    value.pop("seconds", None)
    return value


def test_a_worker_with_one_slot_reads_a_beginning_once(
    cli: Cli, workers: str, files: dict[str, Path], tmp_path: Path
) -> None:
    """It sees one prompt at a time, and learns where other prompts diverge from it."""
    documents = [f"A document about number {i} and its states, which are kept. " * 4 for i in range(8)]
    lines = [json.dumps({"prompt": f"{documents[i % 8]}Question {i}:"}) + "\n" for i in range(24)]
    (tmp_path / "prompts.jsonl").write_text("".join(lines))
    args = ("run", files["q8_0"], "-f", tmp_path / "prompts.jsonl", "-n", 3, "-c", 256, "--seed", 5)
    alone, spread = cli(*args, "--parallel", 4), cli(*args, "--cluster", workers)
    assert spread[:2] == alone[:2]
    counts = [re.findall(r"(\d+) of (\d+) prompt tokens were new", err)[0] for *_, err in (spread, alone)]
    (new, old), (new_alone, old_alone) = (map(int, count) for count in counts)
    assert old == old_alone and new_alone < old / 2
    assert new < 1.5 * new_alone, "what all documents begin with is read by both"


def test_perplexity(cli: Cli, workers: str, files: dict[str, Path], prose: Path, same: Callable[..., str]) -> None:
    measure = ("perplexity", files["q8_0"], "-f", prose, "-c", 64)
    assert same(*measure, "-b", 128, "--chunks", 7).count("[") == 7
    for more in (("-b", 64, "--chunks", 5, "--by-position", 3), ("--stride", 40, "--chunks", 4)):
        args = (*measure, *more, "-t", 1, "--json")
        assert figures(ok(cli(*args))) == figures(ok(cli(*args, "--cluster", workers)))


def test_kl_divergence(files: dict[str, Path], prose: Path, tmp_path: Path, cli: Cli, workers: str) -> None:
    base, other = tmp_path / "base.kld", tmp_path / "other.kld"
    write = ("perplexity", files["bf16"], "-f", prose, "-c", 64, "-b", 128, "--chunks", 5, "-t", 1)
    ok(cli(*write, "--kl-divergence-base", base))
    ok(cli(*write, "--kl-divergence-base", other, "--cluster", workers))
    assert base.read_bytes() == other.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base.kld", "other.kld"]
    compare = ("perplexity", files["q8_0"], "--kl-divergence", "--kl-divergence-base", base, "-t", 1, "-b", 64)
    assert ok(cli(*compare)) == ok(cli(*compare, "--cluster", workers))


def test_tasks(files: dict[str, Path], prose: Path, tmp_path: Path, same: Callable[..., str]) -> None:
    tasks = hellaswag_tasks.from_prose(prose, 19)
    lines = [line for task in tasks for line in (task.context, str(task.gold), *task.endings)]
    (tmp_path / "hellaswag").write_text("\n".join(lines) + "\n")
    (tmp_path / "winogrande").write_text(make.winogrande())
    (tmp_path / "questions").write_bytes(make.multiple_choice(make.questions(9)))
    for name, file in (("hellaswag", "hellaswag"), ("winogrande", "winogrande"), ("multiple-choice", "questions")):
        more = ("--winogrande-tasks", 30) if name == "winogrande" else ()
        assert same("perplexity", files["q8_0"], "-f", tmp_path / file, f"--{name}", *more, "-c", 512)


def test_importance(files: dict[str, Path], prose: Path, tmp_path: Path, cli: Cli, workers: str) -> None:
    args = ("imatrix", files["bf16"], "-f", prose, "-c", 64, "-b", 128, "--chunks", 7, "-t", 1, "--save-every", 2)
    ok(cli(*args, "-o", tmp_path / "alone.gguf"))
    ok(cli(*args, "-o", tmp_path / "workers.gguf", "--cluster", workers))
    assert (tmp_path / "alone.gguf").read_bytes() == (tmp_path / "workers.gguf").read_bytes()


@pytest.mark.parametrize(
    "how",
    [("q4_k_m",), ("q6_k", "--split-max-size", "2M"), ("iq4_xs", "--effort", 1), ("q4_0", "--prune-layers", "1-3")],
)
def test_quantize(
    how: tuple[object, ...],
    files: dict[str, Path],
    tmp_path: Path,
    cli: Cli,
    workers: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tensor_parts, "PART_TASKS", 1)
    folders = tmp_path / "alone", tmp_path / "workers"
    reports = []
    for folder, more in zip(folders, ((), ("--cluster", workers)), strict=True):
        folder.mkdir()
        args = ("quantize", files["bf16"], folder / "m.gguf", *how, "-t", 1, "--json", *more)
        reports.append(figures(ok(cli(*args)).replace(str(folder), "")))
    assert reports[0] == reports[1]
    assert contents(folders[0]) == contents(folders[1])


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("how", [("--outtype", "q8_0"), ("--split-max-size", "2M")])
def test_convert(how: tuple[str, ...], bundled: Path, tmp_path: Path, cli: Cli, workers: str) -> None:
    folders = tmp_path / "alone", tmp_path / "workers"
    for folder, more in zip(folders, ((), ("--cluster", workers)), strict=True):
        folder.mkdir()
        ok(cli("convert", bundled, "-o", folder / "m.gguf", *how, *more))
    assert contents(folders[0]) == contents(folders[1])


def test_a_checkpoint_is_quantized(bundled: Path, tmp_path: Path, cli: Cli, workers: str) -> None:
    ok(cli("quantize", bundled, tmp_path / "alone.gguf", "q5_k_m"))
    ok(cli("quantize", bundled, tmp_path / "workers.gguf", "q5_k_m", "--cluster", workers))
    assert (tmp_path / "alone.gguf").read_bytes() == (tmp_path / "workers.gguf").read_bytes()


@pytest.mark.slow
def test_eval(files: dict[str, Path], prose: Path, tmp_path: Path, cli: Cli, workers: str) -> None:
    pytest.importorskip("lm_eval")
    tasks = write_tasks(tmp_path / "tasks", prose, relative=True)
    args = ("eval", files["q8_0"], "--tasks", "reading,goes_on", "--tasks-dir", tasks, "-t", 1, "-c", 512)
    more = ("--log-samples", "--bootstrap-iters", 100, "--json")
    alone, spread = (json.loads(ok(cli(*args, *more, *how))) for how in ((), ("--cluster", workers)))
    for name in ("results", "groups", "samples", "n-samples"):
        assert alone.get(name) == spread.get(name), name
    assert alone["results"]["halves"]["acc,none"] > 0 and len(alone["samples"]["goes_on"]) == 6


@pytest.mark.slow
def test_types_by_what_each_matrix_does(data_dir: Path, prose: Path, tmp_path: Path, workers: str) -> None:
    path, text = tmp_path / "m.gguf", prose.read_text()[:2500]  # three chunks
    convert(data_dir / "checkpoints" / "jamba-dense", path, outtype="f32")
    alone = measured(path, text, Measuring(Options(), threads=1))
    assert len({round(x, 9) for x in alone.sensitivity.values()}) > 3
    with measuring(ClusterAddress("address", workers, workers), path, 1) as who:
        assert measured(path, text, Measuring(Options(), elsewhere=who)) == alone


@pytest.mark.slow
def test_within_a_divergence(
    data_dir: Path, prose: Path, tmp_path: Path, workers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers write and measure trials, and leave nothing in their folder. Another test covers trials of single
    matrices."""
    monkeypatch.setattr("hybrid.pipeline.max_kld.CHUNKS", 4)
    path, text, trials = tmp_path / "m.gguf", prose.read_text(), tmp_path / "trials"
    trials.mkdir()
    convert(data_dir / "checkpoints" / "jamba-dense", path, outtype="f32")
    monkeypatch.setattr("hybrid.pipeline.max_kld.ROUNDS", 1)
    known = measured(path, None, Measuring(Options(), effort=0))
    monkeypatch.setattr("hybrid.pipeline.max_kld.measured", lambda *args, **how: known)
    tried: dict[str, list[TypeChoice]] = {"alone": [], "workers": []}
    alone = choose(path, text, 0.1, Measuring(Options(), threads=1), tried=tried["alone"].append)
    with measuring(ClusterAddress("address", workers, workers), path, 1) as who:
        seen: list[Path] = []
        model = who.model
        monkeypatch.setattr(who, "model", lambda file, *how: (seen.append(file.parent.parent), model(file, *how))[1])
        how = Measuring(Options(), elsewhere=who)
        chosen = choose(path, text, 0.1, how, tried=tried["workers"].append, folder=trials)
    assert chosen == alone and tried["workers"] == tried["alone"] and len(tried["alone"]) > 1
    assert set(seen) == {tmp_path.parent, trials} and not [*trials.iterdir()]
