"""SmolVLM and Idefics 3: SigLIP on tiles, a pixel shuffle, one matrix. arXiv:2504.05299"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hybrid.quant.ggml.vision.idefics3 import Idefics3Settings
from hybrid.quant.ggml.vision.settings import PictureSettings

from ..architectures.family import Row
from ..checkpoint import Config
from .processor import PictureConfig
from .siglip import SiglipTower
from .tower import SIZES, Sizes, Tower, linear


@dataclass(frozen=True)
class SmolVlmTower(SiglipTower):
    """One tower of SmolVLM or Idefics 3."""

    architectures: ClassVar[tuple[str, ...]] = ("SmolVLMForConditionalGeneration", "Idefics3ForConditionalGeneration")
    projector = "idefics3"
    order = f"{SIZES} .projector_type stated_eps n_merge .use_gelu .vision.preproc_image_size=longest_edge"
    hf = "model.vision_model."
    taken = (hf, "model.connector.")
    exact_patches = True
    without_effect: ClassVar[Mapping[str, str]] = {
        **Tower.shared_without_effect,
        **dict.fromkeys(("do_pad", "pad_token_id"), "only batches: no picture's own pixels are padded"),
        **dict.fromkeys(("tie_word_embeddings", "use_base_siglip"), "the tower has no words"),
    }
    usual: ClassVar[Mapping[str, int]] = {
        "num_hidden_layers": 12, "hidden_size": 1152, "intermediate_size": 3072, "num_attention_heads": 16,
        "patch_size": 32, "image_size": 224,
    }  # fmt: skip

    @classmethod
    def read_more(cls, config: PictureConfig, vision: Config, sizes: Sizes) -> tuple[PictureSettings, dict[str, Any]]:
        processor = config.processor
        tile = cls.size(vision, "image_size", maximum=8192)
        processor.section("max_image_size").expects("longest_edge", tile)
        longest = processor.section("size").integer("longest_edge", default=4 * tile, maximum=1 << 20)
        config.repeats(vision, "max_image_size", {"longest_edge": tile})
        config.repeats(vision, "size", {"longest_edge": longest})
        n_merge = config.integer("scale_factor", default=2, maximum=64)
        settings = Idefics3Settings.make(
            patch_size=sizes.patch_size,
            tile_size=tile,
            longest_edge=longest,
            merge_size=n_merge,
            use_tiles=processor.boolean("do_image_splitting", default=True),
            **config.pixels(),
            **config.texts(image_token="image_token", around="fake_image_token", whole="global_image_token"),
        )
        if not settings.mistake():
            config.outer.expects("image_seq_len", (tile // sizes.patch_size // n_merge) ** 2)
        eps = vision.number("layer_norm_eps", default=1e-6)
        return settings, {"image_size": tile, "longest_edge": longest, "n_merge": n_merge, "stated_eps": eps}

    def projector_rows(self) -> Iterator[Row]:
        n = self.n_embd * math.prod((self.more["n_merge"],) * 2)
        yield from linear("model.connector.modality_projection.proj", "mm.model.fc", self.sizes.n_out, n, bias=False)
