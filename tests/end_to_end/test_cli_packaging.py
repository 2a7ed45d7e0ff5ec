"""A wheel holds what the checkout holds, and installs: with pip, with uv, and as a tool (as uv and pipx do it).

Nothing is downloaded: dependencies come from the tests' environment. Other Pythons are tested on request, and then
everything is downloaded: PYTHONS=python3.12:python3.13 pytest tests/end_to_end/test_cli_packaging.py
"""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).resolve().parents[2]
STAGES = ("cli", "convert", "infer", "library", "quant")
TOML = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = TOML["tool"]["setuptools"]
REQUIRED = [re.split(r"[^\w.-]", text)[0] for text in TOML["project"]["dependencies"]]
PAGE = "hybrid.cli.serve.page"
DATA = {"hybrid.bundled", f"{PAGE}.licences", f"{PAGE}.static", f"{PAGE}.static.vendor"}
# only read in the repository
DOCUMENTS = {".md"}


def place_of(path: Path) -> Path:
    """Where a file of the checkout is installed: the folder library becomes the package `hybrid` itself."""
    parts = path.relative_to(ROOT).parts
    return Path("hybrid", *parts[parts[0] == "library" :])


def test_every_package_is_listed() -> None:
    packages = {
        ".".join(place_of(path.parent).parts) for stage in STAGES for path in (ROOT / stage).rglob("__init__.py")
    }
    assert set(SETUPTOOLS["packages"]) == packages | DATA, "these hold data and no module"


def test_every_folder_of_modules_is_a_package() -> None:
    for stage in STAGES:
        for path in (ROOT / stage).rglob("*.py"):
            assert (path.parent / "__init__.py").exists(), f"{path.relative_to(ROOT)} would not be in a wheel"


def test_every_data_file_is_matched() -> None:
    matched: set[Path] = set()
    for package, patterns in SETUPTOOLS["package-data"].items():
        parts = package.split(".")[1:]
        folder = ROOT.joinpath(*["library"] * (parts[:1] not in [[stage] for stage in STAGES]), *parts)
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
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an sdist, a wheel built from it, and log.txt, the output of setuptools.

    Built from a copy of the checkout, because setuptools leaves its build folder there.
    """
    folder = tmp_path_factory.mktemp("wheel")
    for name in (*STAGES, "pyproject.toml", "README.md", "LICENSE"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / "source" / name)
    assert TOML["build-system"]["requires"] == ["setuptools>=77"]
    if not importlib.util.find_spec("build"):
        pytest.skip("build is not installed here: pip install build")
    build, offline = [sys.executable, "-m", "build", "-o", str(folder), str(folder / "source")], False
    if importlib.util.find_spec("setuptools"):
        offline = int(importlib.metadata.version("setuptools").split(".")[0]) >= 77
        build += ["--no-isolation"] * offline
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    if done.returncode and not offline:
        pytest.skip(f"setuptools >= 77 is not installed here and cannot be fetched: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    (folder / "log.txt").write_text(done.stdout + done.stderr)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return next(built.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty environment with the wheel."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--no-deps"]
    subprocess.run([*pip, "--no-index", "--quiet", str(wheel)], check=True)
    _share_packages(folder)
    return folder


def _packages_of(environment: Path) -> Path:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(subprocess.check_output([environment / "bin" / "python", "-c", code], text=True).strip())


def _share_packages(environment: Path) -> None:
    """Take dependencies from the tests' environment."""
    # Python searches the folders of a .pth file but does not read their .pth files: the checkout stays invisible
    site_packages = {str(importlib.metadata.distribution(name).locate_file("")) for name in REQUIRED}
    (_packages_of(environment) / "of_the_tests.pth").write_text("\n".join(sorted(site_packages)) + "\n")


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


@pytest.mark.packaging
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


@pytest.mark.packaging
@pytest.mark.timeout(900)  # it compiles the encoders
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
    found = "from importlib.metadata import entry_points as e; print(*[p.load().__name__ for p in e(group='llm')])"
    assert "hybrid.llm_plugin" in _in(installed, "python", "-c", found).split()
    _demo(installed, tmp_path)


