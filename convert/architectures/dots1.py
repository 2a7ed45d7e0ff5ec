"""dots.llm1: Qwen3 with experts as in DeepSeek-V3 after the first layers. arXiv:2506.05767"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hybrid.quant.ggml.families.dots1 import Dots1Hparams
from hybrid.quant.ggml.families.experts import SIGMOID

from ..checkpoint import Config
from .blocks import MAX_LAYERS, routed_experts
from .experts import GROUPS, read_expert_groups
from .family import Row
from .llama import LLAMA, Llama
from .qwen2 import Qwen3
from .windows import read_layer_types, read_window, windows_of

# words of Family.order
ROUTED = f"n_expert n_expert_used {GROUPS} gating n_ff_expert n_dense n_shared weights_scale weights_norm"


@dataclass(frozen=True)
class Dots1(Qwen3):
    """One model, and the part that GLM-4.5 shares: experts chosen by the sigmoid of their scores, and shared ones."""

    arch = "dots1"
    architectures: ClassVar[tuple[str, ...]] = ("Dots1ForCausalLM",)
    hparams: ClassVar[type[Any]] = Dots1Hparams
    order = f"{LLAMA} {ROUTED} windows?"
    gating = SIGMOID
    conditional: ClassVar[Mapping[str, str]] = {
        **Llama.conditional,
        "sliding_window": "where a layer has a window",
        "max_window_layers": "where layer_types is absent and sliding_window is not null",
    }
    usual_ctx = 2048
    usual_dense: ClassVar[int] = 0
    usual_norm: ClassVar[bool] = False

    n_dense: int  # first layers without experts
    n_expert: int
    n_expert_used: int
    groups: tuple[int, int]
    n_ff_expert: int
    n_shared: int
    weights_norm: bool
    weights_scale: float

    @classmethod
    def read_windows(cls, config: Config, n_layer: int) -> tuple[int, ...]:
        """Windows on the layers that layer_types names, else from layer max_window_layers on."""
        window = read_window(config, 4096)
        local = read_layer_types(config, n_layer)
        if local is None:
            first = config.integer("max_window_layers", default=62, minimum=0) if window else n_layer
            local = [i >= first for i in range(n_layer)]
        return windows_of(config, window, local)

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        config.expects("scoring_func", "sigmoid", "noaux_tc")  # published configs call it noaux_tc
        n_expert = config.integer("n_routed_experts", "num_local_experts", maximum=4096)
        n_used = config.integer("num_experts_per_tok", maximum=n_expert)
        return {
            "n_dense": config.integer("first_k_dense_replace", default=cls.usual_dense, minimum=0, maximum=MAX_LAYERS),
            "n_expert": n_expert,
            "n_expert_used": n_used,
            "groups": read_expert_groups(config, n_expert, n_used),
            "n_ff_expert": config.integer("moe_intermediate_size", default=1408),
            "n_shared": config.integer("n_shared_experts"),
            "weights_norm": config.boolean("norm_topk_prob", default=cls.usual_norm),
            "weights_scale": config.number("routed_scaling_factor", default=1.0),
        }

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if self.heads.n_kv != self.heads.n_head:
            yield "llama.cpp cannot load this file: there as many heads of keys as of queries are wanted"
        if self.tied:
            yield "llama.cpp cannot load this file: it wants an output matrix apart from the embedding"

    def feed_forward(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        if i < self.n_dense:
            yield from super().feed_forward(hf, blk, i)
            return
        sizes = self.n_expert, self.n_embd, self.n_ff_expert, self.n_shared
        yield from routed_experts(hf, blk, *sizes, "gate.e_score_correction_bias")
