"""One file of a prompt cache on disk: keys and values of a piece of a text, or the states after a text.

    byte  field    type   meaning
       0  magic    8s     b"hybcache"
       8  crc32    u32    of the header from here on and of the tokens
      12  version  u16    1
      14  kind     u8     1: keys and values of positions start .. end; 2: states after `end` tokens, and start = end
      15  flags    u8     1: a boundary; 2: logits follow the states
      16  key      16s    of everything that the numbers depend on: model, adapters, types, code path
      32  before   16s    digest of the text up to `start`: `TextDigest`
      48  after    16s    digest of the text up to `end`
      64  start    u32
      68  end      u32
      72  crc32    u32    of the arrays
      76           u32    0
      80  nbytes   u64    of the arrays
      88  tokens   i32 [end - start]
       .  arrays          one after another as the memory exports them: names, types and shapes follow from the key

All numbers are little endian. The file name follows from the digests. Listing a folder reads only headers and tokens;
arrays are read and checked on demand. A file may be hostile: its size, its checksums and the model must confirm
whatever it says.
"""

import hashlib
import os
import stat
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hybrid.quant.ggml.errors import StateError

from .attention import ArrayLayout
from .picture_tokens import are_known

MAGIC = b"hybcache"
VERSION = 1
PIECE, STATE = 1, 2
SUFFIXES = {PIECE: "kv", STATE: "state"}
DIGEST_BYTES = 16
LONGEST_PIECE = 512  # tokens: pieces end at least at every multiple
UNFINISHED = "unfinished"  # the one file that is being written
_BOUNDARY, _LOGITS = 1, 2
_HEADER = struct.Struct("<8sIHBB16s16s16sIIIIQ")
_CHECKED_FROM = 12  # the first byte that the header's checksum covers

Tokens = npt.NDArray[np.int32]


class TextDigest:
    """Digests of the prefixes of one text, in order of increasing length.

    owner: at most 16 bytes (prefix_tree.py); each owner has other digests of the same text.
    """

    def __init__(self, key: bytes, ids: Tokens, owner: bytes = b"") -> None:
        self._hash = hashlib.blake2b(key, digest_size=DIGEST_BYTES, person=owner)
        self._data = memoryview(np.ascontiguousarray(ids, "<i4").tobytes())
        self._at = 0

    def at(self, n: int) -> bytes:
        """The digest of the first n tokens; n must not decrease between calls."""
        assert self._at <= n
        self._hash.update(self._data[4 * self._at : 4 * n])
        self._at = n
        return self._hash.digest()


@dataclass(frozen=True, eq=False)
class FileHeader:
    """The fields are described above. `used`: time of the last use in seconds, the file's mtime."""

    kind: int
    before: bytes
    after: bytes
    start: int
    end: int
    tokens: Tokens
    boundary: bool = False
    logits: bool = False
    nbytes: int = 0
    crc: int = 0
    used: float = 0.0

    @property
    def name(self) -> str:
        """The file name, with `start` for a piece: pieces with the same end may begin at different positions."""
        place = f"-{self.start}" if self.kind == PIECE else ""
        return f"{self.after.hex()}{place}.{SUFFIXES[self.kind]}"

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return file_size(self.end - self.start, self.nbytes)


def file_size(n_tokens: int, nbytes: int) -> int:
    """Bytes of a file with n_tokens tokens and nbytes bytes of arrays."""
    return _HEADER.size + 4 * n_tokens + nbytes


def layout_bytes(layout: ArrayLayout) -> int:
    """Bytes of all arrays of a layout."""
    return sum(dtype.itemsize * int(np.prod(shape, dtype=np.int64)) for dtype, shape in layout.values())


def write_file(folder: Path, key: bytes, header: FileHeader, arrays: Iterable[np.ndarray]) -> FileHeader:
    """Write a file of `folder`, in which nobody else writes, and return its header with sizes and checksums.

    The file gets its name when it is complete. There is no fsync: checksums detect what a power failure loses or
    damages, and it is made again. After an OSError no file is left.
    """
    path = folder / UNFINISHED
    try:
        with path.open("wb", buffering=0) as file:
            os.lseek(file.fileno(), _HEADER.size + 4 * len(header.tokens), os.SEEK_SET)
            nbytes = crc = 0
            for array in arrays:
                raw = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data
                crc, nbytes = zlib.crc32(raw, crc), nbytes + raw.nbytes
                _write_all(file.fileno(), raw)
            done = replace(header, nbytes=nbytes, crc=crc)
            os.lseek(file.fileno(), 0, os.SEEK_SET)
            _write_all(file.fileno(), memoryview(_encoded(key, done)))
        path.replace(folder / done.name)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return done


