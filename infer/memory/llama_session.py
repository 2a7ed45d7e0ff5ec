"""The layout of the session files of llama-completion --prompt-cache and llama_state_seq_save_file.

    ggsn, version 10 (a whole context)        ggsq, version 3 (one sequence)
      u32 magic, version                        u32 magic, version
      u32 n; i32 tokens [n]                     u32 n; i32 tokens [n]
      string architecture (u32 length, bytes)
      keys and values, if any layer has them; then recurrent states, if any layer has them

    keys and values                           recurrent states
      u32 streams, 1                            u32 cells: sequences, 1
      u32 cells: positions                      per cell i32 position, u32 m, i32 sequence ids [m]
      per cell i32 position, u32 m,             u32 0, u32 layers of the model
        i32 sequence ids [m]                    per recurrent layer i32 type, u64 bytes, row
      u32 transposed, u32 layers with them        [channel][d_conv - 1], oldest input first
      per layer i32 type, u64 bytes of a cell,  per recurrent layer i32 type, u64 bytes, row
        keys [cell][n_kv * d_head]                [head * lane][depth]
      per layer the same of values, or if transposed
        i32 type, u32 bytes of a value, u32 n_kv * d_head,
        values [n_kv * d_head][cell]

A whole context lists the ids of a recurrent cell, a single sequence does not. llama-completion saves its text with one
token that the memory has not seen and computes that first when it goes on; elsewhere all tokens are in memory. Nothing
says which model wrote the file but its architecture and these sizes, and there is no checksum. Logits are not in it.
Positions may have gaps, where tokens were removed from the middle of a sequence.
Keys have the same layout as in this program: after RoPE, in the order of the rows of attn_k.weight. So both directions
copy bits, or codes (llama_blocks.py). Nothing says whether quantized keys and values are rotated: the reader must know.
Layout: llama.cpp 0c1e57098 (llama-context.cpp, llama-kv-cache.cpp, llama-memory-recurrent.cpp).

A file from outside is hostile until checked: every number is compared with what the model needs and the file has.
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hybrid.quant.ggml.errors import Remedy, StateError, UsageError
from hybrid.quant.ggml.sources import check_source
from hybrid.quant.ggml.types import GGMLType

from ..kernels.attention.kv import KV_TYPES, KVType
from .llama_blocks import LEAST_BLOCK, blocks_of, llama_basis, moved, parts_of, row_bytes

if TYPE_CHECKING:
    from . import HybridMemory

GGSN, GGSQ = 0x6767736E, 0x67677371
VERSIONS = {GGSN: 10, GGSQ: 3}
SERVER_VERSION = 1
_KV_TYPES = {GGMLType[name.upper()]: name for name in KV_TYPES}

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class LlamaSession:
    """A text and its memory.

    tokens     i32 [n], of which the memory has seen the first `n_past`
    arrays     as `HybridMemory.layout(n_past)`
    positions  i64 [n_past], with gaps where some were removed
    """

    tokens: np.ndarray
    n_past: int
    arrays: Arrays
    positions: np.ndarray


def tokens_in(path: str | os.PathLike[str]) -> int:
    """How many tokens a session file claims to hold (its magic is not checked); 0: unreadable, or too small."""
    try:
        check_source(Path(path), "a state file")
        with Path(path).open("rb") as file:
            head = file.read(12)
            n = struct.unpack("<3I", head)[2] if len(head) == 12 else 0
            return n if 4 * n <= os.fstat(file.fileno()).st_size else 0
    except OSError:
        return 0  # a later read will report the error


def context_for(path: str | os.PathLike[str]) -> int:
    """The context that a session file claims to need, as far as the file tells it without its model."""
    n = tokens_in(path)
    try:
        r = _Reader(Path(path).read_bytes() if n else b"", Path(path).name)
        magic, _ = r.u32("magic"), r.u32("version")
        r.array(np.dtype("<i4"), (r.u32("number of tokens"),), "tokens")
        if magic == GGSN:
            r.bytes(r.u32("length of the architecture"), "architecture")
        r.expect(r.u32("number of streams"), 1, "streams")
        return max(n, int(r.positions(r.u32("number of positions"), True).max(initial=-1)) + 1)
    except (OSError, StateError):
        return n  # no positions (only recurrent layers), or a later read will report the error


# --- reading ---
def read_session(
    data: bytes, name: str, arch: str, n_layer: int, memory: "HybridMemory", rotated: bool | None = None
) -> LlamaSession:
    """The contents of a file, checked against an architecture of `n_layer` layers and its memory.

    rotated: whether the program that wrote it rotates quantized keys and values; None: unknown.
    """
    r = _Reader(data, name)
    magic, tokens = _read_head(r, arch)
    arrays: Arrays = {}
    positions = _read_kv(r, memory, arrays, rotated) if memory.attention.pairs else None
    if memory.recurrent.specs:
        last = _read_recurrent(r, memory, n_layer, magic == GGSN, arrays)
        if positions is None:
            # no more tokens than the file has: a longer text is refused below
            positions = np.arange(min(last, len(tokens)) + 1)
        elif not len(positions) or positions[-1] != last:
            at = f"position {positions[-1]}" if len(positions) else "nothing"
            raise r.wrong(f"attention goes to {at}, recurrent layers to position {last}")
    if r.left:
        raise r.wrong(f"{r.left} bytes are left after its memory")
    assert positions is not None
    _check_size(r, tokens, positions, memory.n_ctx)
    for key, array in arrays.items():
        if not _finite(array):
            raise r.wrong(f"'{key}' holds values that are not finite")
    return LlamaSession(tokens, len(positions), arrays, positions)


def _finite(array: np.ndarray) -> bool:
    """Whether all numbers are finite; bf16 is in u16, and codes are any."""
    if array.dtype == np.uint16:
        return bool((array & 0x7F80 != 0x7F80).all())
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def _read_head(r: "_Reader", arch: str) -> tuple[int, np.ndarray]:
    """The file's magic number and the tokens of its text."""
    magic, version = r.u32("magic"), r.u32("version")
    if magic not in VERSIONS:
        raise StateError(f"{r.name} is not a session file of llama.cpp (magic {magic:#010x}).")
    if version != VERSIONS[magic]:
        raise StateError(f"{r.name}: session format {version}, this version reads {VERSIONS[magic]}.")
    tokens = r.array(np.dtype("<i4"), (r.u32("number of tokens"),), "tokens")
    if magic == GGSQ and len(tokens) and tokens[0] == -1:
        tokens = _unpacked(r, tokens)
    if magic == GGSN:
        saved_by = r.bytes(r.u32("length of the architecture"), "architecture").decode("utf-8", "replace")
        if saved_by != arch:
            raise StateError(f"{r.name} was saved by a '{saved_by[:40]}' model, this one is '{arch}'. Use that model.")
    return magic, tokens


