"""Reads pytorch_model.bin: an uncompressed zip archive of a pickle and one member per storage.

Members are mapped to byte ranges of the file, so that tensors are read as in safetensors.
"""

import math
import struct
import zipfile
import zlib
from pathlib import PurePosixPath
from typing import Any

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError, shown

from .tensor import OTHER_SIZES, DataFile, Dtype, StoredTensor
from .torch_pickle import PickleMachine, View

_MAX_PICKLE = 256 << 20
_LOCAL = struct.Struct("<4s22xHH")  # signature; lengths of name and extra field
_LEGACY = "is in torch's format from before 2020. Load it with torch and save it again"


def read_torch(file: DataFile) -> dict[str, StoredTensor]:
    """The tensors of a file by name. CheckpointError: damaged, or not just tensors."""
    _refuse_legacy(file)
    try:
        with zipfile.ZipFile(file.path) as archive:
            return _read(file, archive)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, struct.error):
        raise CheckpointError(
            f"{file.where} is cut off or damaged: it is not a sound zip archive. Download it again."
        ) from None
    except OSError as error:
        raise CheckpointError(f"{file.where} cannot be read: {error.strerror or error}.") from None


def _refuse_legacy(file: DataFile) -> None:
    head = file.read(0, min(file.nbytes, 512))
    if head[257:262] == b"ustar" or (head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04")):
        raise UnsupportedError(f"{file.where} {_LEGACY} (torch.save), or use its safetensors version.")
    if head.startswith(b"version https://git-lfs"):
        raise CheckpointError(f"{file.where} is a git-lfs pointer, not the file. Run `git lfs pull` in its folder.")


def _read(file: DataFile, archive: zipfile.ZipFile) -> dict[str, StoredTensor]:
    members = {info.filename: info for info in archive.infolist()}
    pickles = [name for name in members if PurePosixPath(name).name == "data.pkl" and name.count("/") <= 1]
    if len(pickles) != 1:
        raise CheckpointError(f"{file.where} is not a torch checkpoint: it has no data.pkl. Download it again.")
    root = pickles[0].removesuffix("data.pkl")
    order = members.get(f"{root}byteorder")
    if order is not None and _content(file, archive, order, 64) != b"little":
        raise UnsupportedError(f"{file.where} was written on a big-endian machine. Convert it there to safetensors.")
    state = PickleMachine(file.where).run(_content(file, archive, members[pickles[0]], _MAX_PICKLE))
    if isinstance(state, dict) and isinstance(state.get("state_dict"), dict):
        state = state["state_dict"]
    if not isinstance(state, dict):
        raise CheckpointError(f"{file.where} holds no dictionary of tensors. Is it the weights of a model?")
    tensors: dict[str, StoredTensor] = {}
    for name, view in state.items():
        if not isinstance(name, str) or not isinstance(view, View):
            raise CheckpointError(
                f"{file.where}: entry {shown(name)} is not a tensor but {type(view).__name__}. "
                "Save the model's state_dict alone."
            )
        tensors[name] = _tensor(file, members, root, name, view)
    return tensors


def _content(file: DataFile, archive: zipfile.ZipFile, info: zipfile.ZipInfo, limit: int) -> bytes:
    if info.file_size > limit:
        raise CheckpointError(f"{file.where}: {shown(info.filename)} has {info.file_size} bytes. Download it again.")
    return archive.read(info)


def _tensor(file: DataFile, members: dict[str, zipfile.ZipInfo], root: str, name: str, view: View) -> StoredTensor:
    info = members.get(f"{root}data/{view.storage.key}")
    if info is None:
        raise CheckpointError(f"{file.where} is damaged: the data of {shown(name)} is missing. Download it again.")
    dtype = view.storage.dtype
    size = dtype.itemsize if isinstance(dtype, Dtype) else OTHER_SIZES[dtype]
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
        raise UnsupportedError(f"{file.where}: {shown(info.filename)} is compressed, which torch does not do.")
    start = _data_offset(file, info)
    if view.storage.numel * size > info.file_size or start + info.file_size > file.nbytes:
        raise CheckpointError(
            f"{file.where} is damaged: the data of {shown(name)} is cut off at {info.file_size} bytes, "
            f"{view.storage.numel * size} were expected. Download it again."
        )
    strides = None if _contiguous(view) else view.strides
    return StoredTensor(name, dtype, view.shape, file, start + view.offset * size, strides)


def _data_offset(file: DataFile, info: zipfile.ZipInfo) -> int:
    """The offset of a member's bytes: after its local header, whose extra field (torch's alignment) differs from the
    directory's."""
    if info.header_offset + 30 > file.nbytes:
        raise zipfile.BadZipFile
    n_name: int
    n_extra: int
    signature, n_name, n_extra = _LOCAL.unpack(file.read(info.header_offset, 30))
    if signature != b"PK\x03\x04":
        raise zipfile.BadZipFile
    return info.header_offset + 30 + n_name + n_extra


def _contiguous(view: View) -> bool:
    expected: list[Any] = [math.prod(view.shape[i + 1 :]) for i in range(len(view.shape))]
    return all(n == 1 or a == b for n, a, b in zip(view.shape, view.strides, expected, strict=True))
