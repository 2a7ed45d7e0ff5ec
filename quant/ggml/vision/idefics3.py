"""SmolVLM and Idefics3: rows of square tiles, then the whole picture as one more tile."""

from typing import ClassVar

from ..families.hparams import key
from .settings import PictureSettings


class Idefics3Settings(PictureSettings):
    """Settings of transformers' SmolVLMImageProcessor and Idefics3ImageProcessor.

    ============  ====================================  =====================================================
    field         key                                   config
    ============  ====================================  =====================================================
    tile_size     clip.vision.image_size                max_image_size.longest_edge, equal to the tower's
                                                        image_size (364 if absent)
    longest_edge  clip.vision.preproc_image_size        size.longest_edge; 0: four tiles
    patch_size    clip.vision.patch_size                vision_config.patch_size
    merge_size    clip.vision.projector.scale_factor    scale_factor of config.json
    use_tiles     hybrid.vision.do_image_splitting      do_image_splitting
    around,       hybrid.vision.around_token,           fake_image_token, global_image_token of
    whole         hybrid.vision.global_token            tokenizer_config.json
    ============  ====================================  =====================================================

    image_seq_len of processor_config.json has to be (tile_size / patch_size / merge_size)^2.
    """

    patch_size: int = key("vision.patch_size", 14, minimum=1)
    resample: str = key("hybrid.vision.resample", "lanczos")
    tile_size: int = key("vision.image_size", 364, minimum=1)
    longest_edge: int = key("vision.preproc_image_size", 0)
    merge_size: int = key("vision.projector.scale_factor", 2, minimum=1)
    use_tiles: bool = key("hybrid.vision.do_image_splitting", True)
    around: str = key("hybrid.vision.around_token", "<fake_token_around_image>")
    whole: str = key("hybrid.vision.global_token", "<global-img>")

    LARGEST_SIDE: ClassVar[int] = 4096  # before tiles are cut, as in the reference

    @property
    def longest(self) -> int:
        """Pixels of the longer side before it becomes whole tiles."""
        return min(self.longest_edge or 4 * self.tile_size, self.LARGEST_SIDE)

    @property
    def most_pixels(self) -> int:
        return (-(-self.longest // self.tile_size) * self.tile_size) ** 2 + self.tile_size**2

    def mistake(self) -> str:
        return super().mistake() or self.unfit_side("clip.vision.image_size", self.tile_size, self.merge_size, cut=True)
