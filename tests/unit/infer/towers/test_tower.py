"""Towers with random weights and odd sizes against their float64 twins; bits do not depend on threads or on what was
read before."""

from pathlib import Path

import numpy as np
import pytest
import random_towers
from made_towers import Made, tower_file
from reference.run_kernel import same_bits

from hybrid.infer.program.threads import Interrupted, Stop
from hybrid.infer.towers import tower as tower_module
from hybrid.quant.ggml.errors import UsageError

NAMES = list(random_towers.CONFIGS)


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


@pytest.mark.parametrize(
    ("name", "outtype", "precision"),
    [*((name, "f32", "exact") for name in NAMES), ("qwen3-vl", "f16", "fast"), ("lfm2-vl", "bf16", "fast")],
)
def test_same_bits_for_any_threads_and_order(name: str, outtype: str, precision: str, data_dir: Path) -> None:
    path = tower_file(name, data_dir, outtype)
    one, three = (Made(name, path, precision=precision, n_threads=n) for n in (1, 3))
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
        assert error < (5e-5 if precision == "exact" else 0.1 if outtype == "q8_0" else 0.03)
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


def test_programs_are_kept_within_bounds(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made("qwen35-vl", tower_file("qwen35-vl", data_dir), n_threads=2)
    tower = made.tower
    first = tower.encode(made.patches(0), [made.sizes[0]])[0]
    needs = [tower.working_bytes(*size) for size in made.sizes]
    assert needs == sorted(needs) and needs[0] > 1000
    assert tower.nbytes - tower.weights.nbytes_copied == needs[0]
    for i in (1, 2):
        tower.encode(made.patches(i), [made.sizes[i]])
    assert tower.nbytes - tower.weights.nbytes_copied == sum(needs)
    monkeypatch.setattr(tower_module, "MOST_BYTES", needs[0] + needs[1])
    again = tower.encode(made.patches(0), [made.sizes[0]])[0]
    assert tower.nbytes - tower.weights.nbytes_copied == needs[0], "the largest went, and the next for order"
    assert same_bits(first.rows, again.rows)
    tower.close()
