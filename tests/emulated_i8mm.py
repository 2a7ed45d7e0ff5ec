"""Runs all kernels as aarch64 code with smmla in qemu: as emulated_arm64.py, whose `unicorn` lacks i8mm.

    python -m pytest -p emulated_i8mm tests/unit/infer/kernels/products/test_products.py

qemu-aarch64 (Debian: qemu-user) runs a program of a few instructions that obeys this process: it makes system calls and
calls kernels. At a kernel's first access to a page the program reports its address, and this process sends its own
memory at this address; what the kernel changed is copied back after the call.
"""

import ctypes
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import emulated_arm64
import llvmlite.binding as llvm
import numpy as np

FEATURES = f"{emulated_arm64.FEATURES},+i8mm"
_PROGRAM_AT, _CODE, _CHUNK = 0x400000, 0x10000000, 1 << 16
_CALL, _RETURN = -1, -2  # orders beside the numbers of system calls
_MMAP, _MUNMAP, _PREAD, _PWRITE = 222, 215, 67, 68
# An order is 64 bytes: what, six arguments. A reply is 16: 0 and a result, or 1 and the address that a kernel lacks;
# then orders are obeyed in the signal's handler until _RETURN. llvmlite has no assembler of aarch64: words, then their
# assembly. The handler's 32 bytes, `action`, follow.
_PROGRAM = """
start:
  10000801 adr x1, action
  10000242 adr x2, lacking
  f9000022 str x2, [x1]
  d2800082 mov x2, #4
  f2a88002 movk x2, #17408, lsl #16
  f9000422 str x2, [x1, #8]
  10000162 adr x2, restore
  f9000822 str x2, [x1, #16]
  d2800160 mov x0, #11
  d2800002 mov x2, #0
  d2800103 mov x3, #8
  d28010c8 mov x8, #134
  d4000001 svc #0
  9400000d bl obey
end:
  d2800000 mov x0, #0
  d2800ba8 mov x8, #93
  d4000001 svc #0
restore:
  d2801168 mov x8, #139
  d4000001 svc #0
lacking:
  a9bf7bfd stp x29, x30, [sp, #-16]!
  d2800020 mov x0, #1
  f9400821 ldr x1, [x1, #16]
  94000020 bl reply
  94000003 bl obey
  a8c17bfd ldp x29, x30, [sp], #16
  d65f03c0 ret
obey:
  a9ba7bfd stp x29, x30, [sp, #-96]!
next:
  d2800000 mov x0, #0
  910043e1 add x1, sp, #16
  d2800802 mov x2, #64
  d28007e8 mov x8, #63
  d4000001 svc #0
  f101001f cmp x0, #64
  54fffda1 b.ne end
  f9400be9 ldr x9, [sp, #16]
  b100093f cmn x9, #2
  54000200 b.eq done
  b100053f cmn x9, #1
  540000e0 b.eq kernel
  aa0903e8 mov x8, x9
  a94187e0 ldp x0, x1, [sp, #24]
  a9428fe2 ldp x2, x3, [sp, #40]
  a94397e4 ldp x4, x5, [sp, #56]
  d4000001 svc #0
  14000004 b answer
kernel:
  a94183e9 ldp x9, x0, [sp, #24]
  a9428be1 ldp x1, x2, [sp, #40]
  d63f0120 blr x9
answer:
  aa0003e1 mov x1, x0
  d2800000 mov x0, #0
  94000004 bl reply
  17ffffe8 b next
done:
  a8c67bfd ldp x29, x30, [sp], #96
  d65f03c0 ret
reply:
  a9be07e0 stp x0, x1, [sp, #-32]!
  f9000bfe str x30, [sp, #16]
  d2800020 mov x0, #1
  910003e1 mov x1, sp
  d2800202 mov x2, #16
  d2800808 mov x8, #64
  d4000001 svc #0
  f9400bfe ldr x30, [sp, #16]
  910083ff add sp, sp, #32
  d65f03c0 ret
"""


def missing() -> str:
    """Why this machine cannot emulate; empty if it can."""
    if shutil.which("qemu-aarch64") is None:
        return "no emulator of aarch64 with i8mm: apt install qemu-user"
    return "" if Path("/proc/self/maps").exists() else "the emulator's memory needs /proc/self/maps"


def _program() -> bytes:
    """_PROGRAM as an ELF executable of one segment, which begins with its first instruction."""
    words = [int(line.split()[0], 16) for line in _PROGRAM.splitlines() if line.startswith("  ")]
    image = struct.pack(f"<{len(words)}I", *words) + bytes(32)
    n = len(image)
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 2, 183, 1, _PROGRAM_AT, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    head += struct.pack("<IIQQQQQQ", 1, 7, 4096, _PROGRAM_AT, _PROGRAM_AT, n, n, 4096)
    return head.ljust(4096, b"\0") + image


