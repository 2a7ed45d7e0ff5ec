"""Whether a worker may join a cluster: the same program, the same model file, and a code path that gives the same bits.

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

MODELS = "HYBRID_MODELS"  # environment of a worker: folders of its own copies, separated as in PATH
SAMPLE = 4096  # bytes of a tensor that count, at either end


@dataclass(frozen=True)
class WorkerFacts:
    """What of a worker's process decides whether it may work with others.

    bf16  whether BF16 weights are multiplied by vdpbf16ps: the one instruction whose results differ in their bits
    """

    host: str
    version: str
    path: str
    bf16: bool

    @classmethod
    def here(cls) -> "WorkerFacts":
        """Those of this process."""
        from ..kernels.emit.isa import host

        return cls(platform.node(), program_version(), host().name, host().bf16)


def program_version() -> str:
    """Of this package."""
    try:
        return version("hybrid-lm")
    except PackageNotFoundError:
        return "missing"


@dataclass(frozen=True)
class FileAsked:
    """A GGUF file that workers are to open, as the client has it: where, and its `identity`."""

    path: Path
    identity: str

    @classmethod
    def of(cls, path: Path) -> "FileAsked":
        """Opens the file."""
        with open_gguf(path) as file:
            return cls(path.resolve(), identity(file))


@dataclass(frozen=True)
class ModelAsked:
    """The model that workers are to hold.

    adapters  of LoRA, with their scales
    options   how it is loaded; n_threads = 0: as many as the worker has threads by Dask's count (local:N: 1)
    bits      whether vdpbf16ps changes what comes out
    """

    file: FileAsked
    adapters: tuple[tuple[FileAsked, float], ...]
    options: "LoadOptions"
    bits: bool

    @classmethod
    def of(cls, path: Path, options: "LoadOptions") -> "ModelAsked":
        """Opens the files. options: with n_ctx as it is to be on every worker, not 0, where a context counts."""
        with open_gguf(path) as file:
            bits = not options.exact and _has_bf16(file)
        given = (one if isinstance(one, tuple) else (one, 1.0) for one in options.lora)
        adapters = tuple((FileAsked.of(Path(name)), scale) for name, scale in given)
        return cls(FileAsked.of(path), adapters, replace(options, lora=()), bits)

    def found(self) -> "tuple[Path, LoadOptions]":
        """This machine's copies, to be loaded. ClusterError: see `find`."""
        lora = tuple((str(find(file)), scale) for file, scale in self.adapters)
        return find(self.file), replace(self.options, lora=lora)


def _has_bf16(file: GGUFFile) -> bool:
    return any(t.type is GGMLType.BF16 and len(t.shape) > 1 for t in file.tensors.values())


def identity(file: GGUFFile) -> str:
    """A hash of a model's metadata, its tensors' names, types, shapes, and both ends of each tensor's bytes.

    Not of all bytes: a file of 200 GB on a shared folder would be read once by every worker before the first answer.
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
    """This machine's copy: at the client's path, or in a folder of HYBRID_MODELS under the same name, the name of its
    hash, or any. ClusterError: there is none, or the file of that name is another one.

    folders: instead of those of the environment
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
    """Why a worker cannot work with the client and with the worker that was there first; None: it can.

    client: the version of the program there
    """
    if facts.version != client:
        return f"it has hybrid {facts.version}, the client {client}. Install the same version"
    if asked is not None and asked.bits and facts.bf16 != first.bf16:
        return (
            f"its code path is {facts.path}, that of {first.host} {first.path}: products of BF16 weights differ in "
            "their bits. Use processors of one kind, exact computation, or a model without BF16 weights"
        )
    return None
