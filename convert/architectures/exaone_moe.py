"""K-EXAONE: windows and positions on three layers of four, experts as in DeepSeek-V3. arXiv:2601.01739"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hybrid.quant.ggml.families.exaone_moe import ExaoneMoeHparams

from ..checkpoint import Config
from .blocks import read_layers
from .dots1 import ROUTED, Dots1
from .exaone4 import read_local
from .experts import read_dense, read_expert_groups
from .llama import LLAMA, Llama
from .rope import UNSCALED
from .unused_fields import MTP
from .windows import read_window, windows_of


@dataclass(frozen=True)
class ExaoneMoe(Dots1):
    """One model. If it has windows, only layers with a window have positions. Heads that guess tokens ahead are left
    out."""

    arch = "exaone-moe"
    architectures = ("ExaoneMoeForCausalLM", "ExaoneMoEForCausalLM")
    hparams = ExaoneMoeHparams
    order = (
        f"{LLAMA} .vocab_size window? local {ROUTED} .expert_shared_feed_forward_length=n_ff_shared {UNSCALED} n_ahead"
    )
    pre = ("exaone-moe",)
    conditional: ClassVar[Mapping[str, str]] = {
        **Llama.conditional,
        "sliding_window_pattern": "where layer_types is absent",
        "first_k_dense_replace": "only without mlp_layer_types",
    }
    without_effect: ClassVar[Mapping[str, str]] = MTP
    dropped = ("mtp.", "model.mtp.")
    usual_eps = 1e-5
    known_windows = True

    window: int  # 0: no windows, and positions on all layers

    @classmethod
    def read_biases(cls, config: Config) -> dict[str, Any]:
        return {"attention_bias": False, "mlp_bias": False}

    @classmethod
    def read_windows(cls, config: Config, n_layer: int) -> tuple[int, ...]:
        window = read_window(config, 4096)
        return windows_of(config, window, read_local(config, window, n_layer))

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        config.expects("scoring_func", "sigmoid")
        n_expert = config.integer("num_experts", "num_local_experts", default=64, maximum=4096)
        n_used = config.integer("num_experts_per_tok", default=8, maximum=n_expert)
        return {
            "window": read_window(config, 4096),
            "n_dense": read_dense(config, read_layers(config), 1),
            "n_expert": n_expert,
            "n_expert_used": n_used,
            "groups": read_expert_groups(config, n_expert, n_used),
            "n_ff_expert": config.integer("moe_intermediate_size", default=1024),
            "n_shared": config.integer("num_shared_experts", default=1),
            "weights_norm": config.boolean("norm_topk_prob", default=True),
            "weights_scale": config.number("routed_scaling_factor", default=2.5),
        }

    def values(self) -> dict[str, Any]:
        return super().values() | {"n_ff_shared": self.n_shared * self.n_ff_expert}

    def notes(self) -> Iterator[str]:
        yield from self.scaling.notes
        if not self.window:
            yield "llama.cpp cannot load this file: it wants a window for this architecture"
        if self.tied:
            yield "llama.cpp cannot load this file: it wants an output matrix apart from the embedding"

    def canonical(self, name: str) -> str:
        # the published checkpoints' name
        return super().canonical(name.replace(".mlp.e_score_correction_bias", ".mlp.gate.e_score_correction_bias"))
