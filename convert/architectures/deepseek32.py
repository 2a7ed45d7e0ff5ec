"""DeepSeek-V3.2: DeepSeek-V3 whose attention sees tokens that an indexer chooses. arXiv:2512.02556"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.deepseek32 import DeepSeek32Hparams

from ..checkpoint import Config
from .deepseek2 import DeepSeekV3
from .experts import read_dense
from .family import Row, Shapes, row


@dataclass(frozen=True)
class DeepSeekV32(DeepSeekV3):
    """One model."""

    arch = "deepseek32"
    architectures: ClassVar[tuple[str, ...]] = ("DeepseekV32ForCausalLM",)
    hparams: ClassVar[type[Any]] = DeepSeek32Hparams
    order = f"{DeepSeekV3.order} n_index_head d_index n_chosen"
    conditional: ClassVar[Mapping[str, str]] = {"first_k_dense_replace": "only without mlp_layer_types"}
    without_effect: ClassVar[Mapping[str, str]] = {
        **DeepSeekV3.without_effect,
        "layer_types": "only transformers' memory: all layers have an indexer",
    }

    n_index_head: int = 0
    d_index: int = 0
    n_chosen: int = 0

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        model = super().read(config, shapes)
        if not model.latent.q_rank:
            raise config.wrong("q_lora_rank", "a number: the indexer reads the queries' latent vectors")
        return replace(
            model,
            n_index_head=config.integer("index_n_heads", default=64),
            d_index=config.integer("index_head_dim", default=128, minimum=model.latent.d_rope),
            n_chosen=config.integer("index_topk", default=2048),
        )

    @classmethod
    def other_spelling(cls) -> tuple[str, ...]:
        return ("num_local_experts", "num_experts")

    @classmethod
    def read_dense(cls, config: Config, n_layer: int) -> int:
        return read_dense(config, n_layer, min(cls.usual_dense, n_layer))

    def rows(self) -> Iterator[Row]:
        yield from super().rows()
        n, d = self.n_embd, self.d_index
        for i in filter(self.chooses, range(self.blocks_in_file)):
            hf, blk = f"model.layers.{i}.self_attn.indexer.", f"blk.{i}.indexer."
            yield row(hf + "wq_b.weight", blk + "attn_q_b.weight", self.n_index_head * d, self.latent.q_rank)
            yield row(hf + "wk.weight", blk + "attn_k.weight", d, n)
            yield row(hf + "k_norm.weight", blk + "k_norm.weight", d)
            yield row(hf + "k_norm.bias", blk + "k_norm.bias", d)
            yield row(hf + "weights_proj.weight", blk + "proj.weight", self.n_index_head, n)

    def chooses(self, i: int) -> bool:
        """Whether block i has an indexer."""
        return True
