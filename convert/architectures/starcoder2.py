"""StarCoder2 and Phi-2: layer norms with biases, a feed-forward part without a gate. arXiv:2402.19173"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from hybrid.quant.ggml.families.starcoder2 import StarCoder2Hparams

from ..checkpoint import Config
from .blocks import Heads, read_turned
from .family import Row, row
from .llama import LLAMA_HEADS, Llama
from .windows import read_window


@dataclass(frozen=True)
class StarCoder2(Llama):
    """One model. `linear`: the checkpoint's names of the output of attention and of the two feed-forward matrices."""

    arch = "starcoder2"
    architectures: ClassVar[tuple[str, ...]] = ("Starcoder2ForCausalLM",)
    hparams = StarCoder2Hparams
    order = f"{LLAMA_HEADS} windows?"
    pre = ("starcoder",)
    activations = ("gelu_pytorch_tanh",)
    eps_key = "norm_epsilon"
    norm_bias = True
    usually_tied = True
    usual_ctx, usual_eps = 4096, 1e-5
    linear: ClassVar[tuple[str, str, str]] = ("o_proj", "c_fc", "c_proj")

    bias: bool

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        return {"bias": config.boolean("use_bias", default=True)}

    @classmethod
    def read_windows(cls, config: Config, n_layer: int) -> tuple[int, ...]:
        return (read_window(config),) * n_layer

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        yield from self.heads.rows(hf, blk, self.n_embd, bias=self.bias, out=self.linear[0])

    def feed_forward(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        n, n_ff = self.n_embd, self.n_ff
        for source, target, shape in ((1, "ffn_up", (n_ff, n)), (2, "ffn_down", (n, n_ff))):
            name = hf + self.linear[source]
            yield row(name + ".weight", f"{blk}{target}.weight", *shape)
            if self.bias:
                yield row(name + ".bias", f"{blk}{target}.bias", shape[0])


@dataclass(frozen=True)
class Phi2(StarCoder2):
    """Phi-1.5 and Phi-2 (arXiv:2309.05463): attention and the feed-forward part read the same norm, and RoPE rotates
    n_rot values of a head."""

    arch = "phi2"
    architectures = ("PhiForCausalLM",)
    hparams = StarCoder2Hparams
    order = f"{LLAMA_HEADS} n_rot windows?"
    pre = ("gpt-2",)
    activations = ("gelu_new",)
    eps_key = "layer_norm_eps"
    norms: ClassVar[dict[str, str]] = {"input_layernorm": "attn_norm"}
    last_norm = "model.final_layernorm"
    usually_tied = False
    usual_ctx = 2048
    linear = ("dense", "fc1", "fc2")

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        config.expects("qk_layernorm", False)
        config.expects("tie_word_embeddings", False)
        return {"bias": True}

    @classmethod
    def read_turned(cls, config: Config, heads: Heads) -> int:
        return read_turned(config, heads.d_head, 0.5, "hidden_size")

    @classmethod
    def read_windows(cls, config: Config, n_layer: int) -> tuple[int, ...]:
        return (0,) * n_layer

    def rows(self) -> Iterator[Row]:
        yield from super().rows()
        yield row("lm_head.bias", "output.bias", self.n_vocab)
