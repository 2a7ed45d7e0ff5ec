"""The vision towers that can be converted: one file each, and this table by their models' names in config.json."""

from .gemma3 import Gemma3Tower
from .gemma4 import Gemma4Tower
from .granite4_vision import Granite4VisionTower
from .lfm2_vl import Lfm2VlTower
from .lfm3_vl import Lfm3VlTower
from .processor import PictureConfig
from .qwen2_5_vl import Qwen25VlTower
from .qwen3_vl import Qwen3VlTower
from .smolvlm import SmolVlmTower
from .tower import Tower

FAMILIES: tuple[type[Tower], ...] = (
    Gemma3Tower, Gemma4Tower, Granite4VisionTower, Lfm2VlTower, Lfm3VlTower, Qwen25VlTower, Qwen3VlTower, SmolVlmTower,
)  # fmt: skip
TOWERS: dict[str, type[Tower]] = {name: tower for tower in FAMILIES for name in tower.architectures}

__all__ = ["FAMILIES", "TOWERS", "PictureConfig", "Tower"]
