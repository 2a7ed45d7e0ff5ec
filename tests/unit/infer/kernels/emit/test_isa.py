"""Which code path a processor gets; every path can be forced in a process of its own."""

import subprocess
import sys
from typing import Any
from unittest.mock import Mock

import forced_isa
import pytest

from hybrid.infer.kernels.emit import isa

HOST = """
import numpy as np
from hybrid.infer.kernels.emit import isa
from hybrid.infer.kernels.rows import elementwise
from hybrid.infer.kernels.build.cache_folders import owner
from reference.run_kernel import record, run
x = np.arange(40, dtype=np.float32).reshape(2, 20)
out = np.full_like(x, np.nan)
run(elementwise.copy_rows, record(elementwise.copy_rows, count=np.array([2]), x=x, out=out, n=20))
assert (out == x).all()
print(isa.host().name, owner().digest, *isa.used_features())
"""


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ("", isa.PLAIN_X86),
        ("sse4.2 avx avx2", isa.PLAIN_X86),
        ("avx2 fma f16c", isa.AVX2),
        ("avx2 fma f16c avx512f avx512bw avx512vl", isa.AVX2),
        ("avx2 fma f16c avxvnni", isa.AVX_VNNI),
        ("avx2 fma f16c avx512f avx512bw avx512vl avx512vnni", isa.AVX512_VNNI),
        ("avx2 fma f16c avxvnni avx512f avx512bw avx512vl avx512vnni", isa.AVX512_VNNI),
        ("avx2 fma f16c avx512f avx512bw avx512vl avx512vnni avx512bf16", isa.AVX512_BF16),
        ("avx2 fma f16c avx512f avx512bw avx512vl avx512bf16", isa.AVX2),
    ],
)
def test_the_path_follows_the_features(features: str, expected: isa.ISA, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isa, "cpu_features", lambda: frozenset(features.split()))
    monkeypatch.setattr(isa, "cpu_target", lambda: "x86-64")
    monkeypatch.setattr(isa.llvm, "get_process_triple", lambda: "x86_64-unknown-linux-gnu")
    isa.host.cache_clear()
    try:
        assert isa.host() == expected
        assert set(isa.used_features()) <= set(features.split())
    finally:
        isa.host.cache_clear()


