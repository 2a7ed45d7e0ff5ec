"""The declaration of a tower: its keys from a config and its processor's, and the source of each tensor of its file.

A tower is a `Family` whose file llama.cpp calls mmproj: `general.architecture` is clip.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.metadata import full_key
from hybrid.quant.ggml.types import FileType, GGMLType
from hybrid.quant.ggml.vision.settings import PictureSettings
from hybrid.quant.ggml.vision.tower import TOWERS, TowerHparams
from hybrid.quant.ggml.vision_names import CLIP, MMPROJ

from ..architectures.family import Family, Row, Shapes, row
from ..checkpoint import Config
from .processor import IDLE, PictureConfig

# words of Family.order that llama.cpp's converter begins with
SIZES = (
    ".general.file_type .has_vision_encoder n_out .vision.image_size=image_size patch_size n_embd n_ff n_layer n_head "
    ".vision.image_mean=image_mean .vision.image_std=image_std"
)
IMAGE_TOKENS = dict.fromkeys(
    (
        *("image_token_id", "image_token_index", "boi_token_id", "boi_token_index", "eoi_token_id", "eoi_token_index"),
        *("vision_start_token_id", "vision_end_token_id", "vision_token_id"),
    ),
    "the file has the texts of these tokens, and the vocabulary their numbers",
)
VIDEOS = dict.fromkeys(("video_token_id", "tokens_per_second"), "only videos")


@dataclass(frozen=True)
class Sizes:
    """Sizes of every tower."""

    n_layer: int
    n_embd: int
    n_ff: int
    n_head: int
    patch_size: int
    n_out: int  # width of the text model


@dataclass(frozen=True)
class Tower(Family):
    """One tower. Its classes change class variables, `read_more`, `outer` and `block`."""

    arch: ClassVar[str] = CLIP
    general_type: ClassVar[str] = MMPROJ
    n_vocab = 0
    tied = False
    generates: ClassVar[bool] = False
    usual_type: ClassVar[FileType | None] = FileType.F16  # by default
    own_objects: ClassVar[tuple[str, ...]] = ("vision_config.",)
    taken: ClassVar[tuple[str, ...]]  # prefixes of the names of its tensors
    left_to_readers: ClassVar[Mapping[str, Any]] = {}  # keys that are left out with these values, as by llama.cpp's
    untaken: ClassVar[tuple[str, ...]] = ()  # parts of names of tensors that nothing reads
    projector: ClassVar[str]  # clip.projector_type
    usual: ClassVar[Mapping[str, int]] = {}  # transformers' defaults of absent sizes
    activations: ClassVar[tuple[str, ...]] = ("gelu_pytorch_tanh",)
    usual_activation: ClassVar[str] = "gelu_pytorch_tanh"
    shared_without_effect: ClassVar[Mapping[str, str]] = {**IDLE, **IMAGE_TOKENS, **VIDEOS}

    n_layer: int
    n_embd: int
    sizes: Sizes
    settings: PictureSettings
    more: Mapping[str, Any]  # further values of keys, by the words of `order`

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        assert isinstance(config, PictureConfig)
        vision = config.section("vision_config")
        text = config.section("text_config").over(config)
        for key in ("in_channels", "num_channels", "in_chans"):
            vision.expects(key, 3)
        cls.read_activation(vision)
        sizes = Sizes(
            n_layer=cls.size(vision, "num_hidden_layers", "depth", maximum=4096),
            n_embd=cls.size(vision, "hidden_size"),
            n_ff=cls.size(vision, "intermediate_size"),
            n_head=cls.size(vision, "num_attention_heads", "num_heads"),
            patch_size=cls.size(vision, "patch_size", maximum=8192),
            n_out=text.integer("hidden_size"),
        )
        settings, more = cls.read_more(config, vision, sizes)
        if sizes.n_embd % sizes.n_head:
            raise vision.wrong("num_attention_heads", f"a divisor of the width {sizes.n_embd}")
        if mistake := settings.mistake():
            raise config.processor.wrong("image_processor_type", f"settings that fit each other: {mistake}")
        return cls(sizes.n_layer, sizes.n_embd, sizes, settings, more)

    @classmethod
    def read_activation(cls, vision: Config) -> None:
        """UnsupportedError: the tower has another activation."""
        key = "hidden_activation" if "hidden_activation" in vision.data else "hidden_act"
        vision.expects(key, *cls.activations)
        if vision.data.get(key) is None and cls.usual_activation not in cls.activations:
            raise vision.wrong(key, " or ".join(cls.activations))

    @classmethod
    def size(cls, vision: Config, *keys: str, maximum: int = 1 << 24) -> int:
        """A size of the tower, with transformers' default."""
        default = {"default": cls.usual[keys[0]]} if keys[0] in cls.usual else {}
        return vision.integer(*keys, maximum=maximum, **default)

    @classmethod
    @abstractmethod
    def read_more(cls, config: PictureConfig, vision: Config, sizes: Sizes) -> tuple[PictureSettings, dict[str, Any]]:
        """`settings` and `more`."""

    @property
    def hparams(self) -> type[TowerHparams]:  # type: ignore[override]
        return TOWERS[self.projector]

    def leaves_out(self, name: str) -> bool:
        return not name.startswith(self.taken) or any(part in name for part in self.untaken)

    def keys(self, file_type: FileType) -> Iterator[tuple[str, Any]]:
        """llama.cpp's keys in its converter's order, then keys of pictures that it lacks."""
        there = set()
        for key, value in super().keys(file_type):
            there.add(full_key(CLIP, key))
            yield key, value
        for key, value in self.settings.pairs():
            if key not in there and self.left_to_readers.get(key) != value:
                yield key.removeprefix(f"{CLIP}."), value

    def values(self) -> dict[str, Any]:
        return {
            "has_vision_encoder": True,
            "projector_type": self.projector,
            "use_gelu": True,
            "image_mean": self.settings.image_mean,
            "image_std": self.settings.image_std,
            **vars(self.sizes),
            **self.more,
        }

    def rows(self) -> Iterator[Row]:
        yield from self.outer()
        for i in range(self.n_layer):
            yield from self.block(i, f"v.blk.{i}.")

    @abstractmethod
    def outer(self) -> Iterator[Row]:
        """Tensors outside of the blocks: of patches, positions, the projector."""

    @abstractmethod
    def block(self, i: int, blk: str) -> Iterator[Row]:
        """Tensors of block i."""


def linear(source: str, target: str, n_out: int, n_in: int, *, bias: bool = True) -> Iterator[Row]:
    """A matrix and its bias."""
    yield row(f"{source}.weight", f"{target}.weight", n_out, n_in)
    if bias:
        yield row(f"{source}.bias", f"{target}.bias", n_out)


def norm(source: str, target: str, n: int, *, bias: bool = True) -> Iterator[Row]:
    """A norm: its factors and biases."""
    yield row(f"{source}.weight", f"{target}.weight", n)
    if bias:
        yield row(f"{source}.bias", f"{target}.bias", n)


def exact(rows: Iterator[Row]) -> Iterator[Row]:
    """The same tensors, in F32 whatever the type of the file."""
    return (replace(each, type=GGMLType.F32) for each in rows)
