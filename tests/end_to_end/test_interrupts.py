"""Ctrl-C in the middle of the work: one line, exit code 130, unchanged files.

Commands are forked from a process with loaded modules, and interrupt themselves at given points.
test_interrupts_timed.py interrupts at given times, beginning with the first imports.
"""

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import random_checkpoints
from end_to_end.interrupted import check_said, contents, parts_and_adapter
from random_rerankers import causal
from seeing_models import pixels, png

from hybrid.quant.imatrix import Imatrix

pytestmark = pytest.mark.exhaustive

OLD = b"what was there before"
# Points of interruption, by name: after which call of which method. At that moment there is an unfinished file; or it
# is complete but not yet renamed; or a model has computed something.
MOMENTS = {
    "begun": ("hybrid.quant.ggml.replacing", "Replacement", "_created", 1),
    "complete": ("hybrid.quant.ggml.replacing", "Replacement", "complete", 1),
    "computing": ("hybrid.infer.engine.engine", "Engine", "_run", 2),
    "looking": ("hybrid.infer.towers.tower", "VisionTower", "_tile", 1),
    "seen": ("hybrid.infer.towers.tower", "VisionTower", "tile_features", 1),
    "saved": ("hybrid.infer.engine.engine", "Engine", "_run", 3),
}
INTERRUPT = """
import os, signal
from {} import {} as where
calls, original = 0, where.{}
def hooked(*args, **options):
    global calls
    calls += 1
    result = original(*args, **options)
    if calls == {}:
        os.kill(os.getpid(), signal.SIGINT)
    return result
where.{} = hooked
"""
COMMANDS = {
    "convert": ("convert {checkpoint} -o {out}", "begun complete"),
    "convert in parts": ("convert {checkpoint} -o {out} --split-max-size 2M", "begun complete"),
    "quantize": ("quantize {bf16} {out} Q4_K_M --effort 1", "begun complete"),
    "quantize to a size": ("quantize {bf16} {out} --target-size 2M", "complete"),
    "quantize a folder in parts": ("quantize {checkpoint} {out} Q6_K --split-max-size 1M", "begun complete"),
    "imatrix": ("imatrix {q8_0} -f {prose} -o {out} -c 64 -b 64 --chunks 3", "computing complete"),
    "imatrix.dat": ("imatrix {q8_0} -f {prose} -o {out}.dat -c 64 --chunks 2", "complete"),
    "gguf split": ("gguf split {bf16} {out} --split-max-size 2M", "begun complete"),
    "gguf merge": ("gguf merge {parts} {out}", "begun complete"),
    "gguf merge-lora": ("gguf merge-lora {bf16} {lora} -o {out}", "begun complete"),
    "gguf set": ("gguf set {copy} general.name {long}", "begun complete"),
    "perplexity": ("perplexity {q8_0} -f {prose} -c 64 -b 64 --chunks 3", "computing"),
    "base": ("perplexity {q8_0} -f {prose} -c 64 -b 64 --chunks 3 --kl-divergence-base {out}", "computing complete"),
    "embed": ("embed {q8_0} -f {lines} -o {out} --npy", "complete"),
    "rerank": ("rerank {reranker} -p Who? {lines} {lines} {lines}", "computing"),
    "bench": ("bench {q8_0} -p 16 -n 4 -r 1 --no-start", "computing"),
    "run": ("run {q8_0} -p State -n 8 -c 64 --state {out}", "computing complete"),
    "run --image": ("run {seeing} --image {picture} -p What? -n 8 -c 64 --state {out}", "looking seen computing"),
}
"""Each replaces a file OUT that is there, or reads alone."""


@pytest.fixture(scope="module")
def words(
    small: dict[str, Path],
    small_checkpoint: Path,
    prose: Path,
    files_of_eyes: tuple[Path, Path],
    data_dir: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, str]:
    """The values of the placeholders in COMMANDS."""
    folder = tmp_path_factory.mktemp("interrupts")
    parts, lora = parts_and_adapter(small["bf16"], small_checkpoint, folder)
    (folder / "a.png").write_bytes(png(pixels(1)))
    (folder / "lines.txt").write_text("one text\nanother text\n")
    return {
        **{name: str(path) for name, path in small.items()},
        "checkpoint": str(small_checkpoint),
        "prose": str(prose),
        "parts": str(parts),
        "lora": str(lora),
        "long": "x" * 3000,
        "lines": str(folder / "lines.txt"),
        "seeing": str(files_of_eyes[0]),
        "picture": str(folder / "a.png"),
        "reranker": str(causal(random_checkpoints.CONFIGS["qwen3"], folder / "reranker", data_dir)),
    }


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(program: Path) -> Run:
    """run(words, moment): run a command line, which interrupts itself at that moment if one is given."""

    def call(words: Sequence[object], moment: str | None = None) -> subprocess.CompletedProcess[str]:
        module, owner, method, n = MOMENTS[moment or "begun"]
        first = INTERRUPT.format(module, owner, method, n, method) if moment else ""
        command = [program, *map(str, words)]
        env = {**os.environ, "TESTS_FIRST": first}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    return call


@pytest.mark.parametrize(
    ("name", "moment"), [(name, moment) for name, (_, moments) in COMMANDS.items() for moment in moments.split()]
)
def test_files_are_as_before(name: str, moment: str, run: Run, words: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    out, copy = folder / "out.gguf", folder / "copy.gguf"
    for path in (out, Path(f"{out}.dat"), folder / "out-00001-of-00003.gguf"):
        path.write_bytes(OLD)
    if name.startswith("run"):
        out.unlink()
    copy.write_bytes(Path(words["bf16"]).read_bytes())
    before = contents(folder)
    done = run([word.format(**words, out=out, copy=copy) for word in COMMANDS[name][0].split()], moment)
    assert done.returncode == 130, done.stderr
    check_said(done.stderr)
    assert contents(folder) == before


def test_an_importance_matrix_goes_on(run: Run, words: dict[str, str], tmp_path: Path) -> None:
    """The file on disk is complete, and --resume gives the sums of an uninterrupted run."""
    out, whole = tmp_path / "i.gguf", tmp_path / "whole.gguf"
    measure = ["imatrix", words["q8_0"], "-f", words["prose"], "-c", "64", "-b", "64", "--chunks", "4", "-t", "1"]
    assert run([*measure, "-o", whole]).returncode == 0
    done = run([*measure, "-o", out, "--save-every", "1"], "saved")
    assert done.returncode == 130
    assert done.stderr.splitlines()[-1] == f"interrupted; --resume goes on after the chunks that are in {out}"
    assert Imatrix.read(out).chunk_count == 2
    assert run([*measure, "-o", out, "--resume"]).returncode == 0
    a, b = Imatrix.read(out), Imatrix.read(whole)
    assert a.chunk_count == b.chunk_count == 4 and a.entries.keys() == b.entries.keys()
    for name, entry in b.entries.items():
        np.testing.assert_allclose(a.entries[name].sums, entry.sums, rtol=1e-5)  # sums of sums, in f32