@pytest.mark.parametrize(
    ("cpu", "expected", "ahead"), [("znver4", isa.AVX512_BF16, 4096), ("emeraldrapids", isa.AVX512_VNNI, 8192)]
)
def test_what_one_processor_does_better(
    cpu: str, expected: isa.ISA, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Intel is slow at products of pairs of BF16, and its memory is prefetched earlier."""
    monkeypatch.setattr(isa, "cpu_features", lambda: frozenset(dict(isa.PATHS)[isa.AVX512_BF16]))
    monkeypatch.setattr(isa, "cpu_target", lambda: cpu)
    monkeypatch.setattr(isa.llvm, "get_process_triple", lambda: "x86_64-unknown-linux-gnu")
    isa.host.cache_clear()
    try:
        assert isa.host() == expected
        assert isa.prefetch_ahead() == ahead
    finally:
        isa.host.cache_clear()


@pytest.mark.parametrize(
    ("triple", "cpu", "features", "expected"),
    [
        # what LLVM says of a Linux machine: never dotprod, but the CPU; macOS: no feature at all
        ("aarch64-unknown-linux-gnu", "neoverse-n1", "neon fp-armv8 crc lse", isa.NEON),
        ("aarch64-unknown-linux-gnu", "cortex-a72", "neon fp-armv8 crc", isa.PLAIN_ARM),
        ("aarch64-unknown-linux-gnu", "generic", "neon", isa.PLAIN_ARM),
        ("aarch64-unknown-linux-gnu", "generic", "neon dotprod", isa.NEON),
        ("aarch64-unknown-linux-gnu", "generic", "neon dotprod i8mm", isa.NEON_I8MM),
        ("arm64-apple-darwin24.0.0", "apple-m2", "dotprod i8mm", isa.NEON_I8MM),
        ("arm64-apple-darwin24.0.0", "apple-m1", "", isa.NEON),
    ],
)
def test_the_path_of_an_arm64(
    triple: str, cpu: str, features: str, expected: isa.ISA, monkeypatch: pytest.MonkeyPatch
) -> None:
    isa.llvm.initialize_all_targets()
    isa.llvm.initialize_all_asmprinters()
    monkeypatch.setattr(isa.llvm, "get_process_triple", lambda: triple)
    monkeypatch.setattr(isa, "cpu_target", lambda: cpu)
    monkeypatch.setattr(isa, "cpu_features", lambda: frozenset(features.split()))
    isa.host.cache_clear()
    try:
        assert isa.host() == expected
        used = {isa.PLAIN_ARM: (), isa.NEON: ("neon", "dotprod"), isa.NEON_I8MM: ("neon", "dotprod", "i8mm")}
        assert isa.used_features() == used[expected]
    finally:
        isa.host.cache_clear()


class System:
    """A C library that answers as one of Linux or macOS does."""

    def __init__(self, auxiliary: dict[int, int], keys: dict[bytes, int]) -> None:
        self.keys = keys
        self.getauxval = Mock(side_effect=lambda kind: auxiliary.get(kind, 0))

    def sysctlbyname(self, key: bytes, value: Any, size: Any, _new: None, _n: Any) -> int:
        value._obj.value = self.keys.get(key, 0)
        return 0 if key in self.keys else -1


@pytest.mark.parametrize(
    ("platform", "auxiliary", "keys", "expected"),
    [
        ("linux", {16: 1 << 20, 26: 1 << 13}, {}, "dotprod i8mm"),
        ("linux", {16: 1 << 20, 26: ~(1 << 13)}, {}, "dotprod"),
        ("linux", {16: 1 << 13, 26: 1 << 20}, {}, ""),
        ("darwin", {}, {b"hw.optional.arm.FEAT_DotProd": 1, b"hw.optional.arm.FEAT_I8MM": 1}, "dotprod i8mm"),
        ("darwin", {}, {b"hw.optional.arm.FEAT_DotProd": 1, b"hw.optional.arm.FEAT_I8MM": 0}, "dotprod"),
        ("darwin", {}, {}, ""),
        ("win32", {16: 1 << 20}, {}, ""),
    ],
)
def test_features_that_the_system_names(
    platform: str, auxiliary: dict[int, int], keys: dict[bytes, int], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isa.llvm, "get_process_triple", lambda: "aarch64-unknown")
    monkeypatch.setattr(isa.sys, "platform", platform)
    monkeypatch.setattr(isa.ctypes, "CDLL", lambda _name: System(auxiliary, keys))
    assert isa.system_features.__wrapped__() == set(expected.split())


def test_forced_features_are_the_features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CPU_NAME", "x86-64")
    monkeypatch.setenv("NUMBA_CPU_FEATURES", "+avx2,-fma,+f16c")
    assert isa.cpu_features() == {"avx2", "f16c"}
    assert isa.cpu_target() == "x86-64"


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [name if name == "avx2" else pytest.param(name, marks=pytest.mark.paths) for name in forced_isa.FEATURES]
)
def test_a_path_is_forced_with_kernels_of_its_own(path: str) -> None:
    forced_isa.require(path)
    done = forced_isa.python(path, "-c", HOST)
    assert done.returncode == 0, done.stderr
    name, digest, *used = done.stdout.split()
    assert name == path
    assert used == list(dict(isa.PATHS)[next(i for i, _ in isa.PATHS if i.name == path)])
    from hybrid.infer.kernels.build.cache_folders import owner

    assert digest != owner().digest


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "forces"), [(0, False), pytest.param(1, True, marks=pytest.mark.paths)])
def test_a_run_says_which_paths_it_executed(workers: int, forces: bool) -> None:
    native = isa.host().name
    cannot = [p for p in forced_isa.FEATURES if not forced_isa.executable(p) and p != native]
    other = next((p for p in forced_isa.FEATURES if p not in (*cannot, native)), None)
    selection = f"of_its_own and {other}]" if forces else "forced_features"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", str(workers), __file__, "-k"]
    done = subprocess.run([*command, selection], cwd=forced_isa.ROOT, capture_output=True, text=True, timeout=500)
    (line,) = [text for text in done.stdout.splitlines() if text.startswith("code paths: ")]
    said = line.removeprefix("code paths: ").split("; ")
    assert said[0] == f"{native} (native)" + (f", {other}" if forces and other else ""), line
    assert not cannot or said[-1] == f"not executable here: {', '.join(cannot)}", line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "instruction"),
    [
        ("plain", "mulps"),
        *(pytest.param(*row, marks=pytest.mark.paths) for row in (("avx2", "vmulps"), ("avx512-vnni", "zmm"))),
    ],
    ids=lambda v: v,
)
def test_a_path_that_cannot_run_here_is_compiled(path: str, instruction: str) -> None:
    assert instruction in forced_isa.assembly(path, "hybrid.infer.kernels.rows.elementwise:rms_norm")
