"""Fields that most decoder families share, read by the keys that most configs use."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..checkpoint import Config
from .blocks import read_layers
from .family import Family, Shapes, vocabulary_rows


@dataclass(frozen=True)
class Decoder(Family):
    """A family with the usual config keys; `embedding`: name of that tensor."""

    embedding: ClassVar[str] = "model.embed_tokens.weight"

    n_vocab: int
    tied: bool
    n_layer: int
    n_ctx: int
    n_embd: int
    eps: float  # of the norms

    @classmethod
    def sizes(
        cls,
        config: Config,
        shapes: Shapes,
        *,
        n_ctx: int = 0,
        eps: float = 1e-6,
        tied: bool = False,
        spelled: Mapping[str, tuple[str, ...]] | None = None,
    ) -> dict[str, Any]:
        """The shared fields. n_ctx (0: required), eps and tied are defaults; `spelled`: other keys for fields, of which
        the first present one counts."""
        keys = {
            "n_ctx": ("max_position_embeddings",),
            "n_embd": ("hidden_size",),
            "eps": ("rms_norm_eps",),
            "tied": ("tie_word_embeddings",),
            **(spelled or {}),
        }
        default = {"default": n_ctx} if n_ctx else {}
        return {
            "n_vocab": vocabulary_rows(config, shapes, cls.embedding),
            "tied": config.boolean(*keys["tied"], default=tied),
            "n_layer": read_layers(config),
            "n_ctx": config.integer(*keys["n_ctx"], **default),
            "n_embd": config.integer(*keys["n_embd"]),
            "eps": config.number(*keys["eps"], default=eps),
        }
