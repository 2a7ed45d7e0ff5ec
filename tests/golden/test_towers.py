"""Vision towers: the reference's pixels give its features."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from golden.models import Golden
from golden.vision_goldens import VISION, VisionGolden, features_of, tiles_of, used_features

from hybrid.infer.towers.loading import load_tower

ALLOWED = 4  # as a multiple of the reference's own noise
pytestmark = pytest.mark.shared


@pytest.mark.parametrize("name", VISION)
def test_features(name: str, golden: Callable[[str], Golden], converted: Callable[..., Path]) -> None:
    reference = VisionGolden(golden(name))
    tower = load_tower(next(converted(name).parent.glob("mmproj-*.gguf")), precision="exact")
    for image, noise in reference.features_noise.items():
        arrays = reference.image(image)
        patches, sizes = tiles_of(arrays, tower.hparams.patch_size)
        config = json.loads((reference.golden.source / "config.json").read_text())
        part = tower.grid(*sizes[0])[0]
        used = used_features(arrays, config.get("image_grid_pinpoints"), sizes[0][0] * tower.hparams.patch_size, part)
        pictures = tower.encode(patches, sizes, unpadded=used)
        sets = zip(*([picture.rows, *picture.added] for picture in pictures), strict=True)
        for got, want in zip(map(np.concatenate, sets), features_of(arrays), strict=True):
            error = np.abs(got - want).max()
            print(f"{name} {image}: max error {error:.1e}, noise {noise:.1e}")
            assert got.shape == want.shape
            assert error <= ALLOWED * noise
    tower.close()
