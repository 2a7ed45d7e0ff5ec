"""How a model's processor makes arrays of a picture: a field per key of the file with the tower.

One class per kind of processor. Its docstring has a table: field, key, where preprocessor_config.json or
processor_config.json has the value. Keys of llama.cpp begin with `clip.`, others with `hybrid.vision.`. A file may
lack a key that has a default: the value of the processor's class in transformers.

Three settings of the reference have no field: `do_resize` and `do_convert_rgb` count as true; without `do_normalize`,
the means are 0 and the deviations 1; a `rescale_factor` r other than 1/255 divides both by 255 r.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from types import GenericAlias
from typing import Any, Self, dataclass_transform, get_type_hints

import numpy as np

from ..errors import FormatError, shown
from ..families.hparams import key, scalar, wrong
from ..metadata import full_key
from ..reader import GGUFFile

CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
RESAMPLES = ("nearest", "lanczos", "bilinear", "bicubic")  # `resample` of a config is an index
LARGEST_TILE = 8192  # pixels of a side, as in llama.cpp
MOST_PIXELS = 1 << 26  # of all tiles of a picture


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(key,))
@dataclass(frozen=True, kw_only=True)
class PictureSettings(ABC):
    """Settings of every kind of processor.

    ============  =======================  ======================================================
    field         key                      config
    ============  =======================  ======================================================
    image_mean    clip.vision.image_mean   image_mean (3 values; 0 without do_normalize)
    image_std     clip.vision.image_std    image_std (3 values; 1 without do_normalize)
    patch_size    clip.vision.patch_size   patch_size of the tower
    resample      hybrid.vision.resample   RESAMPLES[resample]
    image_token   hybrid.vision.image_token  text of the token that stands for one feature: `image_token` of
                                           tokenizer_config.json, if it is there
    ============  =======================  ======================================================
    """

    image_mean: tuple[float, ...] = key("vision.image_mean", (0.5, 0.5, 0.5))
    image_std: tuple[float, ...] = key("vision.image_std", (0.5, 0.5, 0.5))
    patch_size: int = key("vision.patch_size", minimum=1)
    resample: str = key("hybrid.vision.resample", "bicubic")
    image_token: str = key("hybrid.vision.image_token", "<image>")

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)

    @classmethod
    def keys(cls) -> dict[str, str]:
        """The key of each field."""
        return {field.name: full_key("clip", field.metadata["key"]) for field in dataclasses.fields(cls)}

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """The fields that a file may lack, and their values then."""
        return {
            field.name: default
            for field in dataclasses.fields(cls)
            if isinstance(default := field.metadata["default"], bool | int | float | str | tuple)
        }

    @classmethod
    def usual(cls, gguf: GGUFFile) -> dict[str, Any]:
        """`defaults` for a file, which another program may have written."""
        return cls.defaults()

    @classmethod
    def make(cls, **values: Any) -> Self:
        """Settings with defaults for the fields that are not given."""
        return cls(**{**cls.defaults(), **values})

    @classmethod
    def read(cls, gguf: GGUFFile) -> Self:
        """Reads all fields. FormatError names the key that is missing or has a wrong value."""
        kinds, defaults, values = get_type_hints(cls), cls.usual(gguf), {}
        for field in dataclasses.fields(cls):
            name = full_key("clip", field.metadata["key"])
            raw = gguf.get(name, defaults[field.name]) if field.name in defaults else gguf.get(name)
            values[field.name] = _value(gguf, name, raw, kinds[field.name], field.metadata["minimum"])
        settings = cls(**values)
        if mistake := settings.mistake():
            raise FormatError(f"{gguf.path.name}: {mistake}. Convert the model again.")
        return settings

    def pairs(self) -> Iterator[tuple[str, Any]]:
        """The key-value pairs of a file. Keys of ours are left out if they have the default."""
        defaults = self.defaults()
        for name, key_ in self.keys().items():
            value = getattr(self, name)
            if key_.startswith("clip.") or value != defaults.get(name):
                yield key_, list(value) if isinstance(value, tuple) else value

    def mistake(self) -> str:
        """Why no picture can be processed with these settings; "": nothing is wrong."""
        if len(self.image_mean) != 3 or len(self.image_std) != 3:
            return f"{len(self.image_mean)} means and {len(self.image_std)} deviations of colours, expected 3 of each"
        if not all(self.image_std):
            return "a deviation of a colour is 0"
        if self.resample not in RESAMPLES:
            return f"hybrid.vision.resample is {shown(self.resample, 40)}, expected one of {', '.join(RESAMPLES)}"
        if self.patch_size > LARGEST_TILE:
            return f"patches of {self.patch_size} pixels, expected at most {LARGEST_TILE}"
        if self.most_pixels > MOST_PIXELS:
            return f"a picture becomes up to {self.most_pixels} pixels, expected at most {MOST_PIXELS}"
        return ""

    @property
    @abstractmethod
    def most_pixels(self) -> int:
        """The most pixels that all tiles of a picture have together; enlarging stops there."""

    def unfit_side(self, name: str, side: int, parts: int, *, cut: bool = False) -> str:
        """The mistake of a side of a tile that is not a number of blocks of `parts` patches; "": none. cut: pixels
        after the last whole patch are not used, as in a convolution."""
        used = side // self.patch_size * self.patch_size if cut else side
        if side > LARGEST_TILE or not used or used % (self.patch_size * parts):
            unit = self.patch_size * parts
            return f"{name} is {side} pixels, expected a multiple of {unit} up to {LARGEST_TILE}"
        return ""


def _value(gguf: GGUFFile, name: str, raw: Any, kind: Any, minimum: float) -> Any:
    if isinstance(kind, GenericAlias):  # tuple[int, ...] or tuple[float, ...]
        each = kind.__args__[0]
        whole = isinstance(raw, tuple) or (isinstance(raw, np.ndarray) and raw.dtype.kind in "iuf" and raw.ndim == 1)
        if not whole or len(raw) > 4096:
            raise wrong(gguf, name, raw, "a list of numbers")
        return tuple(scalar(gguf, name, v.item() if isinstance(v, np.generic) else v, each, minimum) for v in raw)
    return scalar(gguf, name, raw, kind, minimum)
