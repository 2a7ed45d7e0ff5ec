"""Files that workers read and write in a shared folder, and checks that they see the same ones.

Each worker opens a source once, and compares it with the client's: the same GGUF file, or the same checkpoint.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hybrid.infer.stages.worker_fit import SAMPLE, FileAsked, find
from hybrid.pipeline.checkpoint_source import CheckpointSource
from hybrid.quant import GGUFSource, Source
from hybrid.quant.ggml.errors import ClusterError, HybridError, shown
from hybrid.quant.ggml.file_ranges import not_seen

from .connection import ClusterConnection


@dataclass(frozen=True)
class FolderAsked:
    """The client's checkpoint that workers shall read: its folder, or a file in it, and its `identity`."""

    path: Path
    identity: str

    @classmethod
    def of(cls, path: Path) -> "FolderAsked":
        """Makes one; reads the first and last bytes of the checkpoint's files."""
        return cls(path.resolve(), folder_identity(path))

    def found(self) -> Path:
        """The same path on this machine. ClusterError: it is missing, or differs."""
        if not self.path.exists():
            raise ClusterError(str(not_seen(self.path)))
        if folder_identity(self.path) != self.identity:
            raise ClusterError(f"{shown(self.path)} is another checkpoint there than at the client. Share one.")
        return self.path


def folder_identity(path: Path) -> str:
    """A hash of the names and sizes of a folder's files and of both ends of each."""
    digest = hashlib.sha256()
    folder = path if path.is_dir() else path.parent
    for file in sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith(".")):
        with file.open("rb") as f:
            size = file.stat().st_size
            digest.update(f"{file.name} {size};".encode())
            digest.update(f.read(SAMPLE))
            f.seek(max(0, size - SAMPLE))
            digest.update(f.read())
    return digest.hexdigest()[:32]


SourceAsked = FileAsked | FolderAsked


def asked_of(source: Path | CheckpointSource) -> SourceAsked:
    """A description of the source for workers: a GGUF file, or a checkpoint."""
    return FileAsked.of(source) if isinstance(source, Path) else FolderAsked.of(source.path)


class OpenSource:
    """A source that this process has opened."""

    def __init__(self, asked: SourceAsked) -> None:
        self.source: Source
        if isinstance(asked, FileAsked):
            self.source = GGUFSource(find(asked))
        else:
            self.source = CheckpointSource(asked.found())

    def close(self) -> None:
        if isinstance(self.source, GGUFSource):
            self.source.close()


def check_everywhere(connection: ClusterConnection, asked: SourceAsked | None, files: Iterable[Path]) -> None:
    """ClusterError names a worker that misses one of the files or has another source, and the path."""
    wanted = list(files)
    answers = connection.client.run(_seen, asked, wanted, on_error="return")
    for address, answer in answers.items():
        if isinstance(answer, HybridError):
            raise ClusterError(f"{connection.labels().get(address, address)}: {answer}")
        if isinstance(answer, Exception) and not isinstance(answer, OSError):  # OSError: the worker has gone
            raise answer


def _seen(asked: SourceAsked | None, files: Iterable[Path]) -> None:
    """The check on one worker."""
    if isinstance(asked, FileAsked):
        find(asked)
    elif asked is not None:
        asked.found()
    for path in files:
        if not path.exists():
            raise not_seen(path.parent)
