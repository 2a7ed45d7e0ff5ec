"""Granite 3 and HyperCLOVA X: Llama with four factors. Of ibm-granite and Naver."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.granite import GraniteHparams

from ..checkpoint import Config
from .family import Row, Shapes, row, text_part
from .llama import LLAMA_HEADS, Llama
from .unused_fields import ONLY_PICTURES, PICTURES

SCALES = "attention_scale embedding_scale residual_scale logit_scale"  # words of Family.order
_SCALES = {
    "attention_scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling",
}
# norms after the parts: the checkpoint's and GGUF's names
AFTER = {"post_norm1": "post_attention_norm", "post_norm2": "post_ffw_norm"}


def read_scales(config: Config) -> dict[str, float]:
    """The four factors by their names in GraniteHparams."""
    return {name: config.number(key, default=1.0) for name, key in _SCALES.items()}


@dataclass(frozen=True)
class Granite(Llama):
    """One model of Granite 3, all attention, dense."""

    arch = "granite"
    architectures = ("GraniteForCausalLM",)
    hparams: ClassVar[type[Any]] = GraniteHparams
    order = f"{LLAMA_HEADS} .vocab_size n_rot {SCALES}"
    pre = ("dbrx", "refact")

    scales: Mapping[str, float]

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        return {"scales": read_scales(config)}

    def values(self) -> dict[str, Any]:
        return {**super().values(), **self.scales}


@dataclass(frozen=True)
class HyperClovaX(Granite):
    """One model of HyperCLOVA X SEED Think, with norms after both parts of a layer or without. Its logits are
    multiplied by the config's factor, in Granite divided. arXiv:2601.03286"""

    architectures = ("HyperCLOVAXForCausalLM",)

    normed_after: bool

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        scales = read_scales(config)
        d_head = config.integer("hidden_size") // config.integer("num_attention_heads")
        config.expects("head_dim", d_head)
        scales["attention_scale"] = config.number("attention_multiplier", default=d_head**-0.5)
        scales["logit_scale"] = 1 / scales["logit_scale"]
        return {"scales": scales, "normed_after": config.boolean("use_post_norm", default=True)}

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if self.normed_after:
            yield "llama.cpp cannot load this file: in this architecture it has no norms after the parts of a layer"

    def rows(self) -> Iterator[Row]:
        yield from super().rows()
        for i in range(self.n_layer if self.normed_after else 0):
            for source, target in AFTER.items():
                yield row(f"model.layers.{i}.{source}.weight", f"blk.{i}.{target}.weight", self.n_embd)


@dataclass(frozen=True)
class Granite4Vision(Granite):
    """The text model of Granite 4 Vision: features of a picture are added before several layers."""

    architectures = ("Granite4VisionForConditionalGeneration",)
    order = f"{Granite.order} deepstack?"
    without_effect: ClassVar[Mapping[str, str]] = {
        **PICTURES,
        **dict.fromkeys(
            (
                *("qformer_config", "image_grid_pinpoints", "image_seq_length", "downsample_rate"),
                *("vision_feature_select_strategy", "projector_dropout", "spatial_vision_layer"),
            ),
            ONLY_PICTURES,
        ),
    }
    conditional: ClassVar[Mapping[str, str]] = {
        **Granite.conditional,
        **dict.fromkeys(("deepstack_layer_map", "spatial_target_layers"), "where it changes the order of text layers"),
    }
    dropped: ClassVar[tuple[str, ...]] = (
        *("model.vision_tower.", "model.image_newline"),
        *("model.layerwise_projectors.", "model.spatial_projectors."),
    )

    deepstack: tuple[int, ...]

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        return super().read(text_part(config), shapes)

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        mapping = [-1] * config.integer("num_hidden_layers", maximum=4096)
        for k, injection in enumerate(read_injections(config)):
            mapping[injection.target] = k or -1  # the first features are a picture's tokens
        return {**super().read_more(config), "deepstack": tuple(mapping)}

    def canonical(self, name: str) -> str:
        return super().canonical(name.replace("model.language_model.", "model.", 1))


@dataclass(frozen=True)
class Injection:
    """A picture's features for one layer. target: of the text model; block: of the tower, whose output is read; offset:
    the pixel of every 2 x 2 that queries add, -1: averages; projector: name in the checkpoint."""

    target: int
    block: int
    offset: int
    projector: str


def read_injections(config: Config) -> tuple[Injection, ...]:
    """What Granite 4 Vision adds before which layer, by layer. transformers counts the tower's embedding as output 0,
    llama.cpp the output of block 0."""
    n_text = config.section("text_config").integer("num_hidden_layers", maximum=4096)
    n_blocks = config.section("vision_config").integer("num_hidden_layers", default=12, maximum=4096)
    spatial = config.get("spatial_target_layers")
    found = list(_layerwise(config, n_blocks))
    for k, target in enumerate(
        [12, 15, 18, 21] if spatial is None else spatial if isinstance(spatial, list) else [None]
    ):
        found.append((config.integer("spatial_vision_layer", default=-1, minimum=-n_blocks), target, k, "spatial"))
    made = []
    for output, target, k, kind in found:
        key = "spatial_target_layers" if kind == "spatial" else "deepstack_layer_map"
        if type(target) is not int or not 0 <= target < n_text:
            raise config.wrong(key, f"numbers of the {n_text} text layers")
        if type(output) is not int or output == 0 or not -n_blocks <= output <= n_blocks:
            raise config.wrong(
                "spatial_vision_layer" if kind == "spatial" else key, f"one of the {n_blocks} vision layers"
            )
        block = output - 1 if output > 0 else n_blocks + output
        made.append(Injection(target, block, k if kind == "spatial" else -1, f"{kind}_projectors.{k}"))
    made.sort(key=lambda each: each.target)
    targets = [each.target for each in made]
    if targets[:1] != [0] or len(set(targets)) < len(targets):
        raise config.wrong("deepstack_layer_map", "text layers that differ, 0 among them")
    if len([each for each in made if each.offset >= 0]) > 4:
        raise config.wrong("spatial_target_layers", "at most four layers")
    return tuple(made)


def _layerwise(config: Config, n_blocks: int) -> Iterator[tuple[Any, Any, int, str]]:
    pairs = config.get("deepstack_layer_map")
    pairs = [] if pairs is None else pairs
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise config.wrong("deepstack_layer_map", f"pairs of one of {n_blocks} vision layers and a text layer")
    for k, (output, target) in enumerate(pairs):
        yield output, target, k, "layerwise"