def _mapped(process: int | str) -> list[tuple[int, int]]:
    lines = Path(f"/proc/{process}/maps").read_text().splitlines()
    places = (line.split(" ", 1)[0].split("-") for line in lines if "[vsyscall]" not in line)
    return [(int(first, 16), int(last, 16)) for first, last in places]


class Emulator:
    """One aarch64 processor with i8mm; stands in for emulated_arm64.Emulator."""

    def __init__(self) -> None:
        self._file = os.memfd_create("emulated")
        while True:
            self._start()
            # addresses are the same in both processes, so their memory must not meet
            mine, others = _mapped("self"), _mapped(self._process.pid)
            if not any(a < last and first < b for a, b in mine for first, last in others):
                break
            self._process.kill()
            self._process.wait()
        self._end, self._known = _CODE, {}
        module = llvm.parse_assembly(f'target triple = "{emulated_arm64.TRIPLE}"\n{emulated_arm64.RUNTIME}')
        self._known = self.load(emulated_arm64.target(FEATURES).emit_object(module))

    def _start(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder, "program")
            program.write_bytes(_program())
            program.chmod(0o700)
            self._process = subprocess.Popen(
                ["qemu-aarch64", "-cpu", "max", str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                pass_fds=[self._file],
            )  # fmt: skip
            self._order(_PREAD, self._file, _PROGRAM_AT, 0, 0)  # returns when the program runs

    def _tell(self, what: int, *arguments: int) -> None:
        words = [v & (1 << 64) - 1 for v in (what, *arguments)]
        assert self._process.stdin
        self._process.stdin.write(struct.pack("<8Q", *words, *[0] * (8 - len(words))))
        self._process.stdin.flush()

    def _hear(self) -> tuple[int, int]:
        assert self._process.stdout
        reply = self._process.stdout.read(16)
        assert len(reply) == 16, f"qemu-aarch64 ended with status {self._process.wait()}"
        kind, value = struct.unpack("<Qq", reply)
        return kind, value

    def _order(self, what: int, *arguments: int) -> int:
        self._tell(what, *arguments)
        kind, value = self._hear()
        assert kind == 0 and value >= 0, f"order {what} {[hex(v) for v in arguments]}: {kind}, {value}"
        return value

    def _give(self, address: int, content: bytes) -> None:
        """Map memory at an address, a multiple of 4096, with this content."""
        everything, fixed_private_anonymous = 7, 0x32
        self._order(_MMAP, address, len(content), everything, fixed_private_anonymous, -1, 0)
        os.pwrite(self._file, content, 0)
        assert self._order(_PREAD, self._file, address, len(content), 0) == len(content)

    def load(self, code: bytes) -> dict[str, int]:
        """Link an object file into the memory; return the addresses of the symbols that it defines."""
        image, defined = emulated_arm64.link(code, self._end, self._known)
        image += bytes(-len(image) % 4096)
        self._give(self._end, bytes(image))
        self._end += len(image)
        return defined

    def call(self, address: int, *arguments: int) -> None:
        sent: dict[int, bytes] = {}
        self._tell(_CALL, address, *arguments)
        while (reply := self._hear())[0]:
            first, content = self._memory_at(reply[1], sent)
            self._give(first, content)
            sent[first] = content
            self._tell(_RETURN)
        for first, before in sent.items():
            self._order(_PWRITE, self._file, first, len(before), 0)
            after = os.pread(self._file, len(before), 0)
            if after != before:
                old, new = np.frombuffer(before, np.uint8), np.frombuffer(after, np.uint8)
                changed = np.flatnonzero(old != new)
                np.ctypeslib.as_array((ctypes.c_uint8 * len(before)).from_address(first))[changed] = new[changed]
            self._order(_MUNMAP, first, len(before))

    @staticmethod
    def _memory_at(address: int, sent: dict[int, bytes]) -> tuple[int, bytes]:
        """This process's memory around an address, where nothing was sent yet: where it begins, its bytes."""
        for first, last in _mapped("self"):
            if first <= address < last:
                chunk = address // _CHUNK * _CHUNK
                first, last = max(first, chunk), min(last, chunk + _CHUNK)
                first = max([first, *(a + len(c) for a, c in sent.items() if a + len(c) <= address)])
                last = min([last, *(a for a in sent if a > address)])
                return first, ctypes.string_at(first, last - first)
        raise AssertionError(f"a kernel reads or writes {address:#x}, which is not mapped")


def install() -> None:
    """Switch to aarch64 kernels with i8mm. Call it before importing hybrid.infer.kernels."""
    from hybrid.infer.kernels.emit import isa

    emulated_arm64.install(isa.NEON_I8MM, FEATURES, Emulator)


def pytest_configure() -> Any:
    assert not missing(), missing()
    install()
