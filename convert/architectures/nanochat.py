"""nanochat: norms without weights, also of the embedding and of queries and keys, squared ReLUs. Of Andrej Karpathy."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hybrid.quant.ggml.families.nanochat import NanoChatHparams

from ..checkpoint import Config
from ..transforms import rows_in_order
from .family import Family, Row, row
from .llama import LLAMA, Llama


@dataclass(frozen=True)
class NanoChat(Llama):
    """One model. It rotates the other way round than other models: halves of heads are swapped."""

    arch = "nanochat"
    architectures = ("NanoChatForCausalLM",)
    hparams = NanoChatHparams
    order = f"{LLAMA} .vocab_size n_rot logit_cap=cap?"
    pre = ()
    in_llama_cpp = False
    activations = ("relu2",)

    cap: float  # of the logits; 0: none

    @classmethod
    def read_biases(cls, config: Config) -> dict[str, Any]:
        return {"attention_bias": config.boolean("attention_bias", default=False), "mlp_bias": False}

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        usual = 0.0 if "final_logit_softcapping" in config.data else 15.0
        return {"cap": config.number("final_logit_softcapping", default=usual)}

    def notes(self) -> Iterator[str]:
        yield from Family.notes(self)

    def rows(self) -> Iterator[Row]:
        ones = np.ones(self.n_embd, np.float32)
        for one in super().rows():
            norm = one.target.endswith("_norm.weight")
            yield Row(one.target, ones.shape, (), constant=ones) if norm else one

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        half = self.heads.d_head // 2
        orders = (np.arange(2 * n * half).reshape(n, 2, half)[:, ::-1] for n in (self.heads.n_head, self.heads.n_kv))
        swapped = (rows_in_order(order.reshape(-1)) for order in orders)
        yield from self.heads.rows(hf, blk, self.n_embd, bias=self.attention_bias, each=(*swapped, None, None))

    def feed_forward(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        yield row(hf + "fc1.weight", blk + "ffn_up.weight", self.n_ff, self.n_embd)
        yield row(hf + "fc2.weight", blk + "ffn_down.weight", self.n_embd, self.n_ff)
