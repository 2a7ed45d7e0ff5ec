"""LFM2-VL: a small picture whole, a large one as tiles and a small copy of the whole."""

from ..families.hparams import key
from .settings import PictureSettings


class Lfm2TilesSettings(PictureSettings):
    """Settings of transformers' Lfm2VlImageProcessor.

    ===================  ====================================  ==================================================
    field                key                                   config
    ===================  ====================================  ==================================================
    patch_size           clip.vision.patch_size                encoder_patch_size (16 if absent)
    merge_size           clip.vision.projector.scale_factor    downsample_factor
    min_tiles            clip.vision.preproc_min_tiles         min_tiles
    max_tiles            clip.vision.preproc_max_tiles         max_tiles
    tile_size            hybrid.vision.tile_size               tile_size (llama.cpp's image_size is always 256)
    min_tokens           hybrid.vision.min_image_tokens        min_image_tokens
    max_tokens           hybrid.vision.max_image_tokens        max_image_tokens
    tolerance            hybrid.vision.max_pixels_tolerance    max_pixels_tolerance
    use_tiles            hybrid.vision.do_image_splitting      do_image_splitting
    use_thumbnail        hybrid.vision.use_thumbnail           use_thumbnail
    use_marks            hybrid.vision.use_image_special_tokens  use_image_special_tokens (config.json, or processor)
    start, end,          hybrid.vision.start_token, .end_token,  image_start_token, image_end_token,
    thumbnail            .thumbnail_token                      image_thumbnail_token of tokenizer_config.json
    ===================  ====================================  ==================================================

    size and max_num_patches have no effect: tiles run without padding.
    """

    patch_size: int = key("vision.patch_size", 16, minimum=1)
    resample: str = key("hybrid.vision.resample", "bilinear")
    merge_size: int = key("vision.projector.scale_factor", 2, minimum=1)
    min_tiles: int = key("vision.preproc_min_tiles", 2, minimum=1)
    max_tiles: int = key("vision.preproc_max_tiles", 10, minimum=1)
    tile_size: int = key("hybrid.vision.tile_size", 512, minimum=1)
    min_tokens: int = key("hybrid.vision.min_image_tokens", 64, minimum=1)
    max_tokens: int = key("hybrid.vision.max_image_tokens", 256, minimum=1)
    tolerance: float = key("hybrid.vision.max_pixels_tolerance", 2.0)
    use_tiles: bool = key("hybrid.vision.do_image_splitting", True)
    use_thumbnail: bool = key("hybrid.vision.use_thumbnail", True)
    use_marks: bool = key("hybrid.vision.use_image_special_tokens", True)
    start: str = key("hybrid.vision.start_token", "<|image_start|>")
    end: str = key("hybrid.vision.end_token", "<|image_end|>")
    thumbnail: str = key("hybrid.vision.thumbnail_token", "<|img_thumbnail|>")

    @property
    def most_pixels(self) -> int:
        return self.max_tiles * self.tile_size**2 + self.max_tokens * (self.patch_size * self.merge_size) ** 2

    def mistake(self) -> str:
        if self.min_tiles > self.max_tiles or self.max_tiles > 64:
            return f"{self.min_tiles} to {self.max_tiles} tiles, expected a minimum below the maximum, and up to 64"
        if self.min_tokens > self.max_tokens:
            return f"hybrid.vision.min_image_tokens = {self.min_tokens} is larger than the maximum, {self.max_tokens}"
        return super().mistake() or self.unfit_side("hybrid.vision.tile_size", self.tile_size, self.merge_size)
