"""Inner loops of the products use the instruction of their path, for processors that this one need not be."""

import re
from typing import Any

import pytest
from assembly import ARM, ARM_I8MM, Machine, assembly, count, innermost_loops, loop_with, spills, x86

from hybrid.infer.kernels.emit.isa import AVX2, AVX512_BF16, AVX512_VNNI, AVX_VNNI, ISA, NEON, NEON_I8MM, PLAIN_X86
from hybrid.infer.kernels.products import gemm, gemm_tiles, gemv, gemv_columns
from hybrid.infer.kernels.weights import pairs, sixteen
from hybrid.quant.ggml.types import GGMLType

pytestmark = pytest.mark.exhaustive

PLAIN = x86("x86-64")
TARGETS = [
    pytest.param(AVX512_VNNI, x86("znver4"), id="znver4"),
    pytest.param(AVX512_VNNI, x86("znver5"), id="znver5", marks=pytest.mark.paths),
    pytest.param(AVX512_VNNI, x86("icelake-server"), id="icelake", marks=pytest.mark.paths),
    pytest.param(AVX_VNNI, x86("alderlake"), id="alderlake", marks=pytest.mark.paths),
    pytest.param(AVX2, x86("haswell"), id="haswell"),
    pytest.param(AVX2, x86("znver3"), id="znver3", marks=pytest.mark.paths),
    pytest.param(NEON, ARM, id="arm64"),
]


I8MM = pytest.param(NEON_I8MM, ARM_I8MM, id="arm64-i8mm")


def short_suite(first: GGMLType, *others: GGMLType) -> list[Any]:
    """Types, of which the short suite assembles only the first: each takes a run of LLVM per target."""
    return [first, *(pytest.param(kind, marks=pytest.mark.paths) for kind in others)]


DOT = {"vnni": "vpdpbusd", "ub": "vpmaddubsw", "s16": "vpmaddwd", "sdot": "sdot", "smmla": "smmla"}
FMA = {"x86": "vfmadd", "arm64": "fmla"}
REGISTER = {AVX512_VNNI: "zmm", AVX_VNNI: "ymm", AVX2: "ymm", NEON: ".4s", NEON_I8MM: ".4s"}


@pytest.mark.parametrize(("isa", "machine"), [*TARGETS, I8MM])
@pytest.mark.parametrize("kind", short_suite(GGMLType.Q8_0, GGMLType.Q4_0, GGMLType.Q4_K))
def test_many_columns_integer(isa: ISA, machine: Machine, kind: GGMLType) -> None:
    tile = gemm.tiles(isa)[1]
    how = gemm.scheme(kind, isa)
    loop = loop_with(assembly(gemm_tiles.make_int_tile(how, tile, isa), isa, machine), DOT[how.name])
    products = [line for line in loop if DOT[how.name] in line]
    per_step = tile.rows * tile.vectors * (2 if isa is NEON else 1)
    assert len(products) % per_step == 0, "every accumulator once in each step"
    if isa is NEON_I8MM:
        assert len(loop) <= 1.5 * len(products), "each load is multiplied two or more times"
    assert all(REGISTER[isa] in line for line in products)
    assert len(loop) < 3.2 * len(products), "little besides: loading, broadcasting, adding"
    assert len(spills(loop)) <= (2 if how.name == "ub" else 0), spills(loop)
    if isa is NEON:
        assert all(re.search(r"\.4b\[\d\]", line) for line in products), "multiplies with one dword of a register"
    if isa is AVX_VNNI:
        assert all(line.startswith("{vex}") for line in products)


@pytest.mark.parametrize(("isa", "machine"), [pytest.param(NEON, ARM, id="arm64"), I8MM])
@pytest.mark.parametrize("kind", short_suite(GGMLType.Q6_K, GGMLType.Q8_0))
def test_arm64_has_registers_for_a_block(isa: ISA, machine: Machine, kind: GGMLType) -> None:
    """Nothing is spilled between the products of a block and its last scale. Types without minima, whose fma follow."""
    tile, how = gemm.tiles(isa)[1], gemm.scheme(kind, isa)
    text = assembly(gemm_tiles.make_int_tile(how, tile, isa), isa, machine)
    block = text.partition(f"\t{DOT[how.name]}\t")[2].rpartition("\tfmla\t")[0]
    assert block.count("\tfmla\t") == tile.rows * tile.vectors * 2 - 1
    assert not [line for line in block.splitlines() if re.search(r"\tst[rp]\tq.*\[sp", line)]


