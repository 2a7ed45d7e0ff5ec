"""The processor of a model, by its settings."""

from typing import Any

from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.vision import picture_settings
from hybrid.quant.ggml.vision.gemma3 import Gemma3PictureSettings
from hybrid.quant.ggml.vision.gemma4 import Gemma4PictureSettings
from hybrid.quant.ggml.vision.idefics3 import Idefics3Settings
from hybrid.quant.ggml.vision.lfm2_tiles import Lfm2TilesSettings
from hybrid.quant.ggml.vision.llava_next import LlavaNextSettings
from hybrid.quant.ggml.vision.settings import PictureSettings
from hybrid.quant.ggml.vision.smart_resize import SmartResizeSettings

from .gemma3 import Gemma3Squares
from .gemma4 import Gemma4Rectangle
from .idefics3 import Idefics3Tiles
from .lfm2_tiles import Lfm2Tiles
from .llava_next import LlavaNextTiles
from .pixels import PictureProcessor
from .smart_resize import SmartResize

_PROCESSORS: dict[type[PictureSettings], type[PictureProcessor[Any]]] = {
    SmartResizeSettings: SmartResize,
    Lfm2TilesSettings: Lfm2Tiles,
    Gemma3PictureSettings: Gemma3Squares,
    Idefics3Settings: Idefics3Tiles,
    LlavaNextSettings: LlavaNextTiles,
    Gemma4PictureSettings: Gemma4Rectangle,
}


def processor(settings: PictureSettings) -> PictureProcessor[Any]:
    """The processor that has these settings."""
    return _PROCESSORS[type(settings)](settings)


def processor_of(gguf: GGUFFile) -> PictureProcessor[Any]:
    """The processor of a file with a vision tower. UnsupportedError: of a kind that is not supported."""
    return processor(picture_settings(gguf))
