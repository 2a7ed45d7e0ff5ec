"""Gemma 3: every picture stretched to one size; crops of long ones, if the model has pan and scan."""

from ..families.hparams import key
from .settings import PictureSettings


class Gemma3PictureSettings(PictureSettings):
    """Settings of transformers' Gemma3ImageProcessor and Gemma3Processor.

    ==============  ====================================  =====================================================
    field           key                                   config
    ==============  ====================================  =====================================================
    image_size      clip.vision.image_size                size.height, equal to size.width and to the tower's
                                                          image_size (224 if absent)
    patch_size      clip.vision.patch_size                vision_config.patch_size
    pool            clip.vision.projector.scale_factor    image_size / patch_size / sqrt(image_seq_length of
                                                          processor_config.json, or mm_tokens_per_image of config.json)
    pan_and_scan    hybrid.vision.pan_and_scan            do_pan_and_scan (null: false)
    min_crop_size   hybrid.vision.pan_and_scan_min_crop_size   pan_and_scan_min_crop_size (null: 256)
    max_crops       hybrid.vision.pan_and_scan_max_num_crops   pan_and_scan_max_num_crops (null: 4)
    min_ratio       hybrid.vision.pan_and_scan_min_ratio       pan_and_scan_min_ratio_to_activate (null: 1.2)
    start, end      hybrid.vision.start_token, .end_token      boi_token, eoi_token of tokenizer_config.json
    ==============  ====================================  =====================================================

    llama.cpp's converter leaves pool out if it is 4.
    """

    patch_size: int = key("vision.patch_size", 14, minimum=1)
    resample: str = key("hybrid.vision.resample", "bilinear")
    image_token: str = key("hybrid.vision.image_token", "<image_soft_token>")
    image_size: int = key("vision.image_size", 224, minimum=1)
    pool: int = key("vision.projector.scale_factor", 4, minimum=1)
    pan_and_scan: bool = key("hybrid.vision.pan_and_scan", False)
    min_crop_size: int = key("hybrid.vision.pan_and_scan_min_crop_size", 256, minimum=1)
    max_crops: int = key("hybrid.vision.pan_and_scan_max_num_crops", 4, minimum=1)
    min_ratio: float = key("hybrid.vision.pan_and_scan_min_ratio", 1.2)
    start: str = key("hybrid.vision.start_token", "<start_of_image>")
    end: str = key("hybrid.vision.end_token", "<end_of_image>")

    @property
    def most_pixels(self) -> int:
        return (1 + self.max_crops * self.pan_and_scan) * self.image_size**2

    def mistake(self) -> str:
        if self.max_crops > 1024:
            return f"{self.max_crops} crops, expected at most 1024"
        return super().mistake() or self.unfit_side("clip.vision.image_size", self.image_size, self.pool, cut=True)