def _check_size(r: "_Reader", tokens: np.ndarray, positions: np.ndarray, n_ctx: int) -> None:
    """Raises StateError unless text and memory belong together and fit the context."""
    n = len(positions)
    if not 0 < n <= len(tokens):
        raise r.wrong(f"its memory has {n} positions, its text {len(tokens)} tokens")
    if len(tokens) > n_ctx:
        raise StateError(f"{r.name} holds {len(tokens)} tokens, the context is {n_ctx}.", remedy=Remedy.LARGER_CONTEXT)
    if positions[-1] >= n_ctx:
        raise StateError(
            f"{r.name} goes to position {positions[-1]}, the context is {n_ctx}.", remedy=Remedy.LARGER_CONTEXT
        )


def _unpacked(r: "_Reader", packed: np.ndarray) -> np.ndarray:
    """The tokens of a slot of llama-server, whose token list is -1, a version, n, tokens [n], the number of images."""
    if len(packed) < 4 or packed[1] != SERVER_VERSION:
        raise r.wrong(f"its tokens are packed by llama-server in a form other than {SERVER_VERSION}")
    n = int(packed[2])
    if not 0 <= n <= len(packed) - 4:
        raise r.wrong(f"it claims {n} tokens, {len(packed) - 4} are there")
    if packed[3 + n] or len(packed) != n + 4:
        raise StateError(f"{r.name} holds images or sounds: only text can be imported.")
    return packed[3 : 3 + n]


