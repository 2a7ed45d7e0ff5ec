"""Arcee: Llama with a squared ReLU instead of a gate. Of Arcee AI."""

from collections.abc import Iterator
from dataclasses import dataclass

from .family import Row
from .llama import Llama
from .ungated import up_and_down


@dataclass(frozen=True)
class Arcee(Llama):
    """One model of AFM."""

    arch = "arcee"
    architectures = ("ArceeForCausalLM",)
    activations = ("relu2",)
    usual_ctx, usual_eps = 4096, 1e-5

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if self.attention_bias or self.mlp_bias:
            yield (
                "llama.cpp cannot load this file: in this architecture it has no place for biases of attention's "
                "output and of feed-forward parts"
            )

    def feed_forward(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        yield from up_and_down(hf, blk, self.n_embd, self.n_ff, bias=self.mlp_bias)
