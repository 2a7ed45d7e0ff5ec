"""The vision towers that can be converted: one file each, and this table by their models' names in config.json."""

from .processor import PictureConfig
from .qwen3_vl import Qwen3VlTower
from .smolvlm import SmolVlmTower
from .tower import Tower

FAMILIES: tuple[type[Tower], ...] = (Qwen3VlTower, SmolVlmTower)
TOWERS: dict[str, type[Tower]] = {name: tower for tower in FAMILIES for name in tower.architectures}

__all__ = ["FAMILIES", "TOWERS", "PictureConfig", "Tower"]
