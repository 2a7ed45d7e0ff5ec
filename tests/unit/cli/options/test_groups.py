"""Groups of options in place of a parameter."""

from dataclasses import dataclass, field
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from hybrid.cli.options.groups import takes_groups


@dataclass(frozen=True, eq=False, repr=False)
class Inner:
    a: Annotated[int, typer.Option("-a")] = 1


@dataclass(frozen=True, eq=False, repr=False)
class Outer:
    b: Annotated[str, typer.Option("--bee")] = "b"
    inner: Inner = field(default_factory=Inner)
    c: Annotated[list[int] | None, typer.Option()] = None


@dataclass(frozen=True, eq=False, repr=False)
class Other(Outer):
    # with another default, in the same place
    b: Annotated[str, typer.Option("--bee")] = "other"


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ([], (0, "other", 1, None, False)),
        (["7", "--flag", "-a", "2", "--bee", "x", "--c", "3", "--c", "4"], (7, "x", 2, [3, 4], True)),
    ],
)
def test_fields_are_options_where_the_group_stands(given: list[str], seen: tuple[object, ...]) -> None:
    taken: list[object] = []

    @takes_groups
    def command(n: Annotated[int, typer.Argument()] = 0, *, group: Other, flag: bool = False) -> None:
        taken.append((n, group.b, group.inner.a, group.c, flag))

    app = typer.Typer()
    app.command()(command)
    assert [param.name for param in typer.main.get_command(app).params][:5] == ["n", "b", "a", "c", "flag"]
    assert CliRunner().invoke(app, given).exit_code == 0
    assert taken == [seen]