@pytest.mark.parametrize("kind", short_suite(GGMLType.Q8_0, GGMLType.Q4_K, GGMLType.Q6_K, GGMLType.Q2_K))
def test_many_columns_integer_with_32_registers(kind: GGMLType) -> None:
    """A block is one loop without stores: on Zen 4 a cluster of stores delays vpdpbusd."""
    isa, machine, how = AVX512_VNNI, x86("znver4"), gemm.scheme(kind, AVX512_VNNI)
    for tile in gemm.tiles(isa):
        loop = loop_with(assembly(gemm_tiles.make_int_tile(how, tile, isa), isa, machine), "vpdpbusd")
        assert count(loop, "vpdpbusd") == 8 * tile.rows * tile.vectors
        assert not spills(loop), spills(loop)
        assert not [line for line in loop if re.search(r"%[xyz]mm\d+, \S*\(", line)], "stores nothing"


@pytest.mark.parametrize("kind", short_suite(GGMLType.Q2_K, GGMLType.Q3_K, GGMLType.IQ1_M))
@pytest.mark.parametrize(("isa", "machine"), [(AVX512_VNNI, x86("znver4")), (AVX_VNNI, x86("alderlake"))])
def test_factors_of_sums_that_fit_16_bits(isa: ISA, machine: Machine, kind: GGMLType) -> None:
    """One instruction multiplies both halves of a block."""
    tile, how = gemm.tiles(isa)[1], gemm.scheme(kind, isa)
    loop = loop_with(assembly(gemm_tiles.make_int_tile(how, tile, isa), isa, machine), "vpdpbusd")
    assert count(loop, "vpmaddwd") == tile.rows * tile.vectors
    assert not count(loop, "vpmulld")


@pytest.mark.parametrize(("isa", "machine"), [target for target in TARGETS if target.values[0] is not NEON])
def test_many_columns_in_words(isa: ISA, machine: Machine) -> None:
    """LLVM joins vpmaddwd and the addition into vpdpwssd where the processor has it and is not faster without."""
    tile = gemm.word_tile_of(gemm.tiles(isa)[1])
    loop = loop_with(assembly(gemm_tiles.make_word_tile(tile, isa), isa, machine), "vp")  # most of the loop
    products = [line for line in loop if "vpdpwssd" in line or "vpmaddwd" in line]
    assert len(products) % (tile.rows * tile.vectors) == 0
    assert all(REGISTER[isa] in line for line in products)
    assert len(loop) < 3.2 * len(products) and not spills(loop)


@pytest.mark.parametrize(("isa", "machine"), TARGETS)
def test_many_columns_float(isa: ISA, machine: Machine) -> None:
    tile = gemm.tiles(isa)[1]
    loop = loop_with(assembly(gemm_tiles.make_float_tile(tile, isa), isa, machine), FMA[isa.arch])
    products = [line for line in loop if FMA[isa.arch] in line]
    assert len(products) % (tile.rows * tile.vectors) == 0
    assert all(REGISTER[isa] in line for line in products)
    assert len(loop) < 2.8 * len(products)
    assert not spills(loop)


