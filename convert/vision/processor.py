"""The settings of a checkpoint's processor: which files have them, and the ones that all towers share."""

from typing import Any, Self

from hybrid.quant.ggml.vision.settings import RESAMPLES

from ..checkpoint import Checkpoint, Config
from ..checkpoint.config import kind_of

_TOOLS = "only how transformers computes, or of other programs"
_OTHERS = "only videos and sound"
# Fields of processors that change no pixel, with reasons.
IDLE = {
    **dict.fromkeys(("image_processor_type", "processor_class", "feature_extractor_type"), "only description"),
    **dict.fromkeys(("return_metadata", "return_row_col_info", "data_format", "input_data_format", "device"), _TOOLS),
    **dict.fromkeys(("disable_grouping", "return_tensors", "default_to_square", "chat_template"), _TOOLS),
    **dict.fromkeys(("video_processor", "feature_extractor", "audio_ms_per_token", "audio_seq_length"), _OTHERS),
}


class PictureConfig(Config):
    """A config.json, its processor's settings (`processor`: of pictures, `outer`: around them), texts of tokens."""

    def __init__(self, config: Config, processor: Config, outer: Config, tokens: Config) -> None:
        super().__init__(config.data, config.where, config.looked, config.prefixes)
        self.processor = processor
        self.outer = outer
        self.tokens = tokens

    @classmethod
    def of(cls, checkpoint: Checkpoint, config: Config) -> Self:
        """As transformers reads them: an image processor within processor_config.json comes first."""
        outer = checkpoint.optional_config("processor_config.json")
        inner = outer.section("image_processor")
        own = checkpoint.optional_config("preprocessor_config.json")
        own = Config(inner.data, inner.where) if inner.data else own
        around = {key: value for key, value in outer.data.items() if key != "image_processor"}
        tokens = checkpoint.optional_config("tokenizer_config.json")
        return cls(config, own, Config(around, outer.where), tokens)

    def pixels(self) -> dict[str, Any]:
        """image_mean, image_std and resample, for `PictureSettings.make`; settings of one value are refused otherwise.
        A processor without `do_normalize` has means of 0 and deviations of 1."""
        found: dict[str, Any] = {}
        self.processor.expects("do_resize", True)
        self.processor.expects("do_convert_rgb", True)
        scale = 1.0
        if self.processor.boolean("do_rescale", default=True):
            scale = 255 * self.processor.number("rescale_factor", default=1 / 255)
            scale = 1.0 if abs(scale - 1) < 1e-9 else scale
        else:
            scale = 255.0
        mean, std = self.channels("image_mean"), self.channels("image_std")
        if not self.processor.boolean("do_normalize", default=True):
            mean, std = (0.0,) * 3, (1.0,) * 3
        for name, values in (("image_mean", mean), ("image_std", std)):
            if values is not None:
                found[name] = tuple(value / scale for value in values)
            elif scale != 1.0:
                raise self.processor.wrong(name, "three numbers")
        if "resample" in self.processor:
            found["resample"] = RESAMPLES[self.processor.integer("resample", minimum=0, maximum=len(RESAMPLES) - 1)]
        return found

    def repeats(self, section: Config, key: str, value: Any) -> None:
        """A field of the config that repeats the processor's; a note names it if it has another value."""
        if key in section and section.data[key] != value:
            section.looked.overruled |= {f"{prefix}{key}": self.processor.where for prefix in section.prefixes}

    def channels(self, key: str) -> tuple[float, ...] | None:
        """Three numbers, one per colour; None: absent."""
        values = self.processor.get(key)
        if values is None:
            return None
        numbers = isinstance(values, list) and all(type(x) in (int, float) and abs(x) < 1e6 for x in values)
        if not numbers or len(values) != 3 or (key == "image_std" and min(values) <= 0):
            raise self.processor.wrong(key, "three numbers" + ", each positive" * (key == "image_std"))
        return tuple(map(float, values))

    def texts(self, **names: str) -> dict[str, str]:
        """Texts of tokens: `field = name in tokenizer_config.json`; absent ones are left out."""
        extra = self.tokens.section("extra_special_tokens")
        found = {}
        for field, name in names.items():
            outer = self.outer.get(name)
            value = self.tokens.get(name) or extra.get(name) or outer
            value = value.get("content") if isinstance(value, dict) else value
            if value is not None and not isinstance(value, str):
                raise self.tokens.wrong(name, f"a token's text, not {kind_of(value)}")
            if value:
                found[field] = value
        return found
