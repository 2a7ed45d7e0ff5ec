"""`hybrid gguf` and models in parts, from the command line."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from end_to_end.outcomes import Cli

from hybrid.cli.commands.gguf import SUBCOMMANDS
from hybrid.cli.main import run

pytestmark = pytest.mark.exhaustive

# llama-gguf-hash --xxh64 --sha1 --uuid --no-layer (0c1e570) on the bundled model in BF16
DIGESTS = (
    "xxh64     ad343c190ea165fc",
    "sha1      1adcc7e743818efb7c87b7b3b654d273dc2fe324",
    "uuid      c5f821e0-b7dc-5f93-ab89-054eb9c37ce5",
)


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_help(name: str, cli: Cli) -> None:
    code, out, _ = cli("gguf", name, "--help")
    assert code == 0 and f"Usage: hybrid gguf {name}" in out
    _, out, _ = cli("gguf", "--help")
    assert (SUBCOMMANDS[name].__doc__ or "").splitlines()[0] in out, "cut off: make the line shorter"


def test_parts_do_all_that_a_file_does(
    small_checkpoint: Path, small: dict[str, Path], tmp_path: Path, cli: Cli
) -> None:
    assert cli("convert", small_checkpoint, "-o", tmp_path / "m.gguf", "--split-max-size", "2M", "--verify")[0] == 0
    parts = sorted(tmp_path.glob("m-*.gguf"))
    assert [path.name for path in parts] == [f"m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    first = parts[0]
    assert cli("gguf", "merge", first, tmp_path / "whole.gguf")[0] == 0
    assert (tmp_path / "whole.gguf").read_bytes() == small["bf16"].read_bytes()
    prompt = ("-p", "The state of a recurrent layer", "-n", "6", "--temp", "0", "-t", "1")
    _, want, _ = cli("run", small["bf16"], "--raw", *prompt)
    for model in (first, tmp_path / "folder"):
        if model != first:
            model.mkdir()
            for path in parts:
                path.rename(model / path.name)
        code, got, err = cli("run", model, "--raw", *prompt)
        assert code == 0 and got == want, err
    first = model / first.name
    code, out, _ = cli("inspect", first, "--json")
    assert code == 0 and json.loads(out)["nbytes"] == sum(path.stat().st_size for path in model.iterdir())
    assert cli("quantize", first, tmp_path / "q.gguf", "q8_0", "--split-max-size", "1.1M")[0] == 0
    _, out, _ = cli("quantize", first, tmp_path / "k.gguf", "q8_0", "--keep-split")
    assert "k-00001-of-00003.gguf and 2 more: Q8_0" in out
    for name in ("q", "k"):
        assert len(list(tmp_path.glob(f"{name}-*-of-00003.gguf"))) == 3
    _, want, _ = cli("gguf", "hash", small["q8_0"], "--no-layer")
    _, got, _ = cli("gguf", "hash", tmp_path / "q-00001-of-00003.gguf", "--no-layer")
    assert got.split()[:2] == want.split()[:2]


def test_hash_and_check(files: dict[str, Path], tmp_path: Path, cli: Cli, refused: Callable[..., str]) -> None:
    code, out, _ = cli("gguf", "hash", files["bf16"], "--xxh64", "--sha1", "--uuid", "--no-layer")
    assert code == 0 and out == "".join(f"{line}  {files['bf16']}\n" for line in DIGESTS)
    _, out, _ = cli("gguf", "hash", files["bf16"])
    (tmp_path / "list").write_text(out)
    code, out, _ = cli("gguf", "hash", files["bf16"], "-c", tmp_path / "list")
    assert code == 0 and out.count("-  Ok\n") == len(out.splitlines()) == 127
    line = refused("gguf", "hash", files["q8_0"], "-c", tmp_path / "list", code=1)
    assert "q8_0.gguf differs from" in line and line.endswith(" more. Copy it again.")


def test_show_and_set(files: dict[str, Path], tmp_path: Path, cli: Cli, refused: Callable[..., str]) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(files["q8_0"].read_bytes())
    code, out, _ = cli("gguf", "show", path)
    assert code == 0 and "jamba.block_count" in out and "UINT32" in out
    _, out, _ = cli("gguf", "set", path, "tokenizer.ggml.add_bos_token", "false", "--dry-run")
    assert "(BOOL): True -> False" in out and "changed in place" in out
    assert path.read_bytes() == files["q8_0"].read_bytes()
    assert cli("gguf", "set", path, "tokenizer.ggml.add_bos_token", "false")[0] == 0
    assert cli("gguf", "show", path, "tokenizer.ggml.add_bos_token")[1] == "false\n"
    _, out, _ = cli("gguf", "set", path, "general.name", "Renamed", "--json")
    assert json.loads(out)["new"] == "Renamed"
    assert cli("gguf", "show", path, "general.name")[1] == "Renamed\n"
    assert "is UINT32: many is not such a value" in refused("gguf", "set", path, "jamba.block_count", "many", code=2)
    assert "has no key general.nam" in refused("gguf", "show", path, "general.nam", code=2)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("gguf split {m} {t}/p", "give one of --split-max-size and --split-max-tensors."),
        ("gguf split {m} {t}/p --split-max-size 0", "--split-max-size 0: a part must hold something."),
        ("gguf split {m} {t}/p --split-max-size big", "--split-max-size big: expected a size like"),
        ("gguf split {m} {t}/p --split-max-size 1G", "fits into one part"),
        ("gguf split {m} {t}/p --split-max-tensors 0", "--split-max-tensors"),
        ("gguf merge {m} {t}/p.gguf", "is in one file already"),
        ("gguf mix {m}", "No such command 'mix'"),
        ("quantize {m} {t}/p.gguf q8_0 --keep-split --split-max-size 1G", "contradict each other"),
    ],
)
def test_mistakes(line: str, says: str, files: dict[str, Path], tmp_path: Path, refused: Callable[..., str]) -> None:
    assert says in refused(*line.format(m=files["bf16"], t=tmp_path).split(), code=2)


def test_a_missing_part_is_told_in_a_line(
    files: dict[str, Path], tmp_path: Path, prose: Path, refused: Callable[..., str]
) -> None:
    assert run(["gguf", "split", str(files["q8_0"]), str(tmp_path / "p"), "--split-max-size", "5M"]) == 0
    second = tmp_path / "p-00002-of-00003.gguf"
    commands = (["run", "-p", "x"], ["perplexity", "-f", prose], ["inspect"], ["bench"], ["gguf", "hash"])
    for command in commands:
        assert "Give the first" in refused(*command, second, code=2)
    second.unlink()
    for command in commands:
        assert "p-00002-of-00003.gguf is missing" in refused(*command, tmp_path / "p-00001-of-00003.gguf", code=2)
