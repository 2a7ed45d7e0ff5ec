"""Gemma 4: one picture that fills a budget of tokens, whatever its size."""

from ..families.hparams import key
from .settings import PictureSettings


class Gemma4PictureSettings(PictureSettings):
    """Settings of transformers' Gemma4ImageProcessor.

    ===========  ====================================  ===================================
    field        key                                   config
    ===========  ====================================  ===================================
    patch_size   clip.vision.patch_size                patch_size (16 if absent)
    pool         clip.vision.projector.scale_factor    pooling_kernel_size
    max_tokens   hybrid.vision.max_soft_tokens         max_soft_tokens
    start, end   hybrid.vision.start_token, .end_token  boi_token, eoi_token of tokenizer_config.json
    ===========  ====================================  ===================================

    Its config has do_normalize false: the means are 0 and the deviations 1.
    """

    image_mean: tuple[float, ...] = key("vision.image_mean", (0.0, 0.0, 0.0))
    image_std: tuple[float, ...] = key("vision.image_std", (1.0, 1.0, 1.0))
    patch_size: int = key("vision.patch_size", 16, minimum=1)
    image_token: str = key("hybrid.vision.image_token", "<|image|>")
    pool: int = key("vision.projector.scale_factor", 3, minimum=1)
    max_tokens: int = key("hybrid.vision.max_soft_tokens", 280, minimum=1)
    start: str = key("hybrid.vision.start_token", "<|image>")
    end: str = key("hybrid.vision.end_token", "<image|>")

    @property
    def most_pixels(self) -> int:
        return self.max_tokens * (self.patch_size * self.pool) ** 2