def _demo(environment: Path, folder: Path) -> None:
    said = _in(environment, "hybrid", "demo", "-o", str(folder / "demo"))
    assert "perplexity" in said and "Chat with it:" in said
    assert len(list((folder / "demo").glob("*.gguf"))) == 3


@pytest.mark.packaging
def test_what_an_index_would_take(built: Path) -> None:
    """twine's check passes, and setuptools gives no warnings, such as of a folder that it will ignore."""
    files = [str(path) for path in built.iterdir() if path.suffix in (".gz", ".whl")]
    assert len(files) == 2
    log = (built / "log.txt").read_text()
    assert "would be ignored" not in log and "Deprecat" not in log, log
    if not importlib.util.find_spec("twine"):
        pytest.skip("twine is not installed here: pip install twine")
    twine = [sys.executable, "-m", "twine", "--no-color", "check", "--strict", *files]
    done = subprocess.run(twine, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.count("PASSED") == 2, done.stdout


@pytest.mark.packaging
def test_the_sdist_holds_the_tree(built: Path) -> None:
    """The packages as in the checkout, without files that runs create."""
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {Path(*Path(member.name).parts[1:]) for member in archive.getmembers() if member.isfile()}
    more = {Path(name) for name in ("PKG-INFO", "setup.cfg", "pyproject.toml", "README.md", "LICENSE")}
    there = {
        path.relative_to(ROOT)
        for stage in STAGES
        for path in (ROOT / stage).rglob("*")
        if path.is_file() and path.parent.name != "__pycache__" and path.suffix not in DOCUMENTS
    }
    assert {name for name in names if name.parts[0] != "hybrid_lm.egg-info"} == there | more


# --- uv ------------------------------------------------------------------------------------------


@pytest.fixture
def uv(tmp_path: Path) -> Callable[..., None]:
    """uv(arguments), which downloads nothing and does not touch the user's caches and tools. Skips if uv is missing."""
    if not importlib.util.find_spec("uv"):
        pytest.skip("uv is not installed here: pip install uv")
    program = importlib.import_module("uv").find_uv_bin()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PYTHONPATH", "VIRTUAL_"))}
    folders = {f"UV_{name}": str(tmp_path / "uv" / name) for name in ("CACHE_DIR", "TOOL_DIR", "TOOL_BIN_DIR")}

    def run(*arguments: object, **more: str) -> None:
        env = kept | folders | {"UV_NO_CONFIG": "1", "UV_OFFLINE": "1"} | more
        done = subprocess.run([program, *map(str, arguments)], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    return run


@pytest.mark.packaging
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", ["uv pip", "uv tool"])
def test_what_uv_installs_works(
    way: str, uv: Callable[..., None], wheel: Path, installed: Path, tmp_path: Path
) -> None:
    """`uv pip install`, and `uv tool install`, which makes an environment for the program as pipx does."""
    if way == "uv pip":
        environment = tmp_path / "environment"
        uv("venv", environment, "--python", sys.executable)
        uv("pip", "install", "--python", environment / "bin" / "python", "--no-deps", "--no-index", wheel)
    else:
        environment = tmp_path / "uv" / "TOOL_DIR" / "hybrid-lm"
        never = tmp_path / "overrides.txt"
        never.write_text("".join(f"{name}; python_version < '3'\n" for name in REQUIRED))
        uv("tool", "install", "--no-index", "--overrides", never, "--python", sys.executable, wheel)
        assert (tmp_path / "uv" / "TOOL_BIN_DIR" / "hybrid").resolve() == (environment / "bin" / "hybrid").resolve()
    _share_packages(environment)
    _demo(environment, tmp_path)


@pytest.mark.packaging
@pytest.mark.timeout(900)
@pytest.mark.parametrize("python", [name for name in os.environ.get("PYTHONS", "").split(os.pathsep) if name] or [""])
def test_other_pythons(python: str, uv: Callable[..., None], wheel: Path, tmp_path: Path) -> None:
    """As a user installs it, with all dependencies."""
    if not python:
        pytest.skip("fetches what it installs: PYTHONS=python3.12:python3.13 asks for it")
    uv("tool", "install", "--python", python, wheel, UV_OFFLINE="0")
    _demo(tmp_path / "uv" / "TOOL_DIR" / "hybrid-lm", tmp_path)
