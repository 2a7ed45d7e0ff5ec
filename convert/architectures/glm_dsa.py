"""GLM-5 to 5.3: DeepSeek-V3.2 whose layers share what an indexer chooses. arXiv:2602.15763"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from hybrid.quant.ggml.errors import UnsupportedError
from hybrid.quant.ggml.families.glm_dsa import GlmDsaHparams

from ..checkpoint import Config
from .blocks import read_rope
from .deepseek32 import DeepSeekV32
from .experts import read_expert_groups
from .family import Shapes
from .glm5_next import read_choosing


@dataclass(frozen=True)
class GlmDsa(DeepSeekV32):
    """One model. full: per layer, whether it chooses tokens itself; otherwise it sees the choice of the last
    layer that does."""

    arch = "glm-dsa"
    architectures: ClassVar[tuple[str, ...]] = ("GlmMoeDsaForCausalLM",)
    hparams = GlmDsaHparams
    order = f"{DeepSeekV32.order} full"
    pre: ClassVar[tuple[str, ...]] = ("glm4",)
    without_effect: ClassVar[Mapping[str, str]] = {
        **DeepSeekV32.without_effect,
        "index_share_for_mtp_iteration": "only how often a head that guesses ahead chooses",
        "moe_router_dtype": "the router is always computed in f32",
    }
    conditional: ClassVar[Mapping[str, str]] = {
        **DeepSeekV32.conditional,
        "index_topk_pattern": "only without indexer_types",
        **dict.fromkeys(
            ("index_topk_freq", "index_skip_topk_offset"), "only without indexer_types and index_topk_pattern"
        ),
    }
    usual_eps = 1e-5

    full: tuple[bool, ...] = ()

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("indexer_rope_interleave", True)
        for settings in (config, read_rope(config)[0]):
            settings.expects("partial_rotary_factor", 1.0)
        model = super().read(config, shapes)
        key, full = read_choosing(config, model.n_layer)
        if not full[0]:
            raise UnsupportedError(f"{config.where}: {key} makes layer 0 take what a layer before it chose.")
        return replace(model, n_index_head=config.integer("index_n_heads", default=32), full=full)

    @classmethod
    def read_groups(cls, config: Config, n_expert: int, n_used: int) -> tuple[int, int]:
        config.expects("topk_method", "noaux_tc")
        return read_expert_groups(config, n_expert, n_used)

    def chooses(self, i: int) -> bool:
        return i >= self.n_layer or self.full[i]
