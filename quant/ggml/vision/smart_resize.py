"""Qwen2.5-VL, Qwen3-VL, Qwen3.5, LFM3-VL: one picture of any size, its sides rounded to whole features."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ..families.hparams import key
from ..reader import GGUFFile
from .settings import CLIP_MEAN, CLIP_STD, PictureSettings


class SmartResizeSettings(PictureSettings):
    """Settings of transformers' Qwen2VLImageProcessor.

    ===================  ===================================  =====================================
    field                key                                  config
    ===================  ===================================  =====================================
    patch_size           clip.vision.patch_size               patch_size (14 if absent)
    merge_size           clip.vision.spatial_merge_size       merge_size
    temporal_patch_size  hybrid.vision.temporal_patch_size    temporal_patch_size
    min_pixels           clip.vision.image_min_pixels         min_pixels, else size.shortest_edge
    max_pixels           clip.vision.image_max_pixels         max_pixels, else size.longest_edge
    ===================  ===================================  =====================================

    llama.cpp's converter leaves out the limits of pixels: its files have the limits of the family's published models
    (PUBLISHED), not of the class.

    The template writes `<|vision_start|>`, image_token, `<|vision_end|>`; image_token is repeated for every feature.
    """

    image_mean: tuple[float, ...] = key("vision.image_mean", CLIP_MEAN)
    image_std: tuple[float, ...] = key("vision.image_std", CLIP_STD)
    patch_size: int = key("vision.patch_size", 14, minimum=1)
    image_token: str = key("hybrid.vision.image_token", "<|image_pad|>")
    merge_size: int = key("vision.spatial_merge_size", 2, minimum=1)
    temporal_patch_size: int = key("hybrid.vision.temporal_patch_size", 2, minimum=1)
    min_pixels: int = key("vision.image_min_pixels", 56 * 56, minimum=1)
    max_pixels: int = key("vision.image_max_pixels", 28 * 28 * 1280, minimum=1)

    PUBLISHED: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "qwen2.5vl_merger": {"min_pixels": 3136, "max_pixels": 12845056},
        "qwen3vl_merger": {"min_pixels": 65536, "max_pixels": 16777216},
    }
    LARGEST_RATIO: ClassVar[int] = 200  # of the sides, as in the reference

    @classmethod
    def usual(cls, gguf: GGUFFile) -> dict[str, Any]:
        kind = str(gguf.get("clip.vision.projector_type", gguf.get("clip.projector_type", "")))
        return {**cls.defaults(), **cls.PUBLISHED.get(kind, {})}

    @property
    def most_pixels(self) -> int:
        return self.min_pixels * self.temporal_patch_size  # larger pictures are not enlarged

    def mistake(self) -> str:
        if self.min_pixels > self.max_pixels:
            return f"clip.vision.image_min_pixels = {self.min_pixels} is larger than the maximum of {self.max_pixels}"
        return super().mistake() or self.unfit_side("a feature", self.patch_size * self.merge_size, self.merge_size)
