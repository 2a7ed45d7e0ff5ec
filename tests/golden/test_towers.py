"""Vision towers: the reference's pixels give its features."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from golden.models import Golden
from golden.vision_goldens import VISION, VisionGolden, tiles_of

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
        pictures = tower.encode(patches, sizes)
        pairs = [(np.concatenate([picture.rows for picture in pictures]), arrays["features"])]
        for block in pictures[0].added:
            rows = np.concatenate([picture.added[block] for picture in pictures])
            pairs.append((rows, arrays[f"deepstack_{block - 1}"]))
        for got, want in pairs:
            error = np.abs(got - want).max()
            print(f"{name} {image}: max error {error:.1e}, noise {noise:.1e}")
            assert got.shape == want.shape
            assert error <= ALLOWED * noise
    tower.close()
