"""One grammar of sizes, and every option that takes a size uses it."""

import inspect
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import pytest
import typer

from hybrid.cli import main
from hybrid.cli.byte_sizes import UNITS, parse_size
from hybrid.quant.ggml.errors import UsageError


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("0", 0), ("7", 7), ("7B", 7), ("2K", 2000), ("2kb", 2000), ("2KiB", 2048), ("2ki", 2048),
        ("1.5M", 1_500_000), ("1.5 MB", 1_500_000), ("1.5MiB", 1_572_864), ("2G", 2 * 10**9), ("2GB", 2 * 10**9),
        ("2g", 2 * 10**9), ("2Gi", 2 << 30), ("2GiB", 2 << 30), (" 2 gib ", 2 << 30), ("1T", 10**12), ("1TiB", 1 << 40),
        (".5K", 500), ("4.35G", 4_350_000_000), ("9223372036854775807", (1 << 63) - 1),
    ],
)  # fmt: skip
def test_grammar(text: str, nbytes: int) -> None:
    assert parse_size(text, "--size") == nbytes


@pytest.mark.parametrize(
    "text",
    ["", "G", "big", "-1", "1e9", "nan", "inf", "1i", "1iB", "1P", "1 2", "1..2", ".", "0x10", "١G", "1GG", "1Gb/s",
     "9223372036854775808", "9" * 5000],
)  # fmt: skip
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--size .*: expected a size like 900M, 2G or 1\.5GiB"):
        parse_size(text, "--size")


def _options() -> list[tuple[str, str, Any]]:
    """(command, name, typer's record) of every option whose value is a SIZE."""
    options = []
    for name in main.COMMANDS:
        module = import_module(f"hybrid.cli.commands.{name}")
        for word, function in {name: getattr(module, name), **getattr(module, "SUBCOMMANDS", {})}.items():
            for parameter, hint in inspect.get_annotations(function).items():
                if get_origin(hint) is Annotated:
                    option = get_args(hint)[1]
                    if getattr(option, "metavar", None) == "SIZE":
                        options.append((word, parameter, option))
    return options


def test_every_size_says_what_its_units_are() -> None:
    options = _options()
    assert {name for _, name, _ in options} >= {"target_size", "split_max_size", "max_size", "checkpoint_budget"}
    for command, name, option in options:
        assert isinstance(option, typer.models.OptionInfo)
        assert UNITS in (option.help or ""), f"{command} {name}"


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("run MODEL -p x", "--checkpoint-budget"),
        ("quantize MODEL out.gguf", "--target-size"),
        ("quantize MODEL out.gguf Q8_0", "--split-max-size"),
        ("convert MODEL -o out.gguf", "--split-max-size"),
        ("gguf split MODEL out", "--split-max-size"),
        ("gguf merge-lora MODEL x.gguf -o out.gguf", "--split-max-size"),
    ],
)
def test_every_option_reads_sizes_alike(
    command: str, option: str, bundled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    given = command.replace("MODEL", str(bundled)).split()
    assert main.run([*given, option, "1P"]) == 2
    assert f"error: {option} 1P: expected a size like 900M, 2G or 1.5GiB ({UNITS})." in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