def _write_all(fd: int, data: memoryview) -> None:
    """Write all of `data`: one write may end early, where the disk is full or a file may not grow."""
    while data:
        data = data[os.write(fd, data) :]


def _encoded(key: bytes, header: FileHeader) -> bytes:
    flags = _BOUNDARY * header.boundary | _LOGITS * header.logits
    head = _HEADER.pack(
        MAGIC, 0, VERSION, header.kind, flags, key, header.before, header.after, header.start, header.end,
        header.crc, 0, header.nbytes,
    )  # fmt: skip
    data = head[_CHECKED_FROM:] + header.tokens.astype("<i4").tobytes()
    return MAGIC + struct.pack("<I", zlib.crc32(data)) + data


def read_header(path: Path, key: bytes, n_vocab: int) -> FileHeader:
    """The checked header of a file. Raises StateError if it is damaged, OSError if it cannot be read."""
    fd = _opened(path)
    try:
        status = os.fstat(fd)
        data = os.read(fd, _HEADER.size + 4 * LONGEST_PIECE)
    finally:
        os.close(fd)
    if len(data) < _HEADER.size or data[:8] != MAGIC:
        raise _damaged(path, "it is not a file of a prompt cache")
    _, crc, version, kind, flags, of, before, after, start, end, data_crc, zero, nbytes = _HEADER.unpack_from(data)
    if version != VERSION or kind not in SUFFIXES or flags & ~(_BOUNDARY | _LOGITS) or zero:
        raise _damaged(path, "its header has an unknown version or kind")
    n = end - start
    sound = 0 <= n <= LONGEST_PIECE and (n > 0) == (kind == PIECE) and end > 0
    if not sound or status.st_size != file_size(n, nbytes):
        raise _damaged(path, f"its sizes do not fit its {status.st_size} bytes")
    data = data[: _HEADER.size + 4 * n]
    if zlib.crc32(data[_CHECKED_FROM:]) != crc:
        raise _damaged(path, "the checksum of its header differs")
    tokens = np.frombuffer(data, "<i4", offset=_HEADER.size).astype(np.int32)
    header = FileHeader(
        kind, before, after, start, end, tokens, bool(flags & _BOUNDARY), bool(flags & _LOGITS), nbytes, data_crc,
        status.st_mtime,
    )  # fmt: skip
    if of != key or header.name != path.name:
        raise _damaged(path, "it belongs to another model, or was renamed")
    if not are_known(tokens, n_vocab):
        raise _damaged(path, "it holds tokens that are not of this vocabulary")
    return header


def read_arrays(path: Path, header: FileHeader, layout: ArrayLayout) -> Mapping[str, np.ndarray]:
    """The arrays of a file by name, read-only. Raises StateError if they are damaged, or OSError."""
    if layout_bytes(layout) != header.nbytes:
        raise _damaged(path, f"it holds {header.nbytes} bytes, this model needs {layout_bytes(layout)}")
    data = np.zeros(header.nbytes, np.uint8)
    with os.fdopen(_opened(path), "rb") as file:
        file.seek(header.size - header.nbytes)
        n = file.readinto(data.data)
    if n < header.nbytes or zlib.crc32(data.data) != header.crc:
        raise _damaged(path, "the checksum of its arrays differs")
    data.flags.writeable = False
    arrays: dict[str, Any] = {}
    at = 0
    for name, (dtype, shape) in layout.items():
        size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        arrays[name] = data[at : at + size].view(dtype.newbyteorder("<")).reshape(shape)
        at += size
    return arrays


def _opened(path: Path) -> int:
    """A descriptor of a regular file; links are not followed."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _damaged(path, "it is not a regular file")
    return fd


def _damaged(path: Path, what: str) -> StateError:
    return StateError(f"{path.name} is damaged: {what}.")
