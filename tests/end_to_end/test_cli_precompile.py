"""`hybrid precompile`: a model's kernels exist before it runs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from end_to_end.outcomes import Cli, failed, ok

pytestmark = pytest.mark.exhaustive

RUN = """
import sys
from hybrid.infer import Model
from hybrid.infer.model import Work
with Model.load(sys.argv[1], n_ctx=64, n_seq_max=2) as model:
    first, second = model.sequence(), model.sequence()
    first.prefill([5, 6, 7])
    second.prefill([5, 6])
    model.eval([Work(first, (8,)), Work(second, (9,))])
    print(model.n_compiled)
"""


def test_all_there(cli: Cli, files: dict[str, Path]) -> None:
    ok(cli("precompile", files["q8_0"], "--parallel", 2))
    out = ok(cli("precompile", files["q8_0"], "--parallel", 2)).splitlines()
    assert out[0].startswith(f"{files['q8_0'].name}: ") and out[0].endswith(" kernels, all there")
    assert out[1].startswith("in ") and Path(out[1].removeprefix("in ")).is_dir()
    few, more = (
        json.loads(ok(cli("precompile", files["q8_0"], "--json", "--parallel", n)))[0]["n_kernels"] for n in (1, 2)
    )
    assert more > few


def test_what_cannot_be(cli: Cli, tmp_path: Path, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "nothing.gguf: no such file" in failed(cli("precompile", "nothing.gguf"), 2)
    (tmp_path / "bad.gguf").write_bytes(b"GGUF")
    assert "bad.gguf" in failed(cli("precompile", tmp_path / "bad.gguf"), 1)
    monkeypatch.setattr("hybrid.infer.engine.precompile.folder", lambda: None)
    assert "no folder for kernels can be written" in failed(cli("precompile", files["q8_0"]), 1)


@pytest.mark.matrix
def test_a_model_compiles_nothing_afterwards(files: dict[str, Path], tmp_path: Path) -> None:
    env = {"XDG_CACHE_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    for again in (False, True):
        done = subprocess.run(
            [sys.executable, "-m", "hybrid.cli", "precompile", str(files["q8_0"]), "--parallel", "2", "--json"],
            env=env,
            capture_output=True,
            text=True,
            timeout=600,
            check=True,
        )
        compiled = json.loads(done.stdout)[0]
        if not again:
            assert 0 < compiled["n_compiled"] <= compiled["n_kernels"]
            assert compiled["folder"].startswith(str(tmp_path))
    assert compiled["n_compiled"] == 0
    ran = subprocess.run(
        [sys.executable, "-c", RUN, str(files["q8_0"])],
        env=env,
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    assert ran.stdout.split() == ["0"], "nothing is left to compile"
