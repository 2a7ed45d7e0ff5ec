"""RWKV-4 and RWKV-5: recurrent, with decays and token shifts that do not depend on the token.
arXiv:2305.13048, arXiv:2404.05892

Tensor names are from RWKV/rwkv-4-* and RWKV/rwkv-5-world-*. docs/gguf-extensions.md says how they are stored.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.rwkv import Rwkv4Hparams, Rwkv5Hparams

from ..checkpoint import Config
from ..transforms import ONE_MINUS, Transform
from .family import Row, Shapes, row
from .rwkv import Shifted, head_values, normed, read_head_eps, read_head_size

# Inputs of RWKV-4 in the order of the fused weights; RWKV-5 has a gate after them.
PARTS = ("key", "value", "receptance")
_ORDER = "n_ctx_train n_embd n_layer eps halve_every=rescale n_ff .general.file_type .attention.head_count"


@dataclass(frozen=True)
class Rwkv4(Shifted):
    """One model of RWKV-4."""

    arch = "rwkv4"
    architectures = ("RwkvForCausalLM",)
    hparams: ClassVar[type[Any]] = Rwkv4Hparams
    order = _ORDER
    in_llama_cpp = False
    tokenizer_hint: ClassVar[str] = "EleutherAI/gpt-neox-20b"
    mixed: ClassVar[tuple[str, ...]] = PARTS

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("layer_norm_epsilon", 1e-5)  # the last norm always has this one
        return cls(**cls.sizes(config, shapes, 4))

    def values(self) -> dict[str, Any]:
        return {"attention.head_count": 0}

    def time_mix(self, hf: str, blk: str, halved: Transform | None) -> Iterator[Row]:
        n = self.n_embd
        yield Row(
            blk + "lerp_fused.weight",
            (len(self.mixed), 1, 1, n),
            tuple(f"{hf}time_mix_{part}" for part in self.mixed),
            transform=ONE_MINUS,
            group=hf,
        )
        yield from self.recurrence(hf, blk)
        for part in self.mixed:
            yield row(f"{hf}{part}.weight", f"{blk}{part}.weight", n, n)
        yield row(hf + "output.weight", blk + "output.weight", n, n, transform=halved)

    def recurrence(self, hf: str, blk: str) -> Iterator[Row]:
        """Decay and bonus."""
        yield row(hf + "time_decay", blk + "decay.weight", self.n_embd)
        yield row(hf + "time_first", blk + "first.weight", self.n_embd)

    def channel_mix(self, hf: str, blk: str, halved: Transform | None) -> Iterator[Row]:
        for part in ("key", "receptance"):
            source, target = f"{hf}time_mix_{part}", f"{blk}lerp_{part[0]}.weight"
            yield row(source, target, self.n_embd, source_shape=(1, 1, self.n_embd), transform=ONE_MINUS)
        yield from super().channel_mix(hf, blk, halved)


@dataclass(frozen=True)
class Rwkv5(Rwkv4):
    """One model of RWKV-5.2."""

    arch = "rwkv5"
    architectures = ("Rwkv5ForCausalLM",)
    hparams = Rwkv5Hparams
    order = f"{_ORDER} d_head head_eps"
    tokenizer_hint = ""
    mixed = (*PARTS, "gate")

    d_head: int
    head_eps: float  # of the norm of the heads

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("layer_norm_epsilon", 1e-5)
        sizes = cls.sizes(config, shapes, 3.5)
        return cls(**sizes, d_head=read_head_size(config, sizes["n_embd"]), head_eps=read_head_eps(config))

    def values(self) -> dict[str, Any]:
        return head_values(self.head_eps)

    def recurrence(self, hf: str, blk: str) -> Iterator[Row]:
        n, heads = self.n_embd, (self.n_embd // self.d_head, self.d_head)
        yield row(hf + "time_decay", blk + "decay.weight", n, source_shape=heads)
        yield row(hf + "time_faaaa", blk + "first.weight", *heads)
        yield from normed(hf + "ln_x", blk + "ln", n)
