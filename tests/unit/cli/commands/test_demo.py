"""The commands that the demo suggests to a newcomer."""

import sys
from pathlib import Path

import pytest

from hybrid.cli.commands.demo import program


def test_the_program_is_named_by_its_place_where_path_does_not_lead_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed = tmp_path / ".venv" / "bin" / "hybrid"
    placed.parent.mkdir(parents=True)
    placed.write_text("#!/bin/sh\n")
    placed.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(placed), "demo"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program() == ".venv/bin/hybrid"
    monkeypatch.setenv("PATH", str(placed.parent))
    assert program() == "hybrid"
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "cli" / "__main__.py"), "demo"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program() == "hybrid"
