"""Encoders are compiled once per source, wherever the package is installed, and leave nothing beside it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hybrid.quant.ggml import code_folders
from hybrid.quant.ggml.kernels import kept_code


def test_the_folder_is_named_after_the_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not after the place or the time of an installation."""
    package = tmp_path / "ggml"
    shutil.copytree(Path(code_folders.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    before = code_folders.encoder_folder()
    assert before.name == code_folders._digest() and before.parent.name == "encoders"
    for path in package.rglob("*.py"):
        os.utime(path, (1, 1))
    monkeypatch.setattr(code_folders, "__file__", str(package / "code_folders.py"))
    code_folders._digest.cache_clear()
    try:
        assert code_folders._digest() == before.name
        code_folders._digest.cache_clear()
        with (package / "kernels" / "lanes_across.py").open("a") as file:
            file.write("# an edit of a module that others use\n")
        assert code_folders._digest() != before.name
    finally:
        code_folders._digest.cache_clear()


def _quantized(home: Path, tmp_path: Path, **more: str) -> str:
    """Rounds a few numbers to F16 in another process, with its cache in `home`; returns what was compiled."""
    code = (
        "import numpy as np\n"
        "from hybrid.quant.ggml.kernels import compiling\n"
        "said = []\n"
        "with compiling.told(lambda: said.append(1)):\n"
        "    from hybrid.quant.ggml.kernels import coding\n"
        "    from hybrid.quant.ggml.types import GGMLType\n"
        "    x = np.ones((2, 32), np.float32)\n"
        "    coding.encode(GGMLType.F16, x, np.zeros((2, 64), np.uint8))\n"
        "print(len(said))\n"
    )
    env = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    env |= {"XDG_CACHE_HOME": str(home), **more}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_code_is_kept_in_the_users_cache(tmp_path: Path) -> None:
    """The second process compiles nothing; a folder that others can write is not used."""
    home = tmp_path / "cache"
    assert _quantized(home, tmp_path) != "0" and _quantized(home, tmp_path) == "0"
    (folder,) = (home / "hybrid" / "encoders").iterdir()
    assert json.loads((folder / "about.json").read_text())["isa"] == "encoders"
    assert folder.stat().st_mode & 0o777 == 0o700 and any(folder.glob("*.nbc"))
    folder.chmod(0o777)
    assert kept_code.trouble(folder) == "it can be written by others"
    assert _quantized(home, tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "numba")) != "0"
    assert any((tmp_path / "numba").rglob("*.nbc")), "as numba's own setting says"
