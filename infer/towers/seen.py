"""Features of pictures that a tower has read: the same picture, in whatever text, is read once.

They are kept in memory and, if there is a folder, in files:

    "hybrid features 1\\n"
    JSON, one line      {"width": values of a feature, "runs": [[rows, columns, sets of features], ...], "crc": number}
    f32                 every run's sets, one after the other; crc: the CRC-32 of these bytes

A file that is damaged, or that cannot be read, is removed, and the picture is read again.
"""

import contextlib
import json
import os
import zlib
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from threading import Lock

import numpy as np

from hybrid.quant.ggml.errors import HybridError
from hybrid.quant.ggml.replacing import replace_file

from ..engine.pictures import Picture
from ..pictures.pixels import Pixels
from ..program.threads import Stop
from .tower import VisionTower

MAGIC = b"hybrid features 1\n"
MOST_HEADER = 1 << 20
END = ".features"


class SeenPictures:
    """Any thread may use it; a tower reads one picture at a time.

    budget         bytes of features in memory; others may hold more
    folder         where files are kept, or None
    folder_budget  bytes of the files

    n_read, n_known: pictures that the tower has read, and that were known.
    """

    def __init__(self, tower: VisionTower, budget: int, folder: Path | None = None, folder_budget: int = 0) -> None:
        self.tower, self.budget, self.folder, self.folder_budget = tower, budget, folder, folder_budget
        self.n_read = self.n_known = 0
        self._held: dict[str, list[Picture]] = {}  # the last used one is last
        self._lock = Lock()
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def nbytes(self) -> int:
        """Bytes of the features in memory."""
        return sum(picture.nbytes for pictures in self._held.values() for picture in pictures)

    def see(
        self,
        pixels: Pixels,
        name: bytes,
        *,
        stop: Stop | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Picture]:
        """As `VisionTower.see`. name: of the picture's own pixels, without which it is not known again."""
        layout = pixels.layout
        sizes = [(tile.rows, tile.columns) for tile in layout.tiles]
        key = sha256(repr((self.tower.name, name, sizes, layout.unpadded)).encode()).hexdigest()[:32]
        with self._lock:
            pictures = self._held.pop(key, None)
            pictures = self._read(key) if pictures is None else pictures
            if pictures is None:
                pictures = self.tower.see(pixels, key.encode(), stop=stop, progress=progress)
                self.n_read += 1
                self._write(key, pictures)
            else:
                self.n_known += 1
            self._held[key] = pictures
            while len(self._held) > 1 and self.nbytes > self.budget:
                del self._held[next(iter(self._held))]
            return pictures

    # --- files ---
    def _write(self, key: str, pictures: list[Picture]) -> None:
        if self.folder is None:
            return
        arrays = [rows for picture in pictures for rows in (picture.rows, *picture.added)]
        data = b"".join(np.ascontiguousarray(rows, "<f4").tobytes() for rows in arrays)
        runs = [[*picture.grid, 1 + len(picture.added)] for picture in pictures]
        header = {"width": pictures[0].rows.shape[1], "runs": runs, "crc": zlib.crc32(data)}
        if len(data) <= self.folder_budget:
            with contextlib.suppress(OSError):  # a full disk costs time later, not this answer
                replace_file(self.folder / f"{key}{END}", [MAGIC, json.dumps(header).encode() + b"\n", data])
                self._trim(self.folder)

    def _trim(self, folder: Path) -> None:
        """Remove the files that were not used for longest."""
        files = sorted((path.stat().st_mtime_ns, path.stat().st_size, path) for path in folder.glob(f"*{END}"))
        total = sum(size for _, size, _ in files)
        for _, size, path in files[:-1]:
            if total > self.folder_budget:
                path.unlink()
                total -= size

    def _read(self, key: str) -> list[Picture] | None:
        """The pictures of a file; None if it is missing or damaged."""
        if self.folder is None:
            return None
        path = self.folder / f"{key}{END}"
        try:
            data = path.read_bytes()
            os.utime(path)
            return self._parsed(data, key)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError, HybridError):
            with contextlib.suppress(OSError):
                path.unlink()
            return None

    def _parsed(self, data: bytes, key: str) -> list[Picture]:
        """Raises one of the errors that `_read` catches if the file is damaged."""
        if not data.startswith(MAGIC):
            raise ValueError
        line = data[len(MAGIC) : len(MAGIC) + MOST_HEADER].split(b"\n", 1)[0]
        header = json.loads(line)
        body = data[len(MAGIC) + len(line) + 1 :]
        width, runs = header["width"], [tuple(map(int, run)) for run in header["runs"]]
        sizes = [rows * columns * sets for rows, columns, sets in runs]
        right = width == self.tower.hparams.n_out and min(sizes) > 0 and sum(sizes) * width * 4 == len(body)
        if not right or any(sets != 1 + self.tower.n_added for *_, sets in runs) or zlib.crc32(body) != header["crc"]:
            raise ValueError
        values = np.frombuffer(body, "<f4").astype(np.float32).reshape(-1, width)
        pictures, done = [], 0
        for i, (rows, columns, sets) in enumerate(runs):
            each = rows * columns
            parts = [values[done + k * each : done + (k + 1) * each] for k in range(sets)]
            own = self.tower.name_of(i, key.encode())
            pictures.append(Picture(parts[0], (rows, columns), parts[1:], own))
            done += each * sets
        return pictures
