"""A vision tower: patches of a picture in, rows for the text model out."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from hybrid.quant.ggml.errors import UsageError
from hybrid.quant.ggml.reader import GGUFFile

from ..engine.pictures import Picture
from ..kernels import execute
from ..kernels.build.jit import CompileProgress, compile_kernels
from ..program.builder import Rows
from ..program.threads import Pool, Stop
from .tile import Tile
from .weights import TowerWeights

Floats = npt.NDArray[np.float32]
Size = tuple[int, int]  # (rows, columns) of patches
MOST_PROGRAMS = 4  # sizes of tiles whose programs are kept
SOUND = ("a.", "mm.a.")  # prefixes of tensors that make sound into rows


class VisionTower(ABC):
    """The tower and projector of one file. Use `load_tower` of loading.py.

    compile_seconds  spent on compiling kernels
    """

    channels_last: ClassVar[bool] = False  # the values of a patch are in the order of y, x, channel
    n_merge: int = 1  # patches of a side that become one row

    def __init__(self, gguf: GGUFFile, hparams: Any, n_threads: int, *, exact: bool, cpus: Sequence[int] = ()) -> None:
        self.gguf, self.hparams, self.n_threads, self.exact, self._cpus = gguf, hparams, n_threads, exact, cpus
        self.compile_seconds = 0.0
        self._pool: Pool | None = None
        self._tiles: dict[Size, Tile] = {}
        w = self.weights = TowerWeights(gguf, hparams.n_ff)
        self.load(w)
        w.ignore(*(name for name in gguf.tensors if name.startswith(SOUND)))
        w.finish()

    # --- a family's own ---
    @abstractmethod
    def load(self, w: TowerWeights) -> None:
        """Load the tensors. Raises FormatError."""

    @abstractmethod
    def add(self, tile: Tile) -> list[Rows]:
        """Add the ops; returns the features, then rows for `added`."""

    def arranged(self, patches: Floats, rows: int, columns: int) -> Floats:
        """The patches of a tile, f32 [n, n_values], in the order and form in which the tower reads them."""
        return patches

    def restored(self, features: Floats, rows: int, columns: int) -> Floats:
        """The features of a tile in raster order."""
        return features

    @property
    def n_values(self) -> int:
        """Values of an arranged patch."""
        size: int = self.hparams.patch_size
        return 3 * size**2

    def grid(self, rows: int, columns: int) -> Size:
        """(rows, columns) of the features of a tile."""
        return rows // self.n_merge, columns // self.n_merge

    def blocks_of(self, i: int) -> int:
        """The text model's block before which the i-th rows of `added` belong."""
        return i + 1

    # --- use ---
    def encode(
        self,
        patches: Floats,
        sizes: Sequence[Size],
        name: bytes = b"",
        *,
        stop: Stop | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Picture]:
        """The rows of a picture, one run of tokens for each of its tiles.

        patches   f32 [patch, values], tile after tile, as the processor makes them (infer/pictures)
        sizes     rows and columns of patches of each tile
        name      of the picture and the processor's settings, for `Picture.name`; without, rows name themselves
        progress  called with the number of patches that were read, and of all

        Raises Interrupted when stopped, between tiles or within one.
        """
        if sum(rows * columns for rows, columns in sizes) != len(patches):
            raise UsageError(f"{len(patches)} patches for tiles of {list(sizes)} patches.")
        pictures, done = [], 0
        for i, (rows, columns) in enumerate(sizes):
            part = patches[done : done + rows * columns]
            made = self._run(part, rows, columns, stop)
            own = sha256(b"%d %b %b" % (i, name, self.name)).digest() if name else b""
            added = {self.blocks_of(k): values for k, values in enumerate(made[1:])}
            pictures.append(Picture(made[0], self.grid(rows, columns), added, own))
            done += rows * columns
            if progress is not None:
                progress(done, len(patches))
        return pictures

    @property
    def name(self) -> bytes:
        """Tells this tower's rows from those of other files."""
        described = [self.gguf.path.name, str(self.gguf.nbytes), str(self.exact)]
        return "\n".join(described).encode()

    def _run(self, patches: Floats, rows: int, columns: int, stop: Stop | None) -> list[Floats]:
        """All outputs of one tile."""
        if rows % self.n_merge or columns % self.n_merge or min(rows, columns) < 1:
            raise UsageError(f"a tile of {rows} x {columns} patches: a side is not a multiple of {self.n_merge}.")
        tile = self._tile(rows, columns)
        tile.values[...] = self.arranged(np.asarray(patches, np.float32), rows, columns)
        self._pool = self._pool or Pool(self.n_threads, self._cpus)
        assert tile.program is not None
        self._pool.run(tile.program, stoppable=True, stop=stop)
        n = int(np.prod(self.grid(rows, columns)))
        return [self.restored(tile.program.view(out, n).copy(), rows, columns) for out in tile.outputs]

    def _tile(self, rows: int, columns: int, progress: CompileProgress | None = None) -> Tile:
        """The compiled program for a size; the size used last is kept longest."""
        size = rows, columns
        tile = self._tiles.pop(size, None)
        if tile is None:
            tile = Tile(rows, columns, self.n_values, self.n_threads, exact=self.exact)
            program = tile.build(self.add(tile))
            kernels = dict.fromkeys([execute.EXECUTE, *program.kernels])
            start = time.perf_counter()
            compile_kernels([kernel for kernel in kernels if not kernel.ready], progress)
            self.compile_seconds += time.perf_counter() - start
            program.link()
        self._tiles[size] = tile
        while len(self._tiles) > MOST_PROGRAMS:
            del self._tiles[next(iter(self._tiles))]
        return tile

    @property
    def nbytes(self) -> int:
        """Bytes of the programs' memory and of copies of weights, in addition to the mapped file."""
        arenas = sum(tile.program.arena.nbytes for tile in self._tiles.values() if tile.program is not None)
        return self.weights.nbytes_copied + arenas

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
