"""Kernels are cached under the digest of exactly the sources that they depend on."""

import subprocess
import sys
from pathlib import Path

import pytest

import hybrid.infer.kernels
from hybrid.infer.kernels.attention.attention import attention
from hybrid.infer.kernels.build import sources
from hybrid.infer.kernels.products.gemm import gemm
from hybrid.infer.kernels.recurrent.delta import delta_scan
from hybrid.infer.kernels.recurrent.rglru import rg_lru
from hybrid.infer.kernels.recurrent.wkv import wkv7_scan

PACKAGE = Path(hybrid.infer.kernels.__file__).parent
MODULES = [kernel.function.__module__ for kernel in (attention, gemm, rg_lru)]


def digests(root: Path) -> list[str]:
    """Digests of MODULES in a copy of the package, computed in a separate process."""
    script = f"from hybrid.infer.kernels.build.sources import digest; print(*map(digest, {MODULES!r}))"
    done = subprocess.run([sys.executable, "-S", "-c", script], cwd=root, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A package `hybrid` with the sources of the kernels and formats."""
    for folder in (PACKAGE, PACKAGE.parents[1] / "quant/ggml"):
        for path in folder.rglob("*.py"):
            target = tmp_path / "hybrid" / path.relative_to(PACKAGE.parents[1])
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    return tmp_path


@pytest.mark.parametrize(
    ("edited", "changed"),
    [
        ("infer/kernels/emit/emitter.py", [True, True, True]),
        ("infer/kernels/build/compiler.py", [True, True, True]),  # imported in a function
        ("infer/kernels/attention/attention_tile.py", [True, False, False]),
        ("infer/kernels/weights/k_quants.py", [False, True, False]),  # through weights/__init__.py
        ("quant/ggml/types.py", [False, True, False]),
        ("infer/kernels/recurrent/states.py", [False, False, True]),
        ("infer/kernels/recurrent/conv.py", [False, False, False]),
    ],
)
def test_an_edit_changes_what_depends_on_it(copy: Path, edited: str, changed: list[bool]) -> None:
    before = digests(copy)
    assert len(set(before)) == 3
    path = copy / "hybrid" / edited
    path.write_text(path.read_text() + "\n# edited\n")
    assert [a != b for a, b in zip(before, digests(copy), strict=True)] == changed


def test_kernels_are_named_by_it() -> None:
    for kernel in (attention, gemm, rg_lru):
        assert kernel.file == f"{kernel.name}-{sources.digest(kernel.function.__module__)}"


def test_kernels_depend_on_the_modules_of_their_pieces() -> None:
    """A scan is a template of head_scan.py with pieces of the module that declares it."""
    for kernel in (delta_scan, wkv7_scan):
        modules = {kernel.function.__module__, kernel.function.__globals__["lanes_piece"].body.__module__}
        assert len(modules) == 2
        assert kernel.file == f"{kernel.name}-{sources.digest(*sorted(modules))}"
    assert sources.digest(*MODULES) not in {sources.digest(module) for module in MODULES}


def test_a_module_elsewhere_counts_with_what_it_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    digests = []
    for i, imported in enumerate(("emit.emitter import ldi", "attention.rope import rope")):
        for text in ("x = 1\n", "x = 2\n"):
            name = f"a_module_{i}_{text[4]}"
            (tmp_path / f"{name}.py").write_text(f"from hybrid.infer.kernels.{imported}\n{text}")
            __import__(name)
            digests.append(sources.digest(name))
    assert len(set(digests)) == 4


def test_a_module_without_a_file_is_known_to_nobody_else() -> None:
    script = "from hybrid.infer.kernels.build.sources import digest; print(digest('__main__'), digest('__main__'))"
    runs = [subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout for _ in range(2)]
    assert all(len(set(run.split())) == 1 for run in runs)
    assert runs[0] != runs[1]