@pytest.mark.parametrize(("isa", "machine"), TARGETS)
@pytest.mark.parametrize("kind", short_suite(GGMLType.Q8_0, GGMLType.Q4_K, GGMLType.Q6_K))
def test_few_columns_integer(isa: ISA, machine: Machine, kind: GGMLType) -> None:
    """An iteration takes eight groups of 32, each by one instruction of 256 bits or two of 128; AVX-512: sixteen."""
    if isa is AVX512_VNNI:
        loop = loop_with(assembly(gemv.make_int_gemv(kind, isa), isa, machine), "vpdpbusd")
        assert sum("zmm" in line for line in loop if "vpdpbusd" in line) == 8
        assert len(loop) < 125
        assert not spills(loop)
        return
    factors = kind is GGMLType.Q6_K  # of 16 weights: vpdpbusd would add across them
    wanted = {"vnni": "vpmaddubsw" if factors else "vpdpbusd", "avx2": "vpmaddubsw", "neon": "sdot"}[isa.dot]
    loop = loop_with(assembly(gemv.make_int_gemv(kind, isa), isa, machine), wanted)
    assert count(loop, wanted) == (16 if isa is NEON else 8)
    assert len(loop) < 30 * 8


@pytest.mark.parametrize(
    ("kind", "most"),
    [(GGMLType.IQ2_XXS, 175), (GGMLType.IQ3_S, 215), (GGMLType.TQ1_0, 125), (GGMLType.Q2_0, 95), (GGMLType.Q4_K, 100)],
)
def test_a_single_column_with_vbmi_and_gfni(monkeypatch: pytest.MonkeyPatch, kind: GGMLType, most: int) -> None:
    """Codebook entries and digits are looked up in registers, not loaded one by one; bits move in one step."""
    for module in (pairs, sixteen):
        monkeypatch.setattr(module, "has", lambda _isa, _feature: True)
    loop = loop_with(assembly(gemv.make_int_gemv(kind, AVX512_VNNI), AVX512_VNNI, x86("znver4")), "vpdpbusd")
    assert sum("zmm" in line for line in loop if "vpdpbusd" in line) == 8
    assert len(loop) < most
    assert count(loop, "movz") + count(loop, "vpins") < 8, "entries are not loaded one by one"
    assert count(loop, "vpermt2b") + count(loop, "vpermi2b") + count(loop, "vpmultishiftqb") + count(loop, "vgf2p8")


@pytest.mark.parametrize(("isa", "machine"), TARGETS)
@pytest.mark.parametrize("kind", short_suite(GGMLType.Q8_0, GGMLType.Q4_0, GGMLType.Q4_K, GGMLType.Q6_K))
def test_several_columns_integer(isa: ISA, machine: Machine, kind: GGMLType) -> None:
    """A column is multiplied with eight groups (AVX-512: sixteen, of two rows) without an addition across lanes, so
    that little but the products remains."""
    if isa is AVX512_VNNI:
        wide = [
            candidate
            for candidate in innermost_loops(assembly(gemv_columns.make_int_columns(kind, isa), isa, machine))
            if sum("vpdpbusd" in line and "zmm" in line for line in candidate) >= 8
        ]
        loop = min(wide, key=len)
        columns = count(loop, "vpdpbusd") // 8
        assert count(loop, "vpdpbusd") == 8 * columns and not spills(loop)
        assert len(loop) < (32 if kind in (GGMLType.Q4_K, GGMLType.Q6_K) else 25) * columns
        loads = [line for line in loop if re.search(r"\(.*zmm\d+$", line)]
        assert len(loads) <= 8 * columns, "what is read of a column meets both rows"
        return
    wanted = {"vnni": "vpdpbusd", "avx2": "vpmaddubsw", "neon": "sdot"}[isa.dot]
    text = assembly(gemv_columns.make_int_columns(kind, isa), isa, machine)
    loop = min((candidate for candidate in innermost_loops(text) if count(candidate, wanted) >= 8), key=len)
    columns = count(loop, wanted) // (16 if isa is NEON else 8)
    assert count(loop, wanted) == columns * (16 if isa is NEON else 8)
    across = [line for line in loop if re.match(r"vpunpck|vperm|vpshuf|vphadd|zip|uzp|addp", line)]
    assert len(across) <= (2 * columns if isa is NEON else 0)  # sums of x, which take the bias off
    assert len(loop) < (80 if isa is NEON else 55) * columns


