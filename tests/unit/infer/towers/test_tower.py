"""Towers with random weights and odd sizes against their float64 twins; bits do not depend on threads or on what was
read before."""

from pathlib import Path

import numpy as np
import pytest
import random_towers
from made_towers import Twin, load_tower, patches_of, tower_file
from reference.run_kernel import same_bits

from hybrid.infer.engine.pictures import Picture
from hybrid.infer.program.threads import Interrupted, Stop
from hybrid.quant.ggml.errors import UsageError

NAMES = list(random_towers.CONFIGS)
BY_BLOCKS = ("qwen", "lfm3")  # their processors order patches block by block, and repeat them


class Made:
    """A tower, and pixels of pictures of all the sizes that it reads."""

    def __init__(self, name: str, path: Path, **options: object) -> None:
        self.name, self.tower = name, load_tower(path, **options)  # type: ignore[arg-type]
        self.twin = Twin(path)
        h, rng = self.tower.hparams, np.random.default_rng(1)
        m, p = self.tower.n_merge, h.patch_size
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


@pytest.mark.parametrize("name", NAMES)
def test_features_match_float64(name: str, data_dir: Path) -> None:
    made = Made(name, tower_file(name, data_dir), precision="exact", n_threads=2)
    for i, size in enumerate(made.sizes):
        picture = made.encode(i)
        wanted = made.twin.features(made.pixels[i])
        got = [picture.rows, *picture.added]
        for features, want in zip(got, wanted, strict=True):
            error = np.linalg.norm(features - want) / np.linalg.norm(want)
            print(f"{name} {size}: error {error:.1e}")
            assert error < 5e-5, "random weights are large: scores of attention reach 100"
            assert np.abs(want).max() > 0.1
        assert picture.grid[0] * picture.grid[1] == len(picture.rows)
    made.tower.close()


@pytest.mark.parametrize("name", NAMES)
def test_same_bits_for_any_threads_and_order(name: str, data_dir: Path) -> None:
    path = tower_file(name, data_dir)
    one, three = (Made(name, path, precision="exact", n_threads=n) for n in (1, 3))
    order = [*range(len(one.sizes)), *reversed(range(len(one.sizes)))]
    alone = [one.encode(i) for i in order]
    for a, b in zip(alone, [three.encode(i) for i in order], strict=True):
        assert same_bits(a.rows, b.rows) and a.ids == b.ids and a.grid == b.grid
    one.tower.close()
    three.tower.close()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("outtype", ["f16", "bf16", "q8_0"])
def test_weights_of_other_types(name: str, outtype: str, data_dir: Path) -> None:
    """Also with products in integers: near the twin of the same weights."""
    path = tower_file(name, data_dir, outtype)
    for precision in ("exact", "fast"):
        made = Made(name, path, precision=precision, n_threads=2)
        picture = made.encode(0)
        want = made.twin.features(made.pixels[0])[0]
        error = np.linalg.norm(picture.rows - want) / np.linalg.norm(want)
        print(f"{name} {outtype} {precision}: error {error:.1e}")
        assert error < (5e-5 if precision == "exact" else 0.1)
        made.tower.close()


def test_names_of_pictures(data_dir: Path) -> None:
    made = Made("qwen35-vl", tower_file("qwen35-vl", data_dir))
    tower, patches, size = made.tower, made.patches(0), made.sizes[0]
    twice = tower.encode(np.concatenate([patches, patches]), [size, size], b"a picture")
    again = tower.encode(np.concatenate([patches, patches]), [size, size], b"a picture")
    other = tower.encode(patches, [size], b"another")
    assert [p.ids for p in twice] == [p.ids for p in again]
    assert len({tuple(p.ids) for p in (*twice, *other)}) == 3, "tiles differ by their place"
    unnamed = tower.encode(np.concatenate([patches, patches]), [size, size])
    assert unnamed[0].ids == unnamed[1].ids, "the same rows"
    tower.close()


def test_refusals_and_stops(data_dir: Path, bundled: Path) -> None:
    made = Made("qwen35-vl", tower_file("qwen35-vl", data_dir))
    tower = made.tower
    with pytest.raises(UsageError, match="5 patches for tiles of"):
        tower.encode(np.zeros((5, 216), np.float32), [(3, 3)])
    with pytest.raises(UsageError, match="not a multiple of 3"):
        tower.encode(np.zeros((8, 216), np.float32), [(4, 2)])
    stop = Stop()
    stop.set()
    with pytest.raises(Interrupted):
        tower.encode(made.patches(0), [made.sizes[0]], stop=stop)
    seen: list[tuple[int, int]] = []
    tower.encode(made.patches(0), [made.sizes[0]], progress=lambda done, total: seen.append((done, total)))
    assert seen == [(18, 18)]
    tower.close()
    square = Made("smolvlm", tower_file("smolvlm", data_dir))
    with pytest.raises(UsageError, match="tiles of 6 x 6"):
        square.tower.encode(np.zeros((9, 48), np.float32), [(3, 3)])
