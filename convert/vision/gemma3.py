"""Gemma 3: SigLIP on one size of pictures, averages of patches, a norm and a matrix. arXiv:2503.19786"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hybrid.quant.ggml.types import GGMLType
from hybrid.quant.ggml.vision.gemma3 import Gemma3PictureSettings
from hybrid.quant.ggml.vision.settings import PictureSettings

from ..architectures.family import Row, row
from ..checkpoint import Config
from ..transforms import PLUS_ONE
from .processor import PictureConfig
from .siglip import SiglipTower
from .tower import SIZES, Sizes, Tower

_PROJECTOR = "multi_modal_projector."


@dataclass(frozen=True)
class Gemma3Tower(SiglipTower):
    """One tower of Gemma 3."""

    architectures: ClassVar[tuple[str, ...]] = ("Gemma3ForConditionalGeneration",)
    projector = "gemma3"
    order = f"{SIZES} .projector_type stated_eps .use_gelu .vision.projector.scale_factor=written_pool?"
    left_to_readers: ClassVar[Mapping[str, Any]] = {"clip.vision.projector.scale_factor": 4}
    hf = "vision_tower."
    taken = (hf, f"model.{hf}", _PROJECTOR, f"model.{_PROJECTOR}")
    exact_patches = True
    without_effect: ClassVar[Mapping[str, str]] = {
        **Tower.shared_without_effect,
        "vision_use_head": "the tower's head is not used",
    }
    usual: ClassVar[Mapping[str, int]] = {
        "num_hidden_layers": 12, "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12,
        "patch_size": 16, "image_size": 224,
    }  # fmt: skip

    @classmethod
    def read_more(cls, config: PictureConfig, vision: Config, sizes: Sizes) -> tuple[PictureSettings, dict[str, Any]]:
        processor = config.processor
        side = cls.size(vision, "image_size", maximum=8192)
        for key in ("height", "width"):
            processor.section("size").expects(key, side)
        n_tokens = config.integer("mm_tokens_per_image", default=256)
        for each in (config.outer, processor):
            each.expects("image_seq_length", n_tokens)
        features, patches = math.isqrt(n_tokens), side // sizes.patch_size
        if features**2 != n_tokens or patches % features:
            raise config.wrong("mm_tokens_per_image", f"the square of a divisor of {patches} patches")
        pool = patches // features
        found: dict[str, Any] = {}
        for field, key in {
            "min_crop_size": "pan_and_scan_min_crop_size", "max_crops": "pan_and_scan_max_num_crops",
        }.items():  # fmt: skip
            if key in processor:
                found[field] = processor.integer(key)
        if "pan_and_scan_min_ratio_to_activate" in processor:
            found["min_ratio"] = processor.number("pan_and_scan_min_ratio_to_activate")
        settings = Gemma3PictureSettings.make(
            patch_size=sizes.patch_size,
            image_size=side,
            pool=pool,
            pan_and_scan=processor.boolean("do_pan_and_scan", default=False),
            **found,
            **config.pixels(),
            **config.texts(image_token="image_token", start="boi_token", end="eoi_token"),
        )
        return settings, {
            "image_size": side,
            "written_pool": None if pool == 4 else pool,
            "stated_eps": vision.number("layer_norm_eps", default=1e-6),
        }

    def canonical(self, name: str) -> str:
        return super().canonical(name.removeprefix("model."))

    def projector_rows(self) -> Iterator[Row]:
        n = self.n_embd
        yield row(
            f"{_PROJECTOR}mm_input_projection_weight", "mm.input_projection.weight", n, self.sizes.n_out,
            type=GGMLType.F16,
        )  # fmt: skip
        yield row(f"{_PROJECTOR}mm_soft_emb_norm.weight", "mm.soft_emb_norm.weight", n, transform=PLUS_ONE)
