"""LFM2-VL: SigLIP 2 on tiles of any size, a pixel unshuffle, two matrices. arXiv:2511.23404"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hybrid.quant.ggml.vision.lfm2_tiles import Lfm2TilesSettings
from hybrid.quant.ggml.vision.settings import PictureSettings

from ..architectures.family import Row, row
from ..checkpoint import Config
from ..transforms import colours_first
from .processor import PictureConfig
from .siglip import SiglipTower
from .tower import SIZES, Sizes, Tower, linear, norm

IMAGE_SIZE = 256  # llama.cpp reads one, though pictures have any size
_REPEATED = (  # in published configs
    "do_image_splitting", "encoder_patch_size", "max_image_tokens", "max_num_patches", "max_pixels_tolerance",
    "max_tiles", "min_image_tokens", "min_tiles", "tile_size", "use_thumbnail",
)  # fmt: skip
_PROJECTOR = "model.multi_modal_projector."


@dataclass(frozen=True)
class Lfm2VlTower(SiglipTower):
    """One tower of LFM2-VL."""

    architectures: ClassVar[tuple[str, ...]] = ("Lfm2VlForConditionalGeneration",)
    projector = "lfm2"
    order = f"{SIZES} .projector_type stated_eps n_merge .use_gelu"
    hf = "model.vision_tower."
    taken = (hf, _PROJECTOR)
    without_effect: ClassVar[Mapping[str, str]] = {
        **Tower.shared_without_effect,
        **dict.fromkeys(("do_pad", "max_num_patches", "size"), "only batches: no picture's own pixels are padded"),
        "vision_use_head": "the tower's head is not used",
    }
    usual: ClassVar[Mapping[str, int]] = {
        "num_hidden_layers": 12, "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12,
        "patch_size": 16,
    }  # fmt: skip

    @classmethod
    def read_more(cls, config: PictureConfig, vision: Config, sizes: Sizes) -> tuple[PictureSettings, dict[str, Any]]:
        config.expects("vision_feature_layer", -1)
        config.expects("projector_hidden_act", "gelu")
        settings = cls.read_settings(config, sizes)
        return settings, {
            "image_size": IMAGE_SIZE,
            "n_merge": settings.merge_size,
            "stated_eps": vision.number("layer_norm_eps", default=1e-6),
            "n_positions": vision.integer("num_patches", default=256, maximum=1 << 20),
            "n_hidden": config.integer("projector_hidden_size", default=2560),
            "bias": config.boolean("projector_bias", default=True),
            "normed": config.boolean("projector_use_layernorm", default=True),
        }

    @classmethod
    def read_settings(cls, config: PictureConfig, sizes: Sizes) -> Lfm2TilesSettings:
        """The settings of Lfm2VlImageProcessor."""
        processor = config.processor
        processor.expects("encoder_patch_size", sizes.patch_size)
        n_merge = config.integer("downsample_factor", default=2, maximum=64)
        processor.expects("downsample_factor", n_merge)
        found: dict[str, Any] = {}
        for field, key in {
            "min_tiles": "min_tiles", "max_tiles": "max_tiles", "tile_size": "tile_size",
            "min_tokens": "min_image_tokens", "max_tokens": "max_image_tokens",
        }.items():  # fmt: skip
            if key in processor:
                found[field] = processor.integer(key)
        for field, key in (("use_tiles", "do_image_splitting"), ("use_thumbnail", "use_thumbnail")):
            found[field] = processor.boolean(key, default=True)
        for key in _REPEATED:
            config.repeats(config, key, processor.get(key))
        marks = config.outer.boolean("use_image_special_tokens", default=True)
        return Lfm2TilesSettings.make(
            patch_size=sizes.patch_size,
            merge_size=n_merge,
            tolerance=processor.number("max_pixels_tolerance", default=2.0),
            use_marks=config.boolean("use_image_special_tokens", default=marks),
            **found,
            **config.pixels(),
            **config.texts(
                image_token="image_token",
                start="image_start_token",
                end="image_end_token",
                thumbnail="image_thumbnail_token",
            ),
        )

    def notes(self) -> Iterator[str]:
        if not self.more["bias"]:
            yield "llama.cpp cannot load this tower: there the projector has biases"

    @property
    def n_positions(self) -> int:
        n: int = self.more["n_positions"]
        return n

    def patches(self) -> Iterator[Row]:
        n, p = self.n_embd, self.sizes.patch_size
        yield row(
            f"{self.hf}embeddings.patch_embedding.weight", "v.patch_embd.weight", n, 3, p, p,
            source_shape=(n, p * p * 3), transform=colours_first(p),
        )  # fmt: skip

    def projector_rows(self) -> Iterator[Row]:
        n, n_hidden, bias = self.n_embd * self.more["n_merge"] ** 2, self.more["n_hidden"], self.more["bias"]
        if self.more["normed"]:
            yield from norm(f"{_PROJECTOR}layer_norm", "mm.input_norm", n)
        yield from linear(f"{_PROJECTOR}linear_1", "mm.1", n_hidden, n, bias=bias)
        yield from linear(f"{_PROJECTOR}linear_2", "mm.2", self.sizes.n_out, n_hidden, bias=bias)