class _Reader:
    """Reads numbers and arrays of a file in order."""

    def __init__(self, data: bytes, name: str) -> None:
        self._data, self.name, self._at = data, name, 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def wrong(self, what: str) -> StateError:
        return StateError(f"{self.name} does not fit this model, or is damaged: {what}.")

    def bytes(self, n: int, what: str) -> bytes:
        if n > self.left:
            raise StateError(f"{self.name} is cut off: {what} takes {n} bytes, {self.left} are left.")
        self._at += n
        return self._data[self._at - n : self._at]

    def _number(self, code: str, what: str) -> int:
        return int(struct.unpack(code, self.bytes(struct.calcsize(code), what))[0])

    def u32(self, what: str) -> int:
        return self._number("<I", what)

    def i32(self, what: str) -> int:
        return self._number("<i", what)

    def u64(self, what: str) -> int:
        return self._number("<Q", what)

    def expect(self, stored: int, wanted: int, what: str) -> None:
        if stored != wanted:
            raise self.wrong(f"{what} is {stored}, expected {wanted}")

    def array(self, dtype: np.dtype, shape: tuple[int, ...], what: str) -> np.ndarray:
        nbytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
        return np.frombuffer(self.bytes(nbytes, what), dtype).reshape(shape)

    def kind(self, what: str) -> GGMLType:
        number = self.i32(f"type of {what}")
        try:
            return GGMLType(number)
        except ValueError:
            raise self.wrong(f"type of {what} is {number}, which is not one of ggml's") from None

    def positions(self, n: int, with_ids: bool) -> np.ndarray:
        """The positions, i32 [n]; raises StateError unless all are of one sequence."""
        ids = [("id", "<i4")] if with_ids else []
        cells = self.array(np.dtype([("position", "<i4"), ("n_ids", "<u4"), *ids]), (n,), "positions")
        if not (cells["n_ids"] == int(with_ids)).all() or (with_ids and len(np.unique(cells["id"])) > 1):
            raise StateError(f"{self.name} holds several sequences. Save only the wanted one.")
        return cells["position"]


def _read_kv(r: _Reader, memory: "HybridMemory", arrays: Arrays, rotated: bool | None) -> np.ndarray:
    """Add keys and values to `arrays`; returns the positions, i64 [n], ascending."""
    r.expect(r.u32("number of streams"), 1, "the number of streams of its keys and values")
    n = r.u32("number of positions")
    if not n:
        return np.zeros(0, np.int64)
    order = r.positions(n, True)
    places = np.argsort(order, kind="stable")
    if order[places[0]] < 0 or (np.diff(order[places].astype(np.int64)) < 1).any():
        raise r.wrong("positions are negative or repeated")
    transposed = r.u32("order of values")
    if transposed > 1:
        raise r.wrong(f"the order of its values is {transposed}, expected 0 or 1")
    r.expect(r.u32("number of attention layers"), len(memory.attention.pairs), "the number of attention layers")
    for side in sides_of(memory):
        rows = _read_rows(r, side, n, transposed > 0 and side.part == "v")
        if side.kind.quantized and side.width % LEAST_BLOCK == 0 and rotated is None:
            raise StateError(
                f"{r.name} keeps keys and values in {side.kind.name}, and does not say whether llama.cpp rotated them.",
                remedy=Remedy.SAY_IF_ROTATED,
            )
        stored = parts_of(rows[places].reshape(n, side.n_kv, -1), side.kind)
        source = llama_basis(side.kind, side.width, values=side.part == "v", rotated=bool(rotated))
        for plane, values in moved(stored, side.kind, side.width, source, side.block).items():
            arrays[side.name + plane] = values
    return order[places].astype(np.int64)


@dataclass(frozen=True)
class Side:
    """Keys ("k") or values ("v") of a layer. block: of the transform in whose basis this program stores them."""

    layer: int
    part: str
    kind: KVType
    n_kv: int
    width: int
    block: int

    @property
    def name(self) -> str:
        """Name of the exported array."""
        return f"blk.{self.layer}.{self.part}"

    @property
    def ggml(self) -> GGMLType:
        return GGMLType[self.kind.name.upper()]

    @property
    def row_bytes(self) -> int:
        """Bytes of a position in llama.cpp. UsageError: see `check`."""
        self.check()
        return self.n_kv * row_bytes(self.kind, self.width)

    def check(self) -> None:
        """Raises UsageError if llama.cpp has no such type of heads of this width."""
        if not row_bytes(self.kind, self.width):
            raise UsageError(
                f"llama.cpp has no keys and values in {self.kind.name} for heads of {self.width} values: only f32, f16 "
                "and bf16 can be exchanged."
            )


def sides_of(memory: "HybridMemory") -> list[Side]:
    """The keys of all layers, then the values, as they follow each other in a file."""
    kind, sides = memory.attention.kind, []
    for i, part in enumerate("kv"):
        for s in memory.attention.pairs:
            width = (s.d_head, s.d_value)[i]
            sides.append(Side(s.layer, part, (kind.keys, kind.values)[i], s.n_kv, width, s.blocks(kind)[i]))
    return sides


