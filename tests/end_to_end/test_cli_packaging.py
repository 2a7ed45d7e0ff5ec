"""A wheel holds what the checkout holds: every package is listed, every data file is matched."""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STAGES = ("cli", "convert", "infer", "library", "quant")
TOML = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = TOML["tool"]["setuptools"]
# read in the repository, not by the program
DOCUMENTS = {".md"}


def place_of(path: Path) -> Path:
    """Where a file of the checkout is installed: library is the package `hybrid` itself."""
    parts = path.relative_to(ROOT).parts
    return Path("hybrid", *parts[parts[0] == "library" :])


def test_every_package_is_listed() -> None:
    packages = {
        ".".join(place_of(path.parent).parts) for stage in STAGES for path in (ROOT / stage).rglob("__init__.py")
    }
    assert set(SETUPTOOLS["packages"]) == packages | {"hybrid.cli.bundled"}, "bundled holds data and no module"


def test_every_folder_of_modules_is_a_package() -> None:
    for stage in STAGES:
        for path in (ROOT / stage).rglob("*.py"):
            assert (path.parent / "__init__.py").exists(), f"{path.relative_to(ROOT)} would not be in a wheel"


def test_every_data_file_is_matched() -> None:
    matched: set[Path] = set()
    for package, patterns in SETUPTOOLS["package-data"].items():
        folder = ROOT.joinpath(*package.split(".")[1:] or ["library"])
        for pattern in patterns:
            files = {path for path in folder.glob(pattern) if path.is_file()}
            assert files, f"{package}: {pattern} matches nothing"
            matched |= files
    for stage in STAGES:
        assert (ROOT / stage / "py.typed") in matched
        for path in (ROOT / stage).rglob("*"):
            # __pycache__ holds compiled modules and numba's compiled encoders
            if path.is_file() and path.parent.name != "__pycache__" and path.suffix not in {".py"} | DOCUMENTS:
                assert path in matched, f"{path.relative_to(ROOT)} would not be in a wheel"


# --- the wheel, built and installed --------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the checkout, because setuptools leaves its build folder there."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in (*STAGES, "pyproject.toml", "README.md", "LICENSE"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / "source" / name)
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "-w", str(folder), str(folder / "source")]
    if importlib.util.find_spec("setuptools") and importlib.util.find_spec("pip"):
        required = TOML["build-system"]["requires"]
        assert required == ["setuptools>=77"]
        if int(importlib.metadata.version("setuptools").split(".")[0]) >= 77:
            build += ["--no-build-isolation", "--no-index"]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    if done.returncode and "--no-index" not in build:
        pytest.skip(f"setuptools >= 77 is not installed here and cannot be fetched: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty environment with the wheel in it; what it depends on is that of the environment of the tests."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(python),
            "install",
            "--no-deps",
            "--no-index",
            "--quiet",
            str(wheel),
        ],
        check=True,
    )
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(subprocess.check_output([python, "-c", code], text=True).strip())
    # folders named in a .pth file are searched, but .pth files in them are not read: the checkout stays invisible
    needed = [re.split(r"[^\w.-]", text)[0] for text in TOML["project"]["dependencies"]]
    site_packages = {str(importlib.metadata.distribution(name).locate_file("")) for name in needed}
    (packages / "of_the_tests.pth").write_text("\n".join(sorted(site_packages)) + "\n")
    return folder


def _in(environment: Path, *command: str) -> str:
    """stdout of a program of that environment, run there."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    program, *arguments = command
    done = subprocess.run(
        [environment / "bin" / program, *arguments],
        cwd=environment,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_holds_the_tree(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = {name for name in archive.namelist() if ".dist-info/" not in name}
    there = {
        str(place_of(path))
        for stage in STAGES
        for path in (ROOT / stage).rglob("*")
        if path.is_file() and path.parent.name != "__pycache__" and path.suffix not in DOCUMENTS
    }
    assert in_wheel == there


@pytest.mark.slow
@pytest.mark.timeout(900)  # encoders are compiled anew for it
def test_the_wheel_works_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    modules = sorted(
        ".".join(place_of(path).with_suffix("").parts).removesuffix(".__init__")
        for stage in STAGES
        for path in (ROOT / stage).rglob("*.py")
        if path.name != "__main__.py"
    )
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]: assert importlib.import_module(name).__file__.startswith(sys.prefix), name\n"
        "print(len(sys.argv) - 1)"
    )
    assert int(_in(installed, "python", "-c", code, *modules)) == len(modules) > 250
    assert _in(installed, "hybrid", "--version").startswith(f"hybrid {TOML['project']['version']} ")
    said = _in(installed, "hybrid", "demo", "-o", str(tmp_path / "demo"))
    assert "perplexity" in said and "Chat with it:" in said
    assert len(list((tmp_path / "demo").glob("*.gguf"))) == 3
