import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from hybrid.quant.ggml.installed import installed_version


@pytest.mark.parametrize("package", ["hybrid-lm", "numba", "llvmlite", "numpy"])
def test_it_is_what_importlib_says(package: str) -> None:
    assert installed_version(package) == version(package)


def test_the_first_folder_of_the_path_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, name in (("a", "numba_scipy-9.9"), ("b", "numba-8.8"), ("c", "numba-7.7")):
        (tmp_path / folder / f"{name}.dist-info").mkdir(parents=True)
        monkeypatch.syspath_prepend(tmp_path / folder)
    assert installed_version("numba") == "7.7"


def test_other_forms_of_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "old_form-1.5.egg-info").mkdir()
    (tmp_path / "old_form-1.5.egg-info" / "PKG-INFO").write_text("Name: old-form\nVersion: 1.5\n")
    monkeypatch.setattr(sys, "path", ["/missing", str(tmp_path)])
    assert installed_version("old-form") == "1.5"
    assert installed_version("never-heard-of") == "unknown"
