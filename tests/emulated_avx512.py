"""Runs code paths of AVX-512 on any processor that numba compiles for.

    python -m pytest -p emulated_avx512 tests/unit/infer/kernels/products/test_products.py

As a pytest plugin (or after `install()`) the process uses the code path avx512-bf16, with VBMI and GFNI. The kernels
are that path's; LLVM splits their vectors for the real processor. Each instruction that the emitter names is a function
with the same result, written after its description (Intel 64 and IA-32 Architectures Software Developer's Manual,
volume 2). Results have the instructions' bits; speed means nothing.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hybrid.infer.kernels.emit import isa
from hybrid.infer.kernels.emit.core import F32, I8, I16, I32, I64, EmitterCore, Value, Vec, const
from hybrid.infer.kernels.emit.emitter import Emitter

NEEDED = frozenset(("avx2", "fma", "f16c"))  # of the real processor
FEATURES = NEEDED | {
    "avx512f",
    "avx512bw",
    "avx512cd",
    "avx512dq",
    "avx512vl",
    "avx512vnni",
    "avx512bf16",
    "avx512vbmi",
    "gfni",
}
_real_call = EmitterCore.call


def _vpdpbusd(e: Emitter, total: Value, a: Value, c: Value) -> Value:
    """Add to each dword the sum of four products of u8 and s8."""
    b, n = e.b, a.type.count
    wide = Vec(I32, n)
    products = b.mul(b.zext(a, wide), b.sext(c, wide))
    for k in range(4):
        total = b.add(total, e.shuffle(products, list(range(k, n, 4))))
    return total


def _pmaddwd(e: Emitter, a: Value, c: Value) -> Value:
    b, n = e.b, a.type.count
    products = b.mul(b.sext(a, Vec(I32, n)), b.sext(c, Vec(I32, n)))
    return b.add(*(e.shuffle(products, list(range(h, n, 2))) for h in (0, 1)))


def _packssdw(e: Emitter, a: Value, c: Value) -> Value:
    """Saturate dwords to 16 bits; each 128-bit lane has four dwords of a, then four of c."""
    n = a.type.count
    limited = [
        e.intr("smax", e.intr("smin", v, const(v.type, (1 << 15) - 1)), const(v.type, -(1 << 15))) for v in (a, c)
    ]
    order = [side * n + quad + i for quad in range(0, n, 4) for side in (0, 1) for i in range(4)]
    return e.b.trunc(e.shuffle(limited[0], order, limited[1]), Vec(I16, 2 * n))


def _bytewise(e: Emitter, n: int, byte: Callable[[Value], Value]) -> Value:
    """<n x i8> of byte(i) for every i."""
    ty = Vec(I8, n)
    out = e.stack(ty)
    e.loop(n, lambda i, _: e.store(byte(i), e.at(out, i)))
    return e.load(ty, out)


def _in_memory(e: Emitter, *vectors: Value) -> Value:
    """The address of the vectors, stored one after the other."""
    out = e.stack(I8, 64 * len(vectors))
    for k, v in enumerate(vectors):
        e.store(v, out, 64 * k)
    return out


def _vpshufb(e: Emitter, a: Value, index: Value) -> Value:
    """Bytes of the same 128-bit lane, chosen by the low four bits of the index; 0 where its highest bit is set."""
    b, table, places = e.b, _in_memory(e, a), _in_memory(e, index)

    def byte(i: Value) -> Value:
        place = e.load(I8, e.at(places, i))
        lane = b.or_(b.and_(i, const(I64, 48)), b.zext(b.and_(place, const(I8, 15)), I64))
        return b.select(b.icmp_signed("<", place, const(I8, 0)), const(I8, 0), e.load(I8, e.at(table, lane)))

    return _bytewise(e, a.type.count, byte)


def _vpermb(e: Emitter, a: Value, index: Value) -> Value:
    """a[index], by the low six bits of the index."""
    b, table, places = e.b, _in_memory(e, a), _in_memory(e, index)
    return _bytewise(
        e, 64, lambda i: e.load(I8, e.at(table, b.zext(b.and_(e.load(I8, e.at(places, i)), const(I8, 63)), I64)))
    )


def _vpermi2b(e: Emitter, a: Value, index: Value, c: Value) -> Value:
    """Bytes of a followed by c, chosen by the low seven bits of the index."""
    b, table, places = e.b, _in_memory(e, a, c), _in_memory(e, index)
    return _bytewise(
        e, 64, lambda i: e.load(I8, e.at(table, b.zext(b.and_(e.load(I8, e.at(places, i)), const(I8, 127)), I64)))
    )


def _vpmultishiftqb(e: Emitter, control: Value, data: Value) -> Value:
    """Eight bits of the qword, from the bit offset in the control byte on; they wrap around."""
    b, places, words = e.b, _in_memory(e, control), _in_memory(e, data)

    def byte(i: Value) -> Value:
        word = e.load(I64, e.at(words, b.and_(i, const(I64, 56))))
        amount = b.zext(b.and_(e.load(I8, e.at(places, i)), const(I8, 63)), I64)
        return b.trunc(e.intr("fshr", word, word, amount), I8)

    return _bytewise(e, 64, byte)


def _vgf2p8affineqb(e: Emitter, a: Value, matrices: Value, added: Value) -> Value:
    """Bit i of a byte: parity of the byte AND byte 7 - i of its qword in `matrices`, XORed with bit i of `added`."""
    b, source, rows = e.b, _in_memory(e, a), _in_memory(e, matrices)

    def byte(i: Value) -> Value:
        x, first = e.load(I8, e.at(source, i)), b.and_(i, const(I64, 56))
        out = added
        for k in range(8):
            row = e.load(I8, e.at(rows, b.or_(first, const(I64, 7 - k))))
            parity = b.and_(e.intr("ctpop", b.and_(x, row)), const(I8, 1))
            out = b.xor(out, b.shl(parity, const(I8, k)))
        return out

    return _bytewise(e, 64, byte)


def _vdpbf16ps(e: Emitter, total: Value, a: Value, c: Value) -> Value:
    """Two fma, high halves first, see `Emitter.dot_pairs`. Unlike the instruction, it keeps subnormal numbers."""
    ty = Vec(I32, total.type.count)
    a, c = e.b.bitcast(a, ty), e.b.bitcast(c, ty)
    high = [e.b.bitcast(e.b.and_(v, const(ty, -65536)), Vec(F32, ty.count)) for v in (a, c)]
    low = [e.b.bitcast(e.b.shl(v, const(ty, 16)), Vec(F32, ty.count)) for v in (a, c)]
    return e.fma(low[0], low[1], e.fma(high[0], high[1], total))


INSTRUCTIONS: dict[str, Callable[..., Value]] = {
    "llvm.x86.avx512.vpdpbusd.256": _vpdpbusd,
    "llvm.x86.avx512.vpdpbusd.512": _vpdpbusd,
    "llvm.x86.avx512.pmaddw.d.512": _pmaddwd,
    "llvm.x86.avx512.packssdw.512": _packssdw,
    "llvm.x86.avx512.pshuf.b.512": _vpshufb,
    "llvm.x86.avx512.permvar.qi.512": _vpermb,
    "llvm.x86.avx512.vpermi2var.qi.512": _vpermi2b,
    "llvm.x86.avx512.pmultishift.qb.512": _vpmultishiftqb,
    "llvm.x86.vgf2p8affineqb.512": _vgf2p8affineqb,
    "llvm.x86.avx512bf16.dpbf16ps.512": _vdpbf16ps,
}


def _call(self: EmitterCore, name: str, ret: Any, *args: Value) -> Value:
    if name in INSTRUCTIONS:
        return self.function(f"emulated.{name}", INSTRUCTIONS[name], *args, result=ret)
    assert "512" not in name, f"{name} is not emulated"
    return _real_call(self, name, ret, *args)


def install() -> None:
    """Switch to the emulated path. Call it before anything asks for the process's path. Its kernels have a cache folder
    of their own."""
    own = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]
    features = isa.cpu_features() | FEATURES | {f"emulated-{own}"}
    isa.cpu_features = lambda: features
    isa.host.cache_clear()
    assert isa.host() is isa.AVX512_BF16
    EmitterCore.call = _call  # type: ignore[method-assign]


def missing() -> str:
    """Why AVX-512 kernels are not emulated here; empty if they are."""
    if isa.cpu_features() >= FEATURES:
        return "this processor executes them itself"
    return "" if isa.cpu_features() >= NEEDED else "half floats are converted as x86 does it"


def pytest_configure() -> None:
    install()
