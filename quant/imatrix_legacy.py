"""llama-imatrix's older file format (`.dat`), little-endian:

    i32 entries, then for each: i32 length, name, i32 calls, i32 values, f32 [values]
    i32 chunks, i32 length, name of the text        (not in the oldest files)

Values are mean squares of inputs times `calls`, the number of chunks in which the matrix had inputs. The format does
not store the number of experts: an entry counts as one matrix until it is compared with its tensor.
"""

import struct
from pathlib import Path

import numpy as np

from .ggml.errors import FormatError, Remedy, shown
from .ggml.replacing import failures_named, replace_file
from .imatrix_data import ImatrixData, InputSums

# Tokens of a chunk, which the file does not say: llama-imatrix's default, for the weight in a merger.
CHUNK_SIZE = 512


def read_legacy(path: Path) -> ImatrixData:
    """Reads a file. FormatError: truncated, or another format."""
    raw = path.read_bytes()
    at = 0

    def take(n: int) -> bytes:
        nonlocal at
        if n < 0 or at + n > len(raw):
            raise FormatError(
                f"{shown(path)} is not an importance matrix (neither GGUF nor the .dat that llama-imatrix wrote "
                "before), or is cut off. Copy it again.",
                remedy=Remedy.MAKE_IMATRIX,
            )
        at += n
        return raw[at - n : at]

    def number() -> int:
        return int(struct.unpack("<i", take(4))[0])

    imatrix = ImatrixData(chunk_size=CHUNK_SIZE, path=path)
    for _ in range(number()):
        name = take(number()).decode("utf-8", "replace")
        calls = number()
        values = np.frombuffer(take(4 * number()), "<f4").astype(np.float32)
        if calls < 1 or not values.size or not np.isfinite(values).all() or values.min() < 0:
            raise FormatError(
                f"{shown(path)}: not all values of {shown(name)} are finite and positive. Collect them again."
            )
        counts = np.array([calls * CHUNK_SIZE], np.float32)
        imatrix.entries[name] = InputSums(values[None] * np.float32(CHUNK_SIZE), counts)
    if at < len(raw):
        imatrix.chunk_count = max(0, number())
        if at < len(raw):
            imatrix.datasets = [take(number()).decode("utf-8", "replace")]
    if not imatrix.entries:
        raise FormatError(f"{shown(path)} holds no importance of any tensor.", remedy=Remedy.MAKE_IMATRIX)
    return imatrix


def write_legacy(imatrix: ImatrixData, file: Path) -> None:
    """Writes `file`, which appears only when complete. HybridError: it cannot be written."""
    parts = [struct.pack("<i", len(imatrix.entries))]
    for name, entry in sorted(imatrix.entries.items()):
        calls = -(-int(entry.counts.max()) // max(1, imatrix.chunk_size))
        values = (entry.importance() * np.float32(calls)).astype("<f4")
        text = name.encode()
        parts += [struct.pack("<i", len(text)), text, struct.pack("<ii", calls, values.size), values.tobytes()]
    text = (imatrix.datasets or [""])[-1].encode()
    parts.append(struct.pack("<ii", imatrix.chunk_count, len(text)) + text)
    with failures_named(file):
        replace_file(file, parts)
