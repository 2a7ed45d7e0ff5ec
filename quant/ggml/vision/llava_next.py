"""Granite 4 vision, as LLaVA-NeXT: the whole picture as one tile, then tiles of a padded one of a listed size."""

from ..families.hparams import key
from .settings import CLIP_MEAN, CLIP_STD, PictureSettings


class LlavaNextSettings(PictureSettings):
    """Settings of transformers' LlavaNextImageProcessor and Granite4VisionProcessor.

    ============  =====================================  ====================================================
    field         key                                    config
    ============  =====================================  ====================================================
    tile_size     clip.vision.image_size                 crop_size.height; size and the tower's image_size have
                                                         to be equal to it
    sizes         clip.vision.image_grid_pinpoints       image_grid_pinpoints, in the file w, h, w, h ... (in the
                                                         config [h, w] pairs)
    patch_size    clip.vision.patch_size                 vision_config.patch_size
    query_side    clip.vision.projector.query_side       downsample_rate "q/w" of config.json: q
    window_side   clip.vision.projector.window_side      w
    ============  =====================================  ====================================================

    vision_feature_select_strategy has to be "full" and num_additional_image_tokens 0.
    """

    image_mean: tuple[float, ...] = key("vision.image_mean", CLIP_MEAN)
    image_std: tuple[float, ...] = key("vision.image_std", CLIP_STD)
    patch_size: int = key("vision.patch_size", 14, minimum=1)
    tile_size: int = key("vision.image_size", minimum=1)
    sizes: tuple[int, ...] = key(
        "vision.image_grid_pinpoints", (672, 336, 336, 672, 672, 672, 336, 1008, 1008, 336), minimum=1
    )
    query_side: int = key("vision.projector.query_side", 1, minimum=1)
    window_side: int = key("vision.projector.window_side", 1, minimum=1)

    @property
    def most_pixels(self) -> int:
        areas = (w * h for w, h in zip(self.sizes[::2], self.sizes[1::2], strict=True))
        return max(areas) + self.tile_size**2

    def mistake(self) -> str:
        if len(self.sizes) % 2 or not self.sizes:
            return f"clip.vision.image_grid_pinpoints has {len(self.sizes)} values, expected pairs"
        if any(side % self.tile_size for side in self.sizes):
            return f"clip.vision.image_grid_pinpoints: a side is no multiple of {self.tile_size}"
        if self.query_side > self.window_side:
            return f"queries of {self.query_side} a side in a window of {self.window_side}"
        return super().mistake() or self.unfit_side("clip.vision.image_size", self.tile_size, self.window_side)
