"""What the towers share that resize pictures to whole features: Qwen2.5-VL, Qwen3-VL, Qwen3.5, LFM3-VL."""

from typing import Any

from hybrid.quant.ggml.vision.smart_resize import SmartResizeSettings

from ..checkpoint import Config
from .processor import PictureConfig
from .tower import Sizes

FRAMES = ("", ".1")  # endings of names: a patch has two frames, both of the same picture


def read_smart_resize(config: PictureConfig, vision: Config, sizes: Sizes) -> SmartResizeSettings:
    """The settings of Qwen2VLImageProcessor."""
    processor = config.processor
    vision.expects("temporal_patch_size", len(FRAMES))
    processor.expects("temporal_patch_size", len(FRAMES))
    processor.expects("patch_size", sizes.patch_size)
    n_merge = vision.integer("spatial_merge_size", default=2, maximum=64)
    processor.expects("merge_size", n_merge)
    area = processor.section("size")
    found: dict[str, Any] = {"patch_size": sizes.patch_size, "merge_size": n_merge}
    for field, key, inner in (("min_pixels", "min_pixels", "shortest"), ("max_pixels", "max_pixels", "longest")):
        edge = f"{inner}_edge"
        if key in processor:
            found[field] = processor.integer(key)
            if edge in area and area.data[edge] != found[field]:
                processor.looked.overruled[f"size.{edge}"] = key
        elif edge in area:
            found[field] = area.integer(edge)
    return SmartResizeSettings.make(**found, **config.pixels(), **config.texts(image_token="image_token"))


def check_output(vision: Config, sizes: Sizes) -> None:
    """CheckpointError: the merger's results have another width than the text model."""
    if vision.integer("out_hidden_size", default=3584) != sizes.n_out:
        raise vision.wrong("out_hidden_size", f"the width of the text model, {sizes.n_out}")


def read_rope(vision: Config, usual: float = 10000.0) -> float:
    """The base of the axial RoPE."""
    rope = vision.section("rope_parameters")
    rope.expects("rope_type", "axial", "default")
    return rope.number("rope_theta", default=usual)