def _read_rows(r: _Reader, side: Side, n: int, transposed: bool) -> np.ndarray:
    """u8 [n, bytes] of a side, checked."""
    what, found = side.name, r.kind(side.name)
    if found is not side.ggml:
        if found not in _KV_TYPES:
            raise r.wrong(f"{what} is {found.name}, which is not a type of keys and values")
        other = _KV_TYPES[found]
        raise StateError(
            f"{r.name} keeps {what} in {other}, this model in {side.kind.name}.", remedy=Remedy.KV_TYPE, value=other
        )
    width = side.n_kv * side.width
    if not transposed:
        r.expect(r.u64(f"row size of {what}"), side.row_bytes, f"the size of a row of {what}")
        return r.array(np.dtype(np.uint8), (n, side.row_bytes), what)
    if side.kind.quantized:
        raise r.wrong(f"values in {side.kind.name} are not in the order of rows")
    dtype = np.dtype(side.kind.codes.dtype)
    r.expect(r.u32(f"size of a value of {what}"), dtype.itemsize, f"the size of a value of {what}")
    r.expect(r.u32(f"width of {what}"), width, f"the width of {what}")
    return np.ascontiguousarray(r.array(dtype, (width, n), what).T).view(np.uint8)


def _read_recurrent(r: _Reader, memory: "HybridMemory", n_layer: int, with_ids: bool, arrays: Arrays) -> int:
    cells = r.u32("number of states")
    if cells != 1:
        raise r.wrong(f"it holds the states of {cells} sequences, expected 1")
    last = int(r.positions(1, with_ids)[0])
    r.expect(r.u32("order of states"), 0, "the order of its states")
    r.expect(r.u32("number of layers"), n_layer, "the number of layers")
    for part in ("conv", "ssm"):
        for s in memory.recurrent.specs:
            what = f"blk.{s.layer}.{part}"
            kind_found = r.kind(what)
            if kind_found != GGMLType.F32:
                raise r.wrong(f"{what} is {kind_found.name}, expected F32")
            shape = s.shapes[what]
            r.expect(r.u64(f"row size of {what}"), 4 * shape[0] * shape[1], f"the size of {what}")
            stored = r.array(np.dtype("<f4"), shape[::-1] if part == "conv" else shape, what)
            arrays[what] = stored.T if part == "conv" else stored
    return last


# --- writing ---
def encode_session(
    tokens: list[int],
    positions: np.ndarray,
    arrays: Arrays,
    arch: str,
    n_layer: int,
    memory: "HybridMemory",
    *,
    whole: bool,
    transposed: bool,
    rotated: bool = True,
) -> Iterator[bytes]:
    """The parts of a file of these tokens, with the memory of the first n (positions: i64 [n]).

    whole, transposed, rotated: see `export_session`.
    """
    n = len(positions)
    magic, of_arch = GGSN if whole else GGSQ, arch.encode()
    yield struct.pack("<3I", magic, VERSIONS[magic], len(tokens)) + np.asarray(tokens, "<i4").tobytes()
    if whole:
        yield struct.pack("<I", len(of_arch)) + of_arch
    if memory.attention.pairs:
        yield struct.pack("<2I", 1, n)
        yield b"".join(struct.pack("<iIi", position, 1, 0) for position in positions)
        yield struct.pack("<2I", transposed, len(memory.attention.pairs))
        for side in sides_of(memory):
            stored = {plane.name: arrays[side.name + plane.name][:n] for plane in side.kind.planes}
            target = llama_basis(side.kind, side.width, values=side.part == "v", rotated=rotated)
            rows = blocks_of(moved(stored, side.kind, side.width, side.block, target), side.kind).reshape(n, -1)
            if side.part == "v" and transposed:
                values = rows.view(side.kind.codes.dtype)
                yield struct.pack("<i2I", side.ggml, values.itemsize, values.shape[1]) + values.T.tobytes()
            else:
                yield struct.pack("<iQ", side.ggml, side.row_bytes) + rows.tobytes()
    if memory.recurrent.specs:
        yield struct.pack("<IiI", 1, positions[-1], whole) + struct.pack("<i", 0) * whole
        yield struct.pack("<2I", 0, n_layer)
        for part in ("conv", "ssm"):
            for spec in memory.recurrent.specs:
                state = arrays[f"blk.{spec.layer}.{part}"]
                yield struct.pack("<iQ", GGMLType.F32, state.nbytes)
                yield (state.T if part == "conv" else state).astype("<f4").tobytes()
