"""The container file, without running an engine: the files that it names exist, and its commands are the program's."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer

from hybrid.cli.commands.serve import serve
from hybrid.cli.main import COMMANDS

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "Containerfile").read_text(encoding="utf-8")
TOML = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
STEPS = [
    (step, rest)
    for line in re.sub(r"\\\n\s*", "", TEXT).splitlines()
    if line and not line.startswith("#")
    for step, _, rest in [line.partition(" ")]
]


def rest_of(step: str, stage: int = -1) -> list[str]:
    """Arguments of this instruction in a stage."""
    froms = [i for i, (name, _) in enumerate(STEPS) if name == "FROM"] + [len(STEPS)]
    begin, end = (froms[stage - 1], froms[stage]) if stage < 0 else (froms[stage], froms[stage + 1])
    return [rest for name, rest in STEPS[begin:end] if name == step]


def environment() -> dict[str, str]:
    return dict(word.split("=", 1) for line in rest_of("ENV") for word in shlex.split(line))


def test_instructions_are_known_and_in_order() -> None:
    known = {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "ENTRYPOINT", "CMD"}
    assert {step for step, _ in STEPS} <= known
    names = [step for step, _ in STEPS]
    assert names[0] == "FROM" and names.count("FROM") == 2
    assert len({rest.split()[0] for step, rest in STEPS if step == "FROM"}) == 1


def test_the_python_is_one_that_is_supported() -> None:
    version = re.fullmatch(r"docker\.io/library/python:(3\.\d+)-slim", rest_of("FROM")[0])
    assert version and f"Programming Language :: Python :: {version[1]}" in TOML["project"]["classifiers"]


def test_what_is_copied_is_what_a_wheel_is_built_from() -> None:
    copied = set[str]()
    for line in rest_of("COPY", 0):
        *sources, target = line.split()
        assert all((ROOT / source).exists() for source in sources)
        assert target == "./" if len(sources) > 1 else target == f"{sources[0]}/"
        copied |= set(sources)
    packages = set(TOML["tool"]["setuptools"]["package-dir"].values())
    licences = {name for name in TOML["project"]["license-files"] if Path(name).parts[0] not in packages}
    assert copied == packages | licences | {"pyproject.toml", TOML["project"]["readme"]}
    ignored = [line for line in (ROOT / ".containerignore").read_text().splitlines() if not line.startswith("#")]
    assert ignored[0] == "*" and {line[1:] for line in ignored if line[0] == "!"} == copied
    # Docker uses another file name
    assert (ROOT / ".dockerignore").read_bytes() == (ROOT / ".containerignore").read_bytes()


def test_it_runs_as_nobody_special_and_writes_to_the_volume_only() -> None:
    user = rest_of("USER")
    assert user == ["hybrid"] and f"useradd --uid 1000 --create-home {user[0]}" in rest_of("RUN")[0]
    steps = [step for step, _ in STEPS]
    assert steps.index("USER") > max(i for i, step in enumerate(steps) if step in ("RUN", "COPY"))
    (volume,) = rest_of("VOLUME")
    assert f"chown {user[0]}:{user[0]} {volume}" in rest_of("RUN")[0]
    settings = environment()
    folders = {name: value for name, value in settings.items() if name != "PATH"}
    assert len(folders) == 4 and all(value.startswith(volume + "/") for value in folders.values())
    assert rest_of("WORKDIR") == [volume]


@pytest.mark.slow
def test_its_variables_are_those_that_the_program_and_what_it_uses_read(tmp_path: Path) -> None:
    (volume,) = rest_of("VOLUME")
    moved = {name: value.replace(volume, str(tmp_path), 1) for name, value in environment().items() if name != "PATH"}
    code = (
        "from hybrid.quant.ggml.user_folders import cache_folder, state_folder; import numba;"
        "from huggingface_hub.constants import HF_HUB_CACHE;"
        "print(cache_folder(), state_folder(), HF_HUB_CACHE, numba.config.CACHE_DIR)"
    )
    if sys.platform == "darwin":
        pytest.skip("macOS has folders of its own")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "NUMBA_", "XDG_"))}
    done = subprocess.run([sys.executable, "-c", code], env=kept | moved, capture_output=True, text=True, check=True)
    found = [Path(name).relative_to(tmp_path) for name in done.stdout.split()]
    assert found == [Path("cache/hybrid"), Path("state/hybrid"), Path("huggingface/hub"), Path("cache/numba")]


def test_its_program_is_installed_where_it_is_looked_for() -> None:
    entry, command = (json.loads(rest_of(step)[0]) for step in ("ENTRYPOINT", "CMD"))
    assert entry[0] in TOML["project"]["scripts"] and command[0] in COMMANDS
    built = rest_of("RUN", 0)[0]
    (source, target) = rest_of("COPY")[0].split()[1:]
    assert source == target == "/opt/hybrid" and f"python -m venv {source} && {source}/bin/pip install" in built
    assert environment()["PATH"].split(":")[0] == f"{target}/bin"


def test_the_commands_that_it_names_are_those_of_the_program() -> None:
    """In its header and in the manual."""
    pages = TEXT + (ROOT / "docs" / "server.md").read_text(encoding="utf-8")
    lines = re.findall(r"podman (run|build) (.+)", pages)
    assert len(lines) > 3
    app = typer.Typer()
    app.command()(serve)
    options = {name for parameter in typer.main.get_command(app).params for name in parameter.opts}
    for kind, rest in lines:
        words = shlex.split(rest)
        if kind == "build":
            assert words == ["-t", "hybrid", "."]
            continue
        behind = words[words.index("hybrid") + 1 :]
        assert f"hybrid:{rest_of('VOLUME')[0]}" in words
        if behind:
            assert behind[0] == "serve" and "8080:8080" in words
            assert {word for word in behind if word.startswith("-")} <= options
            assert "0.0.0.0" in behind, "nobody outside would reach it"
    assert rest_of("EXPOSE") == ["8080"]
