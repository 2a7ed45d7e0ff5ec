"""All options that take a size use one grammar."""

import inspect
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import pytest
import typer

from hybrid.cli import main
from hybrid.quant.ggml.byte_sizes import UNITS


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
