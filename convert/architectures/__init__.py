"""The model families that can be converted: one file each, and this table by the name in config.json."""

from .bamba import Bamba
from .family import Family, Row
from .granitehybrid import GraniteHybrid
from .jamba import Jamba
from .llama import Llama
from .mamba import Mamba
from .mamba2 import Mamba2

FAMILIES: tuple[type[Family], ...] = (Bamba, GraniteHybrid, Jamba, Llama, Mamba, Mamba2)
ARCHITECTURES: dict[str, type[Family]] = {name: family for family in FAMILIES for name in family.architectures}

__all__ = ["ARCHITECTURES", "FAMILIES", "Family", "Row"]
