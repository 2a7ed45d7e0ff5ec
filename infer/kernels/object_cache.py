"""Machine code on disk: one file per kernel, linked into the process by LLVM's linker, no compiler involved.

Files are written whole or not at all, and are checked before they are used, so processes may start at the same time and
a damaged file only means that a kernel is compiled again. Which folder they are in: cache_folders.py.
"""

import ctypes
import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from .cache_folders import folder

_MAGIC = b"hybrid-kernel 1\n"


@dataclass(frozen=True)
class CompiledObject:
    """An object file. `declared` names what it refers to outside itself."""

    symbol: str
    declared: tuple[str, ...]
    code: bytes


def _path(name: str) -> Path | None:
    place = folder()
    return place / f"{name}.bin" if place else None


def read(name: str) -> CompiledObject | None:
    """The kernel of this name, or None when the cache does not have it whole."""
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
    meta, _, code = payload.partition(b"\n")
    values = json.loads(meta)
    return CompiledObject(values["symbol"], tuple(values["declared"]), code)


def write(name: str, made: CompiledObject) -> None:
    """Keep a kernel; a cache that cannot be written is no error."""
    path = _path(name)
    if path is None:
        return
    payload = json.dumps({"symbol": made.symbol, "declared": made.declared}).encode() + b"\n" + made.code
    temporary = ""
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{name}-", delete=False) as file:
            temporary = file.name
            file.write(_MAGIC + hashlib.sha256(payload).digest() + payload)
        Path(temporary).replace(path)
    except OSError:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


@ctypes.CFUNCTYPE(None)
def _unreachable() -> None:
    os.abort()


def link(objects: list[CompiledObject]) -> Any:
    """One engine with all the objects' code, or None when there are none. It owns the code."""
    if not objects:
        return None
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    # numba's wrappers refer to its runtime and Python's for exceptions, which kernels never raise
    stub = ctypes.cast(_unreachable, ctypes.c_void_p).value
    for name in {d for made in objects for d in made.declared}:
        if name.startswith(("numba_", "NRT_", "Py")) and not llvm.address_of_symbol(name):
            llvm.add_symbol(name, stub)
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    for made in objects:
        engine.add_object_file(llvm.ObjectFileRef.from_data(made.code))
    engine.finalize_object()
    return engine
