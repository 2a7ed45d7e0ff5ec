"""Keys of files with a vision tower (mmproj): how a picture becomes the arrays that the tower reads."""

from ..errors import UnsupportedError, shown
from ..reader import GGUFFile
from .gemma3 import Gemma3PictureSettings
from .gemma4 import Gemma4PictureSettings
from .idefics3 import Idefics3Settings
from .lfm2_tiles import Lfm2TilesSettings
from .llava_next import LlavaNextSettings
from .settings import PictureSettings
from .smart_resize import SmartResizeSettings

# By clip.projector_type, as llama.cpp names it; lfm3 is ours.
PROCESSORS: dict[str, type[PictureSettings]] = {
    "qwen2.5vl_merger": SmartResizeSettings,
    "qwen3vl_merger": SmartResizeSettings,
    "lfm3": SmartResizeSettings,
    "lfm2": Lfm2TilesSettings,
    "gemma3": Gemma3PictureSettings,
    "idefics3": Idefics3Settings,
    "granite4_vision": LlavaNextSettings,
    "gemma4v": Gemma4PictureSettings,
}


def picture_settings(gguf: GGUFFile) -> PictureSettings:
    """The settings of a file with a vision tower. UnsupportedError: no processor here makes pictures for it."""
    kind = gguf.get("clip.vision.projector_type", gguf.get("clip.projector_type", ""))
    if kind not in PROCESSORS:
        raise UnsupportedError(
            f"{gguf.path.name}: clip.projector_type is {shown(repr(kind), 60)}, expected one of "
            f"{', '.join(PROCESSORS)}. Give the file with the vision tower of a supported model."
        )
    return PROCESSORS[kind].read(gguf)
