"""Kernels of AVX-512 on processors without it (see emulated_avx512.py)."""

import os
import subprocess
import sys
from collections.abc import Callable

import emulated_avx512
import forced_isa
import numpy as np
import pytest
from reference.run_kernel import record, run

from hybrid.infer.kernels.build.jit import kernel, variant
from hybrid.infer.kernels.emit.emitter import I8, I16, I32, Emitter, Vec, const, emit
from hybrid.infer.kernels.emit.fields import Address
from hybrid.infer.kernels.emit.isa import cpu_features

Y, W, D = np.int8, np.int16, np.int32  # elements of operands and results
OF = {Y: Vec(I8, 64), W: Vec(I16, 32), D: Vec(I32, 16)}


def _qword(v: np.ndarray, i: int) -> int:
    return int.from_bytes(v.view(np.uint8)[i // 8 * 8 : i // 8 * 8 + 8].tobytes(), "little")


def _affine_bit(x: int, matrix: int, bit: int) -> int:
    return (x & matrix >> 8 * (7 - bit) & 255).bit_count() & 1


def _pshufb(a: np.ndarray, index: np.ndarray) -> list[int]:
    return [0 if index[i] < 0 else a[i // 16 * 16 + index[i] % 16] for i in range(64)]


def _dpbusd(total: np.ndarray, a: np.ndarray, c: np.ndarray) -> np.ndarray:
    products = a.view(np.uint8).astype(np.int64) * c
    return total + products.reshape(16, 4).sum(axis=1)


def _pack(a: np.ndarray, c: np.ndarray) -> np.ndarray:
    quads = np.stack([a.reshape(4, 4), c.reshape(4, 4)], axis=1)
    return quads.reshape(-1).clip(-(1 << 15), (1 << 15) - 1)


# instruction: elements of its operands and of its result, and what it computes, lane by lane
DEFINED: dict[str, tuple[tuple[type, ...], type, Callable[..., object]]] = {
    "vpdpbusd.512": ((D, Y, Y), D, _dpbusd),
    "pmaddw.d.512": ((W, W), D, lambda a, c: (a.astype(np.int64) * c).reshape(16, 2).sum(axis=1)),
    "packssdw.512": ((D, D), W, _pack),
    "pshuf.b.512": ((Y, Y), Y, _pshufb),
    "permvar.qi.512": ((Y, Y), Y, lambda a, index: a[index & 63]),
    "vpermi2var.qi.512": ((Y, Y, Y), Y, lambda a, index, c: np.concatenate([a, c])[index & 127]),
    "pmultishift.qb.512": (
        (Y, Y),
        Y,
        lambda places, v: [(_qword(v, i) * ((1 << 64) + 1) >> int(places[i]) % 64) % 256 for i in range(64)],
    ),
    "vgf2p8affineqb.512": (
        (Y, Y),
        Y,
        lambda a, m: [
            sum(_affine_bit(int(a.view(np.uint8)[i]), _qword(m, i), k) << k for k in range(8)) for i in range(64)
        ],
    ),
}


def whole_name(name: str) -> str:
    return "llvm.x86." + ("" if name.startswith("vgf") else "avx512.") + name


def piece(a, c, d, out):  # replaced in every variant
    raise NotImplementedError


@kernel
def instruction(_a, tid, nth, *, a: Address, c: Address, d: Address, out: Address):
    piece(a, c, d, out)


def computed(name: str, operands: list[np.ndarray], *, emulated: bool) -> np.ndarray:
    of, result, _ = DEFINED[name]
    affine = name.startswith("vgf")

    def body(e: Emitter, *addresses: object) -> None:
        values = [e.load(OF[element], place) for element, place in zip(of, addresses, strict=False)]
        values += [const(I8, 0)] if affine else []
        if emulated:
            value = emulated_avx512.INSTRUCTIONS[whole_name(name)](e, *values)
        else:
            value = e.call(whole_name(name), OF[result], *values)
        e.store(value, addresses[3])

    out = np.zeros(64, np.uint8).view(result)
    how = "emulated" if emulated else "real"
    made = variant(instruction, f"{how}_{name.replace('.', '_')}", piece=emit("i64,i64,i64,i64->void")(body))
    padded = [*operands, *[operands[0]] * (3 - len(operands))]
    run(made, record(made, a=padded[0], c=padded[1], d=padded[2], out=out))
    return out


@pytest.mark.parametrize("name", DEFINED)
def test_emulated_instructions(name: str) -> None:
    rng = np.random.default_rng(len(name))
    of, result, define = DEFINED[name]
    for _ in range(20):
        operands = [rng.integers(-128, 128, 64, np.int64).astype(np.int8).view(element) for element in of]
        if name.startswith("packs"):
            operands = [v >> rng.integers(0, 24, 16).astype(np.int32) for v in operands]
        want = np.array(define(*operands)).astype(np.int64).astype(result)
        np.testing.assert_array_equal(computed(name, operands, emulated=True), want)
        if cpu_features() >= emulated_avx512.FEATURES:
            np.testing.assert_array_equal(computed(name, operands, emulated=False), want)


def test_every_instruction_is_defined() -> None:
    others = {"llvm.x86.avx512.vpdpbusd.256", "llvm.x86.avx512bf16.dpbf16ps.512"}  # half a register; two fma
    assert emulated_avx512.INSTRUCTIONS.keys() == {whole_name(name) for name in DEFINED} | others


# tables with signs and factors, digits, bits; floats with 2, 3, 4, 5 and 8 columns. Run the others by hand
SELECTIONS = (
    "test_product and True and 768 and (IQ1_M or IQ2_XS or IQ3_S or TQ1_0)",
    "test_product and ((True and 768 and (Q4_K or Q6_K)) or (True and 640 and Q2_0))",
    "test_product and F16 and False and (160 or 96 or 48 or 135)",
    "twin and (q4_0 or q5_1 or iq4_nl)",
)


@pytest.mark.slow
@pytest.mark.emulated
@pytest.mark.parametrize("selection", SELECTIONS, ids=["tables", "bits", "floats", "attention"])
def test_kernels(selection: str) -> None:
    """Single columns, several and many: the same bits, equal to products with the decoded values."""
    if reason := emulated_avx512.missing():
        pytest.skip(reason)
    attention = "twin" in selection
    file = "attention/test_attention_codes.py" if attention else "products/test_products.py"
    file = f"tests/unit/infer/kernels/{file}"
    command = [sys.executable, "-m", "pytest", "-v", "-x", "-p", "emulated_avx512", "-p", "no:cacheprovider", file]
    done = subprocess.run(
        [*command, *["-m", "not matrix"] * attention, "-k", selection],
        cwd=forced_isa.ROOT,
        env={**os.environ, "PYTHONPATH": "tests"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}{done.stderr[-1000:]}"
    assert "code paths: avx512-bf16" in done.stdout, done.stdout
    forced_isa.ran.add("avx512-bf16 (emulated)")
