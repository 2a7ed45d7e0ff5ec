"""The program `llm` with our plug-in, as installed: by its entry point, in a process of its own."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
POINTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]["llm"]
SAID = ("One", "Two", "Three", "Four")
pytestmark = [pytest.mark.exhaustive, pytest.mark.matrix]  # tests/unit/library/test_llm_plugin.py in one process


class Llm:
    """Runs the program with `folder` as the user's. The entry point is pyproject.toml's, whatever else is installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        about = folder / "installed" / "hybrid_lm_of_the_test-0.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: hybrid-lm-of-the-test\nVersion: 0\n")
        points = "\n".join(f"{name} = {module}" for name, module in POINTS.items())
        (about / "entry_points.txt").write_text(f"[llm]\n{points}\n")
        path = os.pathsep.join(filter(None, (str(about.parent), os.environ.get("PYTHONPATH"))))
        state = {"LLM_USER_PATH": str(folder / "user"), "XDG_STATE_HOME": str(folder / "state")}
        self.env = {**os.environ, **state, "PYTHONPATH": path}

    def __call__(self, *words: object, said: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "llm", *map(str, words)],
            cwd=self.folder,
            env=self.env,
            input=said,
            capture_output=True,
            text=True,
            check=False,
        )

    def logged(self) -> list[dict[str, Any]]:
        """All answers so far, as `llm` reports them."""
        found: list[dict[str, Any]] = json.loads(self("logs", "-n", "0", "--json").stdout)
        return sorted(found, key=lambda one: str(one["datetime_utc"]))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, files: dict[str, Path]) -> Llm:
    folder = tmp_path_factory.mktemp("llm")
    shutil.copyfile(files["bf16"], folder / "model.gguf")
    return Llm(folder)


def test_a_session(run: Llm) -> None:
    """Three turns in one process, which loads the model once, and a fourth in another."""
    done = run("chat", "-m", "hybrid/model.gguf", "-o", "max_tokens", 4, said="One\nTwo\nThree\nexit\n")
    assert done.returncode == 0, done.stderr
    done = run("-c", "Four", "-o", "max_tokens", 4)  # the model by its path, which was used recently
    assert done.returncode == 0 and done.stdout.strip(), done.stderr
    logged = run.logged()
    assert [(one["prompt"], one["output_tokens"]) for one in logged] == [(said, 4) for said in SAID]
    assert {one["model"] for one in logged} == {f"hybrid/{run.folder / 'model.gguf'}"}
    lengths = [one["input_tokens"] for one in logged]
    reused = [json.loads(one["token_details"] or "{}").get("reused_tokens", 0) for one in logged]
    assert all(n >= before + 4 - 1 for n, before in zip(reused[1:3], lengths, strict=False)), "nothing is read twice"
    assert lengths[3] > lengths[2], "what was said before is part of the prompt"


def test_errors_are_one_line(run: Llm) -> None:
    done = run("-m", "hybrid/none.gguf", "Hello")
    assert done.returncode and "none.gguf: no such file or folder" in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
