"""Measured limits are plausible, and each loop uses the instruction that it is meant to measure."""

import llvmlite.binding as llvm
import numpy as np
import pytest

from hybrid.infer.bench import machine
from hybrid.infer.kernels.emit.isa import (
    AVX2,
    AVX512_BF16,
    AVX512_VNNI,
    AVX_VNNI,
    ISA,
    NEON,
    NEON_I8MM,
    PLAIN_ARM,
    PLAIN_X86,
)


def assembly(isa: ISA, cpu: str, features: str, triple: str = "x86_64-unknown-linux-gnu") -> str:
    """The loops' assembly for a given CPU, which need not be this one."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, opt=3)
    module = llvm.parse_assembly(machine._assembly(machine._bodies(isa)))
    module.triple = triple
    module.verify()
    return str(target.emit_assembly(module))


@pytest.mark.parametrize(
    ("isa", "cpu", "features", "instructions"),
    [
        (AVX512_VNNI, "znver4", "", ["vpdpbusd", "vfmadd", "zmm"]),
        (AVX512_BF16, "znver4", "", ["vpdpbusd", "vdpbf16ps", "zmm"]),
        (AVX_VNNI, "haswell", "+avxvnni", ["vpdpbusd", "vfmadd", "ymm"]),
        (AVX2, "znver3", "", ["vpmaddubsw", "vpmaddwd", "vfmadd", "ymm"]),
        (PLAIN_X86, "x86-64", "", ["paddq"]),
    ],
)
def test_loops_use_the_instruction_they_measure(isa: ISA, cpu: str, features: str, instructions: list[str]) -> None:
    text = assembly(isa, cpu, features)
    for instruction in instructions:
        assert instruction in text, instruction
    if "vpmaddubsw" in instructions:
        assert text.count("vpmaddubsw") >= 12


def test_loops_compile_for_aarch64() -> None:
    assert "sdot" in assembly(NEON, "apple-m1", "", "aarch64-unknown-linux-gnu")
    assert "smmla" in assembly(NEON_I8MM, "apple-m2", "", "aarch64-unknown-linux-gnu")
    assert "fmla" in assembly(PLAIN_ARM, "apple-m1", "", "aarch64-unknown-linux-gnu")
    assert not {f"{way}_loop" for way in machine.DOT_WAYS} & machine._bodies(PLAIN_ARM).keys()


def test_the_read_loop_reads_every_byte() -> None:
    read = machine._loops()["read_loop"]
    values = np.arange(3 * machine._READ_STEP // 8, dtype=np.int64) * 0x1234567
    lanes = values.reshape(-1, 8, 8).sum(axis=0)
    assert read(values.ctypes.data, 3) == np.bitwise_xor.reduce(lanes, axis=None)


def test_limits_are_plausible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_BUFFER", 32 << 20)
    monkeypatch.setattr(machine, "_REPEATS", 2)
    measured = machine.measure_machine(1)
    assert measured.n_threads == 1
    assert "(" in measured.cpu
    assert 0.1 < measured.read_gb_s < 2000
    assert 0.5 < measured.f32_gflop_s < 2000
    assert measured.int8_gop_s is None or measured.int8_gop_s > 0.5
