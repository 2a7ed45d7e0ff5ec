"""A wheel holds what the checkout holds: every package is listed, every data file is matched."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STAGES = ("cli", "convert", "infer", "quant")
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
# read in the repository, not by the program
DOCUMENTS = {".md"}


def test_every_package_is_listed() -> None:
    found = {
        "hybrid." + ".".join(path.parent.relative_to(ROOT).parts)
        for stage in STAGES
        for path in (ROOT / stage).rglob("__init__.py")
    }
    assert set(SETUPTOOLS["packages"]) == found | {"hybrid.cli.bundled"}, "bundled holds data and no module"


def test_every_folder_of_modules_is_a_package() -> None:
    for stage in STAGES:
        for path in (ROOT / stage).rglob("*.py"):
            assert (path.parent / "__init__.py").exists(), f"{path.relative_to(ROOT)} would not be in a wheel"


def test_every_data_file_is_matched() -> None:
    matched: set[Path] = set()
    for package, patterns in SETUPTOOLS["package-data"].items():
        folder = ROOT.joinpath(*package.split(".")[1:])
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
