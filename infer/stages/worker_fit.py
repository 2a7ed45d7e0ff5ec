"""Whether a worker may join a cluster: it needs the same program, the same model file, and a code path that gives the
same bits.

Checked on every worker when a run begins, and on every worker that joins later.
"""

import hashlib
import os
import platform
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from hybrid.quant.ggml.errors import ClusterError, HybridError, shown
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.split import open_gguf
from hybrid.quant.ggml.types import GGMLType

if TYPE_CHECKING:
    from ..loading.options import LoadOptions

MODELS = "HYBRID_MODELS"  # environment variable of a worker: folders of its own copies, separated as in PATH
SAMPLE = 4096  # bytes at either end of a tensor that are hashed


@dataclass(frozen=True)
class WorkerFacts:
    """The facts of a worker's process that decide whether it may join.

    bf16  whether BF16 weights are multiplied by vdpbf16ps, the one instruction whose results differ in their bits
    """

    host: str
    version: str
    path: str
    bf16: bool

    @classmethod
    def here(cls) -> "WorkerFacts":
        """The facts of this process."""
        from ..kernels.emit.isa import host

        return cls(platform.node(), program_version(), host().name, host().bf16)


def program_version() -> str:
    """The version of this package, or "missing"."""
    try:
        return version("hybrid-lm")
    except PackageNotFoundError:
        return "missing"


@dataclass(frozen=True)
class FileAsked:
    """A GGUF file that workers must open: its path at the client, and its `identity`."""

    path: Path
    identity: str

    @classmethod
    def of(cls, path: Path) -> "FileAsked":
        """Opens the file to compute its identity."""
        with open_gguf(path) as file:
            return cls(path.resolve(), identity(file))


@dataclass(frozen=True)
class ModelAsked:
    """The model that workers must hold.

    adapters  LoRA files with their scales
    options   how to load it; n_threads = 0: as many threads as Dask counts for the worker (local:N: 1)
    bits      whether vdpbf16ps changes results
    """

    file: FileAsked
    adapters: tuple[tuple[FileAsked, float], ...]
    options: "LoadOptions"
    bits: bool

    @classmethod
    def of(cls, path: Path, options: "LoadOptions") -> "ModelAsked":
        """Opens the files. options: where the length of the context matters, n_ctx is the same number for all workers,
        not 0."""
        with open_gguf(path) as file:
            bits = not options.exact and _has_bf16(file)
        given = (one if isinstance(one, tuple) else (one, 1.0) for one in options.lora)
        adapters = tuple((FileAsked.of(Path(name)), scale) for name, scale in given)
        return cls(FileAsked.of(path), adapters, replace(options, lora=()), bits)

    def found(self) -> "tuple[Path, LoadOptions]":
        """This machine's copy of the model, and the options with its copies of the adapters. Raises ClusterError as
        `find`."""
        lora = tuple((str(find(file)), scale) for file, scale in self.adapters)
        return find(self.file), replace(self.options, lora=lora)


def _has_bf16(file: GGUFFile) -> bool:
    return any(t.type is GGMLType.BF16 and len(t.shape) > 1 for t in file.tensors.values())


def identity(file: GGUFFile) -> str:
    """A hash of a model's metadata, its tensors' names, types, shapes, and both ends of each tensor's bytes.

    Hashing all bytes would take too long: every worker would read a file of 200 GB before the first answer.
    """
    digest = hashlib.sha256()
    for part in file.parts:
        for key in part.metadata:
            digest.update(part.pair(key))
    for t in file.tensors.values():
        digest.update(f"{t.name} {t.type} {t.shape};".encode())
        flat = file.raw(t.name).reshape(-1)
        digest.update(flat[:SAMPLE].tobytes())
        digest.update(flat[-SAMPLE:].tobytes())
    return digest.hexdigest()[:32]


def find(asked: FileAsked, folders: Iterable[str] | None = None) -> Path:
    """This machine's copy of a file: at the client's path, or in a folder of HYBRID_MODELS (same name, name
    IDENTITY.gguf, or any name). Raises ClusterError if no file has the client's identity.

    folders: replace the folders of HYBRID_MODELS
    """
    other: list[Path] = []
    for path in _places(asked, os.environ.get(MODELS, "").split(os.pathsep) if folders is None else folders):
        try:
            if FileAsked.of(path).identity == asked.identity:
                return path
        except (HybridError, OSError):
            pass
        other.append(path)
    same_name = [path for path in other if path.name == asked.path.name]
    if same_name:
        raise ClusterError(f"{shown(same_name[0])} is another file there than at the client. Copy the client's there")
    raise ClusterError(
        f"{shown(asked.path)} is not there. Use a shared folder, or name the folder of a copy in {MODELS}"
    )


def _places(asked: FileAsked, folders: Iterable[str]) -> Iterator[Path]:
    given = [Path(folder) for folder in folders if folder]
    named = [folder / name for folder in given for name in (asked.path.name, f"{asked.identity}.gguf")]
    there = [path for folder in given for path in sorted(folder.glob("*.gguf"))]
    return (path for path in dict.fromkeys([asked.path, *named, *there]) if path.is_file())


def misfit(facts: WorkerFacts, client: str, first: WorkerFacts, asked: ModelAsked | None = None) -> str | None:
    """Why a worker cannot work with the client and the first worker; None if it can.

    client: version of the client's program
    """
    if facts.version != client:
        return f"it has hybrid {facts.version}, the client {client}. Install the same version"
    if asked is not None and asked.bits and facts.bf16 != first.bf16:
        return (
            f"its code path is {facts.path}, {first.host} has {first.path}: products of BF16 weights differ in "
            "their bits. Use processors of one kind, exact computation, or a model without BF16 weights"
        )
    return None
