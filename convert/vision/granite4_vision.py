"""Granite 4 Vision: SigLIP on tiles; a projector with queries and two attentions for each of several text layers. Of
ibm-granite."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hybrid.quant.ggml.vision.llava_next import LlavaNextSettings
from hybrid.quant.ggml.vision.settings import PictureSettings

from ..architectures.family import Row, row
from ..architectures.granite import Injection, read_injections
from ..checkpoint import Config
from .processor import PictureConfig
from .siglip import SiglipTower
from .tower import SIZES, Sizes, Tower, linear, norm


@dataclass(frozen=True)
class Granite4VisionTower(SiglipTower):
    """One tower of Granite 4 Vision."""

    architectures: ClassVar[tuple[str, ...]] = ("Granite4VisionForConditionalGeneration",)
    projector = "granite4_vision"
    order = (
        f"{SIZES} .projector_type stated_eps .use_gelu .vision.preproc_image_size=image_size query_side window_side "
        "layers offsets .vision.image_grid_pinpoints=sizes eps_projector?"
    )
    hf = "model.vision_tower."
    taken = (hf, "model.image_newline", "model.layerwise_projectors.", "model.spatial_projectors.")
    without_effect: ClassVar[Mapping[str, str]] = {
        **Tower.shared_without_effect,
        "vision_use_head": "the tower's head is not used",
        "do_pad": "only batches: pictures are always padded to one of the sizes",
        "do_center_crop": "every tile has the size of a crop",
        "image_seq_length": "tokens are counted by the sizes of pictures",
        "vision_feature_layer": "deepstack_layer_map and spatial_vision_layer count",
        "projector_dropout": "only training",
        **dict.fromkeys(
            (
                *("vocab_size", "max_position_embeddings", "use_qformer_text_input", "pad_token_id"),
                *("hidden_size", "num_attention_heads", "encoder_hidden_size"),
            ),
            "in qformer_config: the projector reads no text, and has the sizes of the tower",
        ),
    }
    usual: ClassVar[Mapping[str, int]] = {
        "num_hidden_layers": 12, "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12,
        "patch_size": 16, "image_size": 224,
    }  # fmt: skip
    own_objects: ClassVar[tuple[str, ...]] = ("vision_config.", "qformer_config.")

    @classmethod
    def read_more(cls, config: PictureConfig, vision: Config, sizes: Sizes) -> tuple[PictureSettings, dict[str, Any]]:
        processor = config.processor
        vision.expects("model_type", "siglip_vision_model")
        if vision.data.get("model_type") is None:
            raise vision.wrong("model_type", "siglip_vision_model")
        for each in (config, config.outer):
            each.expects("vision_feature_select_strategy", "full")
        if config.data.get("vision_feature_select_strategy") is None:
            raise config.wrong("vision_feature_select_strategy", "full")
        config.outer.expects("num_additional_image_tokens", 0)
        config.outer.expects("patch_size", sizes.patch_size)
        side = cls.size(vision, "image_size", maximum=8192)
        for section in ("crop_size", "size"):
            for key in ("height", "width", "shortest_edge"):
                processor.section(section).expects(key, side)
        query, window = read_rate(config)
        config.outer.expects("downsample_rate", f"{query}/{window}")
        pinpoints = read_pinpoints(config)
        processor.expects("image_grid_pinpoints", pinpoints)
        former = config.section("qformer_config")
        former.expects("hidden_act", "gelu")
        former.expects("num_hidden_layers", 1)
        former.expects("cross_attention_frequency", 1)
        injections = read_injections(config)
        settings = LlavaNextSettings.make(
            patch_size=sizes.patch_size,
            tile_size=side,
            sizes=tuple(x for height, width in pinpoints for x in (width, height)),
            query_side=query,
            window_side=window,
            **config.pixels(),
            **config.texts(image_token="image_token"),
        )
        return settings, {
            "image_size": side,
            "stated_eps": vision.number("layer_norm_eps", default=1e-6),
            "query_side": query,
            "window_side": window,
            "sizes": settings.sizes,
            "layers": [each.block for each in injections],
            "offsets": [each.offset for each in injections],
            "eps_projector": former.number("layer_norm_eps", default=1e-12),
            "injections": injections,
            "n_ff_projector": former.integer("intermediate_size", default=3072),
        }

    def projector_rows(self) -> Iterator[Row]:
        n, n_ff, n_out = self.n_embd, self.more["n_ff_projector"], self.sizes.n_out
        yield row("model.image_newline", "v.image_newline", n_out)
        sides = {"query": self.more["query_side"], "image_positions": self.more["window_side"]}
        for k, injection in enumerate(self.more["injections"]):
            assert isinstance(injection, Injection)
            hf, blk = f"model.{injection.projector}.", f"v.proj_blk.{k}."
            for old, new in (("query", "query"), ("image_positions", "img_pos")):
                yield row(hf + old, blk + new, 1, sides[old] ** 2, n)
            yield from norm(f"{hf}norm", f"{blk}norm", n)
            yield from norm(f"{hf}qformer.layernorm", f"{blk}post_norm", n)
            layer = f"{hf}qformer.encoder.layer.0."
            for old, new in (("attention", "self_attn"), ("crossattention", "cross_attn")):
                for part, short in (("query", "q"), ("key", "k"), ("value", "v")):
                    yield from linear(f"{layer}{old}.attention.{part}", f"{blk}{new}_{short}", n, n)
                yield from linear(f"{layer}{old}.output.dense", f"{blk}{new}_out", n, n)
                yield from norm(f"{layer}{old}.output.LayerNorm", f"{blk}{new}_norm", n)
            yield from linear(f"{layer}intermediate_query.dense", f"{blk}ffn_up", n_ff, n)
            yield from linear(f"{layer}output_query.dense", f"{blk}ffn_down", n, n_ff)
            yield from norm(f"{layer}output_query.LayerNorm", f"{blk}ffn_norm", n)
            yield from linear(f"{hf}out_linear", f"{blk}linear", n_out, n)


def read_rate(config: Config) -> tuple[int, int]:
    """Sides of a projector's queries and of its window."""
    sides = config.string("downsample_rate").split("/")
    if len(sides) != 2 or not all(side.isdecimal() and 0 < int(side) < 256 for side in sides):
        raise config.wrong("downsample_rate", "two sides, such as 4/8")
    return int(sides[0]), int(sides[1])


def read_pinpoints(config: Config) -> list[list[int]]:
    """Sizes of pictures: heights and widths."""
    found = config.get("image_grid_pinpoints")
    found = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]] if found is None else found
    pairs = isinstance(found, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in found)
    if not pairs or not all(type(side) is int and side > 0 for pair in found for side in pair):
        raise config.wrong("image_grid_pinpoints", "pairs of a height and a width")
    assert isinstance(found, list)
    return found
