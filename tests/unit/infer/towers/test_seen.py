"""A picture is read once: kept in memory and in files, within budgets."""

from pathlib import Path

import numpy as np
import pytest
from made_towers import Made, tower_file
from reference.run_kernel import same_bits

from hybrid.infer.pictures.pixels import PictureLayout, PictureTile, Pixels
from hybrid.infer.towers.seen import END, SeenPictures


@pytest.fixture
def made(data_dir: Path) -> Made:
    return Made("qwen3-vl", tower_file("qwen3-vl", data_dir), n_threads=2)


def pixels(made: Made, i: int) -> Pixels:
    patches, (rows, columns) = made.patches(i), made.sizes[i]
    tile = PictureTile(rows, columns, *made.tower.grid(rows, columns))
    return Pixels(patches, PictureLayout(1, 1, (tile,), "", tile.features, patches.shape[1]))


def test_in_memory(made: Made) -> None:
    seen = SeenPictures(made.tower, 1 << 20)
    (one,), (other,) = seen.see(pixels(made, 0), b"a"), seen.see(pixels(made, 1), b"b")
    assert seen.see(pixels(made, 0), b"a") == [one] and (seen.n_read, seen.n_known) == (2, 1)
    assert one.ids != other.ids and len(one.added) == made.tower.n_added > 0
    assert seen.see(pixels(made, 0), b"c")[0].ids != one.ids, "another picture of the same size"
    assert seen.nbytes == 2 * one.nbytes + other.nbytes
    small = SeenPictures(made.tower, one.nbytes + other.nbytes)
    for i, name in ((0, b"a"), (1, b"b"), (0, b"a"), (2, b"z"), (0, b"a")):
        small.see(pixels(made, i), name)
    assert (small.n_read, small.n_known) == (4, 1), "the largest made all others go"
    assert small.nbytes == one.nbytes


def test_in_files(made: Made, tmp_path: Path) -> None:
    first = SeenPictures(made.tower, 1 << 20, tmp_path / "kept", 1 << 20)
    (one,) = first.see(pixels(made, 0), b"a")
    again = SeenPictures(made.tower, 1 << 20, tmp_path / "kept", 1 << 20)
    (same,) = again.see(pixels(made, 0), b"a")
    assert (again.n_read, again.n_known) == (0, 1)
    assert same.ids == one.ids and same.grid == one.grid
    assert all(same_bits(x, y) for x, y in zip((same.rows, *same.added), (one.rows, *one.added), strict=True))
    assert again.see(pixels(made, 1), b"a")[0].ids != one.ids and again.n_read == 1


def test_damaged_files_are_read_again(made: Made, tmp_path: Path) -> None:
    one = SeenPictures(made.tower, 1 << 20, tmp_path, 1 << 20).see(pixels(made, 0), b"a")[0]
    (path,) = tmp_path.glob(f"*{END}")
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    damaged = [whole[:n] for n in (0, 5, 30, len(whole) - 1)] + [whole + b"x", b"x" + whole[1:]]
    magic, line = whole[:18], whole[18:].split(b"\n")[0]
    damaged += [magic + text + b"\n" + whole[19 + len(line) :] for text in (b"[" * 10000, b"[]", b"", b'{"width": 18}')]
    for at in rng.integers(0, len(whole), 40):
        damaged.append(whole[:at] + bytes([whole[at] ^ 1 << int(rng.integers(8))]) + whole[at + 1 :])
    for data in damaged:
        path.write_bytes(data)
        seen = SeenPictures(made.tower, 1 << 20, tmp_path, 1 << 20)
        (picture,) = seen.see(pixels(made, 0), b"a")
        assert picture.ids == one.ids and same_bits(picture.rows, one.rows)
        assert seen.n_read == 1 or data[:20] == whole[:20]
        assert path.read_bytes() == whole or seen.n_known


def test_files_within_a_budget(made: Made, tmp_path: Path) -> None:
    seen = SeenPictures(made.tower, 0, tmp_path, 1 << 20)
    sizes = []
    for i, name in ((0, b"a"), (0, b"b"), (0, b"c")):
        seen.see(pixels(made, i), name)
        sizes.append(sum(path.stat().st_size for path in tmp_path.iterdir()))
    assert sizes[2] == 3 * sizes[0]
    seen.folder_budget = sizes[0] * 2
    seen.see(pixels(made, 0), b"d")
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == 2 * sizes[0]
    seen.folder_budget = 10
    seen.see(pixels(made, 1), b"e")
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == 2 * sizes[0], "larger than all: not written"
