"""Reference checkpoints of models that read pictures: transformers' pixels, features, prompts and logits."""

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from golden.models import Golden

from hybrid.infer.engine.pictures import Picture

VISION = (
    "qwen35-vl", "smolvlm", "lfm2-vl", "gemma3-vl", "qwen3-vl", "qwen25-vl", "lfm3-vl", "gemma4-vl", "granite4-vision",
)  # fmt: skip
PROMPTS = ("img1", "img2")


@dataclass
class PicturePrompt:
    """A prompt with pictures: `ids` has the tokens of the pictures in their places, `pictures` holds their rows."""

    ids: list[int] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)

    def runs(self) -> list[tuple[int, int]]:
        """(first token, token after the last) of each picture or tile."""
        begins = [self.ids.index(picture.ids[0]) for picture in self.pictures]
        return [(begin, begin + len(picture.ids)) for begin, picture in zip(begins, self.pictures, strict=True)]


class VisionGolden:
    """One checkpoint's reference."""

    def __init__(self, golden: Golden) -> None:
        self.golden = golden

    @cached_property
    def noise(self) -> dict[str, float]:
        return json.loads((self.golden.folder / "meta.json").read_text())["noise_f32_vs_f64"]

    @cached_property
    def features_noise(self) -> dict[str, float]:
        """By image: the noise of its features."""
        images = json.loads((self.golden.folder / "meta.json").read_text())["images"]
        return {name: image["features_noise"] for name, image in images.items()}

    @cached_property
    def image_token(self) -> int:
        config = json.loads((self.golden.source / "config.json").read_text())
        token: int = config["image_token_id"] if "image_token_id" in config else config["image_token_index"]
        return token

    def image(self, name: str) -> dict[str, np.ndarray]:
        """What the processor and the tower make of one image."""
        with np.load(self.golden.folder / name.replace(".png", ".npz")) as file:
            return dict(file)

    def prompt(self, name: str) -> PicturePrompt:
        """The prompt, with the reference's own features in place of its pictures."""
        described: dict[str, Any] = self.golden.prompts[name]
        images = [self.image(image) for image in described["images"]]
        rows = [_rows(image) for image in images]
        prompt, ids, at, left = PicturePrompt(), described["ids"], 0, 0  # at: in the rows of images[0]
        mask = [token == self.image_token for token in ids]
        while left < len(ids):
            end = left
            while end < len(ids) and mask[end] == mask[left]:
                end += 1
            if mask[left]:
                features, added, grid = rows[0]
                part = slice(at, at + end - left)
                own = [values[part] for values in added]
                picture = Picture(features[part], grid or (1, end - left), own)
                prompt.pictures.append(picture)
                prompt.ids += picture.ids
                at = part.stop
                if at == len(features):
                    rows, at = rows[1:], 0
            else:
                prompt.ids += ids[left:end]
            left = end
        assert not rows, "features are left over"
        return prompt


def tiles_of(image: dict[str, np.ndarray], patch: int) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """The patches of one image, tile after tile, and (rows, columns) of patches of each tile."""
    pixels = image["pixel_values"]
    if "image_grid_thw" in image:
        return pixels, [tuple(image["image_grid_thw"][0, 1:].tolist())]
    if "spatial_shapes" in image:
        sizes = [(rows, columns) for rows, columns in image["spatial_shapes"].tolist()]
        return np.concatenate([tile[: r * c] for tile, (r, c) in zip(pixels, sizes, strict=True)]), sizes
    if "image_position_ids" in image:
        places = image["image_position_ids"][0]
        real = places[:, 0] >= 0
        columns, rows = (places.max(0) + 1).tolist()
        return pixels[0, real], [(rows, columns)]
    tiles = pixels.reshape(-1, *pixels.shape[-3:])
    side = tiles.shape[-1] // patch
    cut = tiles.reshape(len(tiles), 3, side, patch, side, patch).transpose(0, 2, 4, 1, 3, 5)
    return cut.reshape(len(tiles) * side**2, -1), [(side, side)] * len(tiles)


@dataclass(frozen=True)
class UsedFeatures:
    """What is no padding, in the grid of all tiles' features."""

    rows: int
    columns: int
    top: int
    bottom: int
    left: int
    right: int


def used_features(image: dict[str, np.ndarray], pinpoints: Any, tile: int, part: int) -> UsedFeatures | None:
    """For Granite: the tiles have `part` x `part` features and tile x tile pixels. None: another model's image."""
    if "features_layer0" not in image:
        return None
    height, width = image["image_sizes"][0].tolist()

    def fit(size: list[int]) -> tuple[int, int]:
        scale = min(size[0] / height, size[1] / width)
        reached = min(int(height * scale) * int(width * scale), height * width)
        return reached, reached - size[0] * size[1]

    rows, columns = (side // tile * part for side in max(pinpoints, key=fit))
    if width / height > columns / rows:
        cut = (rows - int(round(height * columns / width, 7))) // 2
        return UsedFeatures(rows, columns, cut, rows - cut, 0, columns)
    cut = (columns - int(round(width * rows / height, 7))) // 2
    return UsedFeatures(rows, columns, 0, rows, cut, columns - cut)


def features_of(image: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The features of an image, then further ones for later layers."""
    further = ("features", "deepstack_", "features_layer")
    return [image[name] for prefix in further for name in sorted(image) if name.rstrip("0123456789") == prefix]


def _rows(image: dict[str, np.ndarray]) -> tuple[np.ndarray, list[np.ndarray], tuple[int, int] | None]:
    """The features, further ones, and rows and columns of tokens, if it matters."""
    features, *added = features_of(image)
    grid = None
    if "image_grid_thw" in image:
        _, height, width = image["image_grid_thw"][0].tolist()
        merge = round((height * width / len(features)) ** 0.5)
        grid = (height // merge, width // merge)
    return features, added, grid