@pytest.mark.parametrize("kind", short_suite(GGMLType.IQ3_S, GGMLType.IQ1_M, GGMLType.Q2_0))
def test_several_columns_with_vbmi_and_gfni(monkeypatch: pytest.MonkeyPatch, kind: GGMLType) -> None:
    """Types with entries looked up in registers also take sixteen groups at a time."""
    for module in (pairs, sixteen):
        monkeypatch.setattr(module, "has", lambda _isa, _feature: True)
    text = assembly(gemv_columns.make_int_columns(kind, AVX512_VNNI), AVX512_VNNI, x86("znver4"))
    loops = [loop for loop in innermost_loops(text) if sum("vpdpbusd" in x and "zmm" in x for x in loop) >= 8]
    loop = min(loops, key=len)
    assert count(loop, "vpdpbusd") % 16 == 0 and not spills(loop)
    assert len(loop) < 32 * (count(loop, "vpdpbusd") // 8)


@pytest.mark.parametrize(("isa", "machine"), TARGETS)
@pytest.mark.parametrize("kind", short_suite(GGMLType.F32, GGMLType.BF16, GGMLType.F16))
def test_few_columns_float(isa: ISA, machine: Machine, kind: GGMLType) -> None:
    loop = loop_with(assembly(gemv.make_float_gemv(kind), isa, machine), FMA[isa.arch])
    assert len(loop) < 16 * count(loop, FMA[isa.arch])


@pytest.mark.parametrize(("isa", "machine"), TARGETS)
@pytest.mark.parametrize("kind", short_suite(GGMLType.BF16, GGMLType.F16))
def test_several_columns_float(isa: ISA, machine: Machine, kind: GGMLType) -> None:
    """Two columns and two rows at a time; where there are more, three rows (AVX2) or more columns (AVX-512)."""
    text = assembly(gemv_columns.make_float_columns(kind, isa), isa, machine)
    loops = [loop for loop in innermost_loops(text) if count(loop, FMA[isa.arch])]
    if isa.lanes == 16:
        sums = [{line.split()[-1] for line in loop if line.startswith(FMA[isa.arch])} for loop in loops]
        assert {len(of_loop) for of_loop in sums} == {4, 8, 16}
        return
    assert {count(loop, FMA[isa.arch]) for loop in loops} == ({32} if isa is NEON else {16, 24})
    # for Intel, LLVM moves some loads forward and runs out of registers
    few = 6 if machine.cpu in ("haswell", "alderlake") else 0
    for loop in loops:
        assert len(spills(loop)) <= few
        assert len([line for line in loop if "prefetch" in line or "prfm" in line]) <= 3


@pytest.mark.parametrize("kind", short_suite(GGMLType.Q8_0, GGMLType.Q4_K))
def test_the_plain_path_has_no_avx(kind: GGMLType) -> None:
    how, tile = gemm.scheme(kind, PLAIN_X86), gemm.tiles(PLAIN_X86)[1]
    pieces = [gemm_tiles.make_int_tile(how, tile, PLAIN_X86), gemv.make_int_gemv(kind, PLAIN_X86)]
    for piece in pieces:
        text = assembly(piece, PLAIN_X86, PLAIN)
        assert "pmadd" in text or "pmul" in text
        assert not re.search(r"^\s+v\w+\s.*%[xyz]mm", text, re.MULTILINE)
        assert "%ymm" not in text


def test_pairs_of_bf16() -> None:
    machine = x86("znver4")
    for tile in gemm.tiles(AVX512_BF16):
        loop = loop_with(
            assembly(gemm_tiles.make_float_tile(tile, AVX512_BF16, bf16_pairs=True), AVX512_BF16, machine), "vdpbf16ps"
        )
        assert count(loop, "vdpbf16ps") % (tile.rows * tile.vectors) == 0
        assert all("zmm" in line for line in loop if "vdpbf16ps" in line)
        assert not spills(loop)
    single = gemv.make_float_gemv(GGMLType.F32, AVX512_BF16, bf16_pairs=True)
    assert count(loop_with(assembly(single, AVX512_BF16, machine), "vdpbf16ps"), "vdpbf16ps") >= 2
