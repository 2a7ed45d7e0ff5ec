"""Machine code on disk: one file per kernel, linked into the process by LLVM's linker, without a compiler.

Files are written completely or not at all, and checked before use, so processes may start at the same time, and a
damaged file only means that a kernel is compiled again. Their folder: cache_folders.py.
"""

import contextlib
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from hybrid.quant.ggml.replacing import Replacement

from .cache_folders import folder, note_kernel_use

_MAGIC = b"hybrid-kernel 2\n"


@dataclass(frozen=True)
class CompiledObject:
    """An object file and the name of the function in it."""

    symbol: str
    code: bytes


def _path(name: str) -> Path | None:
    place = folder()
    return place / f"{name}.bin" if place else None


def read(name: str) -> CompiledObject | None:
    """The kernel of this name, or None if the cache has no complete one."""
    path = _path(name)
    if path is None:
        return None
    try:
        raw = path.read_bytes()
    except OSError:
        return None
    head = len(_MAGIC)
    payload = raw[head + 32 :]
    if raw[:head] != _MAGIC or hashlib.sha256(payload).digest() != raw[head : head + 32]:
        return None
    note_kernel_use(path)
    symbol, _, code = payload.partition(b"\n")
    return CompiledObject(symbol.decode(), code)


def write(name: str, kernel: CompiledObject) -> None:
    """Write a kernel to the cache; does nothing if the cache cannot be written."""
    path = _path(name)
    if path is None:
        return
    payload = kernel.symbol.encode() + b"\n" + kernel.code
    with contextlib.suppress(OSError), Replacement(path, mode=0o600, durable=False) as file:
        file.write(_MAGIC + hashlib.sha256(payload).digest() + payload)


def link(objects: list[CompiledObject]) -> Any:
    """One LLVM engine that owns the code of all objects; None if there are no objects."""
    if not objects:
        return None
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    for item in objects:
        engine.add_object_file(llvm.ObjectFileRef.from_data(item.code))
    engine.finalize_object()
    return engine
