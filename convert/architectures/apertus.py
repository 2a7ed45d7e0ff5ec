"""Apertus: Llama with norms on heads of queries and keys and xIELU instead of a gate. arXiv:2509.14233"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.errors import CheckpointError, shown
from hybrid.quant.ggml.families.apertus import ApertusHparams

from ..checkpoint import Config, StoredTensor
from .blocks import read_layers
from .family import Row
from .llama import LLAMA, Llama
from .ungated import up_and_down

# In the order of llama.cpp's keys. Values of a new model in transformers, for a file without weights; the softplus of
# the alphas is 0.3 and 0.8.
XIELU: dict[str, float] = {"alpha_n": -1.0502256, "alpha_p": 0.20338232, "beta": 0.5, "eps": -1e-6}
# transformers', for a config that says nothing about RoPE
_ROPE: dict[str, Any] = {
    "rope_type": "llama3",
    "rope_theta": 12e6,
    "factor": 8.0,
    "original_max_position_embeddings": 8192,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}


@dataclass(frozen=True)
class Apertus(Llama):
    """One model of Apertus. Its activation's numbers are tensors in a checkpoint and keys in a file."""

    arch = "apertus"
    architectures = ("ApertusForCausalLM",)
    hparams = ApertusHparams
    order = f"{LLAMA} .vocab_size n_rot alpha_n alpha_p beta least"
    pre = ("tekken",)
    activations: ClassVar[tuple[str, ...]] = ("xielu",)
    conditional: ClassVar[Mapping[str, str]] = {
        **Llama.conditional,
        "rope_theta": "where rope_parameters does not say it",
        "rope_scaling": "where rope_parameters is absent",
    }
    without_effect: ClassVar[Mapping[str, str]] = {
        "mlp_bias": "its feed-forward parts have no biases, as in transformers",
        "qk_norm": "queries and keys always have norms, as in transformers",
        "post_norm": "norms are always in front of the parts, as in transformers",
    }
    norms: ClassVar[dict[str, str]] = {"attention_layernorm": "attn_norm", "feedforward_layernorm": "ffn_norm"}
    usual_ctx, usual_eps, usual_theta = 65536, 1e-5, 12e6

    xielu: Mapping[str, tuple[float, ...]]  # per layer

    @classmethod
    def read_rope(cls, config: Config) -> tuple[Config, float]:
        rope, theta = super().read_rope(config)
        if rope.data:
            return rope, theta
        return Config(_ROPE, config.where), _ROPE["rope_theta"]

    @classmethod
    def read_biases(cls, config: Config) -> dict[str, Any]:
        return {"attention_bias": config.boolean("attention_bias", default=False), "mlp_bias": False}

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        n_layer = read_layers(config)
        return {"xielu": {name: (value,) * n_layer for name, value in XIELU.items()}}

    def in_keys(self) -> Mapping[str, tuple[int, ...]]:
        shapes = {"alpha_n": (1,), "alpha_p": (1,), "beta": (), "eps": ()}
        return {_tensor(i, name): shape for i in range(self.n_layer) for name, shape in shapes.items()}

    def settled(self, stored: Mapping[str, StoredTensor]) -> Self:
        read = {
            name: tuple(_number(stored.get(_tensor(i, name)), usual) for i, usual in enumerate(values))
            for name, values in self.xielu.items()
        }
        return replace(self, xielu=read)

    def values(self) -> dict[str, Any]:
        return {**super().values(), **self.xielu, "least": self.xielu["eps"], "eps": self.eps}

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if self.tied:
            yield "llama.cpp cannot load this file: it wants an output matrix apart from the embedding"

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        yield from self.heads.rows(hf, blk, self.n_embd, bias=self.attention_bias)
        yield from self.heads.norm_rows(hf, blk)

    def feed_forward(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        yield from up_and_down(hf, blk, self.n_embd, self.n_ff)


def _tensor(i: int, name: str) -> str:
    return f"model.layers.{i}.mlp.act_fn.{name}"


def _number(tensor: StoredTensor | None, usual: float) -> float:
    """The value of a tensor with one element, of any number of dimensions; `usual` if the tensor is missing, which is
    reported later."""
    if tensor is None:
        return usual
    if tensor.size != 1:
        raise CheckpointError(f"{shown(tensor.name)} has shape {list(tensor.shape)}, expected one value.")
    return float(tensor.floats(0, 1)[0])
