"""Towers of random checkpoints, loaded, and their twins in float64."""

from pathlib import Path
from typing import Any

import numpy as np
import random_towers
from made_models import made, sources
from reference.tower_passes import PASSES, TwinFile

from hybrid.convert import convert
from hybrid.infer.engine.pictures import Picture
from hybrid.infer.towers.loading import load_tower
from hybrid.infer.towers.tower import VisionTower
from hybrid.quant.ggml.errors import UsageError
from hybrid.quant.ggml.split import open_gguf
from hybrid.quant.ggml.vision.tower import projector_of, read_tower

BY_BLOCKS = ("qwen", "lfm3")  # their processors order patches block by block, and repeat them


def tower_file(name: str, data: Path, outtype: str = "f32") -> Path:
    """The file of a tower with random weights."""

    def make(path: Path) -> None:
        folder = random_towers.write(name, path.parent / "checkpoint", data / "checkpoints" / "mamba-bf16")
        report = convert(folder, path.with_suffix(".text.gguf"), outtype=outtype)
        assert report.vision is not None
        report.vision.output.rename(path)

    key = sources("convert", "quant", "tests/random_towers.py", "tests/random_checkpoints.py") + name + outtype
    return made(f"mmproj-{name}-{outtype}.gguf", key, make)


class Twin:
    """The twin of a file's tower."""

    def __init__(self, path: Path) -> None:
        gguf = open_gguf(path)
        self.h: Any = read_tower(gguf)
        self.kind = projector_of(gguf)
        self.file = TwinFile({name: gguf.f32(name).astype(np.float64) for name in gguf.tensors}, self.h)

    def features(self, pixels: np.ndarray) -> list[np.ndarray]:
        """pixels f32 [height, width, 3], whole patches."""
        p = self.h.patch_size
        rows, columns = pixels.shape[0] // p, pixels.shape[1] // p
        patches = pixels.reshape(rows, p, columns, p, 3).transpose(0, 2, 4, 1, 3).reshape(rows * columns, 3, 1, p, p)
        return PASSES[self.kind](self.file, np.repeat(patches, 2, axis=2).astype(np.float64), rows, columns)


def patches_of(tower: VisionTower, pixels: np.ndarray, *, blocks: int = 1, frames: int = 1) -> np.ndarray:
    """The patches of pixels f32 [height, width, 3], in the order that the tower expects from a processor."""
    p = tower.hparams.patch_size
    rows, columns = pixels.shape[0] // p, pixels.shape[1] // p
    grid = pixels.reshape(rows // blocks, blocks, p, columns // blocks, blocks, p, 3)
    axes = (0, 3, 1, 4, 2, 5, 6) if tower.channels_last else (0, 3, 1, 4, 6, 2, 5)
    patches = grid.transpose(*axes).reshape(rows * columns, -1)
    if frames == 1:
        return patches
    return np.repeat(patches.reshape(len(patches), 3, 1, -1), frames, axis=2).reshape(len(patches), -1)


class Made:
    """A tower, and pixels of pictures of all the sizes that it reads."""

    def __init__(self, name: str, path: Path, **options: object) -> None:
        self.name, self.tower = name, load_tower(path, **options)  # type: ignore[arg-type]
        self.twin = Twin(path)
        h, rng = self.tower.hparams, np.random.default_rng(1)
        m, p = self.tower.n_merge, h.patch_size
        if m * p > 1 << 10:
            raise UsageError("such blocks of patches are too large for a test.")
        self.is_blocked = name.startswith(BY_BLOCKS)
        self.sizes = [(m, 2 * m), (3 * m, 2 * m), (4 * m, 5 * m)]
        if getattr(self.tower, "is_square", False):
            self.sizes = [(24 // p, 24 // p)]
        self.pixels = [rng.standard_normal((r * p, c * p, 3)).astype(np.float32) for r, c in self.sizes]

    def encode(self, i: int) -> Picture:
        """The features of the i-th picture; for Granite of one tile, without newlines."""
        if self.name == "granite4-vision":
            sets = self.tower.tile_features(self.patches(i), *self.sizes[i])
            return Picture(sets[0], (1, len(sets[0])), sets[1:])
        (picture,) = self.tower.encode(self.patches(i), [self.sizes[i]])
        return picture

    def patches(self, i: int) -> np.ndarray:
        m = self.tower.n_merge
        return patches_of(self.tower, self.pixels[i], **({"blocks": m, "frames": 2} if self.is_blocked else {}))
