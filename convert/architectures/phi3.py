"""Phi-3: Llama with queries, keys and values in one matrix, gate and up in another. arXiv:2404.14219"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..checkpoint import Config
from .blocks import Heads, read_turned
from .family import Row, row
from .llama import LLAMA, Llama
from .windows import read_window

# fields of Phi-4-mini that its own code reads; transformers has none of them
OWN_CODE = {"full_attn_mod": 1, "interpolate_factor": 1, "lm_head_bias": False}


@dataclass(frozen=True)
class Phi3(Llama):
    """One model. With two sets of frequencies (LongRoPE), the context length of a run decides which one is used."""

    arch = "phi3"
    architectures: ClassVar[tuple[str, ...]] = ("Phi3ForCausalLM",)
    order = f"{LLAMA} n_rot original=own_ctx .attention.sliding_window windows?"
    pre: ClassVar[tuple[str, ...]] = ("gpt-4o",)
    conditional: ClassVar[Mapping[str, str]] = {
        **Llama.conditional,
        "original_max_position_embeddings": "where rope_type is longrope",
    }
    usual_ctx, usual_eps = 4096, 1e-5

    rope_kinds: ClassVar[dict[str, str]] = {"su": "longrope", "yarn": "longrope"}  # of the first checkpoints
    original_ctx = 4096

    @classmethod
    def read_turned(cls, config: Config, heads: Heads) -> int:
        for key, value in {"attention_bias": False, "mlp_bias": False, **OWN_CODE}.items():
            config.expects(key, value)
        return read_turned(config, heads.d_head, 1.0, "hidden_size")

    @classmethod
    def read_windows(cls, config: Config, n_layer: int) -> tuple[int, ...]:
        return (read_window(config),) * n_layer

    def values(self) -> dict[str, Any]:
        own_ctx = self.n_ctx if "original" not in self.scaling.stated else None
        return super().values() | {"own_ctx": own_ctx, "attention.sliding_window": self.windows[0]}

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        n, heads = self.n_embd, self.heads
        n_q = heads.n_head * heads.d_head
        yield row(hf + "qkv_proj.weight", blk + "attn_qkv.weight", n_q + 2 * heads.n_kv * heads.d_head, n)
        yield row(hf + "o_proj.weight", blk + "attn_output.weight", n, n_q)

    def feed_forward(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        yield row(hf + "gate_up_proj.weight", blk + "ffn_up.weight", 2 * self.n_ff, self.n_embd)
        yield row(hf + "down_proj.weight", blk + "ffn_down.weight", self.n_embd, self.n_ff)
