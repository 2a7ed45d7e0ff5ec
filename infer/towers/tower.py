"""A vision tower: patches of a picture in, rows for the text model out."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from itertools import count
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from hybrid.quant.ggml.errors import UsageError
from hybrid.quant.ggml.reader import GGUFFile

from ..engine.engine import Engine
from ..engine.pictures import Picture
from ..kernels import execute
from ..kernels.build.jit import CompileProgress, compile_kernels
from ..loading.model_file import update_by_samples
from ..pictures.pixels import Pixels, Unpadded
from ..program.builder import Rows
from ..program.threads import Pool, Stop
from .clamps import Clamps
from .tile import Tile
from .weights import TowerWeights

Floats = npt.NDArray[np.float32]
Size = tuple[int, int]  # (rows, columns) of patches
Run = tuple[list[Floats], Size]  # sets of features of a run of tokens, and its grid
MOST_PROGRAMS, MOST_BYTES = 4, 256 << 20  # sizes of tiles whose programs are kept, and their memory together
KEYS = ("clip.", "hybrid.vision.")
SOUND = ("a.", "mm.a.")  # prefixes of tensors that make sound into rows


class VisionTower(ABC):
    """The tower and projector of one file. Use `load_tower` of loading.py.

    compile_seconds  spent on compiling kernels
    """

    channels_last: ClassVar[bool] = False  # the values of a patch are in the order of y, x, channel
    n_merge: int = 1  # patches of a side that become one row
    clamps: Mapping[str, Clamps] = MappingProxyType({})  # of products, by the names of matrices

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
        """Add the ops; returns the features, then the further ones of `Picture.added`."""

    def arranged(self, patches: Floats, rows: int, columns: int) -> Floats:
        """The patches of a tile, f32 [n, n_values], in the order and form in which the tower reads them."""
        return patches

    def restored(self, features: Floats, rows: int, columns: int) -> Floats:
        """The features of a tile in raster order."""
        return features

    def head_size(self, multiple: int = 1) -> int:
        """Values of a head. Raises FormatError unless heads share the tower's width, a multiple of `multiple` each."""
        n, n_head = self.hparams.n_embd, self.hparams.n_head
        if n % (n_head * multiple):
            raise self.hparams.wrong(self.gguf, "n_head", f"a divisor of {n // multiple}")
        size: int = n // n_head
        return size

    @property
    def n_values(self) -> int:
        """Values of an arranged patch."""
        size: int = self.hparams.patch_size
        return 3 * size**2

    def grid(self, rows: int, columns: int) -> Size:
        """(rows, columns) of the features of a tile."""
        return rows // self.n_merge, columns // self.n_merge

    @property
    def n_added(self) -> int:
        """Number of further sets of features, for later blocks of the text model."""
        return 0

    def check_model(self, engine: Engine) -> None:
        """Raise UsageError if the features are not for this text model."""
        n_out, n_added, network = self.hparams.n_out, self.n_added, engine.network
        if n_out != engine.hparams.n_embd or n_added != len(network.picture_blocks):
            raise UsageError(
                f"{self.gguf.path.name} is of another model: it makes {1 + n_added} x {n_out} values of a feature, "
                f"{engine.gguf.path.name} reads {1 + len(network.picture_blocks)} x {engine.hparams.n_embd}."
            )

    # --- use ---
    def see(
        self,
        pixels: Pixels,
        name: bytes = b"",
        *,
        stop: Stop | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Picture]:
        """`encode` of a processor's pixels; the tokens of the result stand, in this order, for the features of the
        layout."""
        layout = pixels.layout
        sizes = [(tile.rows, tile.columns) for tile in layout.tiles]
        return self.encode(pixels.patches, sizes, name, unpadded=layout.unpadded, stop=stop, progress=progress)

    def encode(
        self,
        patches: Floats,
        sizes: Sequence[Size],
        name: bytes = b"",
        *,
        stop: Stop | None = None,
        unpadded: Unpadded | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Picture]:
        """The rows of a picture: in most families one run of tokens for each of its tiles.

        patches   f32 [patch, values], tile after tile, as the processor makes them (infer/pictures)
        sizes     rows and columns of patches of each tile
        name      of the picture and the processor's settings, for `Picture.name`; without, rows name themselves
        unpadded  of the picture's layout
        progress  called with the number of patches that were read, and of all

        Raises Interrupted when stopped, between tiles or within one.
        """
        if sum(rows * columns for rows, columns in sizes) != len(patches):
            raise UsageError(f"{len(patches)} patches for tiles of {list(sizes)} patches.")
        tiles, done = [], 0
        for rows, columns in sizes:
            tiles.append(self.tile_features(patches[done : done + rows * columns], rows, columns, stop=stop))
            done += rows * columns
            if progress is not None:
                progress(done, len(patches))
        names = (self.name_of(i, name) if name else b"" for i in count())
        runs = self.runs(tiles, sizes, unpadded)
        return [Picture(made[0], grid, made[1:], own) for (made, grid), own in zip(runs, names, strict=False)]

    def name_of(self, i: int, name: bytes) -> bytes:
        """The name of run i of a picture."""
        return sha256(b"%d %b %b" % (i, name, self.name)).digest()

    def runs(self, tiles: Sequence[list[Floats]], sizes: Sequence[Size], unpadded: Unpadded | None) -> list[Run]:
        """The runs of tokens of a picture: their features and further ones, and the grid of each."""
        return [(made, self.grid(*size)) for made, size in zip(tiles, sizes, strict=True)]

    @cached_property
    def name(self) -> bytes:
        """Differs from the name of any other tower, and of this one with other keys, also the processor's."""
        digest = sha256(f"{self.exact}".encode())
        for key in sorted(key for key in self.gguf.metadata if key.startswith(KEYS)):
            value = self.gguf.get(key)
            digest.update(f"{key} {value.tolist() if isinstance(value, np.ndarray) else value};".encode())
        update_by_samples(digest, self.gguf)
        return digest.digest()

    def tile_features(self, patches: Floats, rows: int, columns: int, *, stop: Stop | None = None) -> list[Floats]:
        """The features of one tile, in raster order, and further ones."""
        self.check_size(rows, columns)
        tile = self._tile(rows, columns)
        tile.values[...] = self.arranged(np.asarray(patches, np.float32), rows, columns)
        self._pool = self._pool or Pool(self.n_threads, self._cpus)
        assert tile.program is not None
        self._pool.run(tile.program, stoppable=True, stop=stop)
        n = int(np.prod(self.grid(rows, columns)))
        return [self.restored(tile.program.view(out, n).copy(), rows, columns) for out in tile.outputs]

    def check_size(self, rows: int, columns: int) -> None:
        """Raise UsageError if the tower cannot read tiles of this size."""
        if rows % self.n_merge or columns % self.n_merge or min(rows, columns) < 1:
            raise UsageError(f"a tile of {rows} x {columns} patches: a side is not a multiple of {self.n_merge}.")

    def _tile(self, rows: int, columns: int, progress: CompileProgress | None = None) -> Tile:
        """The compiled program for a size; the size used last is kept longest."""
        size = rows, columns
        tile = self._tiles.pop(size, None)
        if tile is None:
            tile = self._empty_tile(rows, columns)
            program = tile.build(self.add(tile))
            kernels = dict.fromkeys([execute.EXECUTE, *program.kernels])
            start = time.perf_counter()
            compile_kernels([kernel for kernel in kernels if not kernel.ready], progress)
            self.compile_seconds += time.perf_counter() - start
            program.link()
        self._tiles[size] = tile
        sizes = [other.nbytes for other in self._tiles.values()]
        while len(sizes) > MOST_PROGRAMS or (len(sizes) > 1 and sum(sizes) > MOST_BYTES):
            del self._tiles[next(iter(self._tiles))], sizes[0]
        return tile

    def _empty_tile(self, rows: int, columns: int) -> Tile:
        return Tile(rows, columns, self.n_values, self.n_threads, exact=self.exact, clamps=self.clamps)

    def working_bytes(self, rows: int, columns: int) -> int:
        """Bytes that reading a tile of this size takes, in addition to the weights and the patches."""
        self.check_size(rows, columns)
        tile = self._empty_tile(rows, columns)
        self.add(tile)
        return tile.planned_bytes

    @property
    def nbytes(self) -> int:
        """Bytes of the programs' memory and of copies of weights, in addition to the mapped file."""
        return self.weights.nbytes_copied + sum(tile.nbytes for tile in self._tiles.values())

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        self.gguf.release_all()
