"""RWKV-7a and RWKV-7b: RWKV-7 with tables of the vocabulary on every layer, in 7b also attention. Of BlinkDL.

They are published as .pth files. A folder has the same tensors as safetensors, with the same names, and a config.json
with the class Rwkv7aForCausalLM or Rwkv7bForCausalLM and the sizes: docs/gguf-extensions.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from hybrid.quant.ggml.families.rwkv import Rwkv7aHparams

from ..checkpoint import Config
from .family import Family, Row, Shapes, row
from .rwkv import RANKS, Rwkv7, channels, normed, turned_row


@dataclass(frozen=True)
class Rwkv7a(Rwkv7):
    """One model; n_deep: size of the square matrix of a token."""

    arch = "rwkv7a"
    architectures: ClassVar[tuple[str, ...]] = ("Rwkv7aForCausalLM",)
    hparams = Rwkv7aHparams
    order = (
        f"n_ctx_train n_embd n_layer eps d_head {RANKS} n_ff n_deep d_key? map_rank? .general.file_type "
        ".attention.head_count head_eps"
    )
    in_llama_cpp = False

    n_deep: int = 0
    d_key: int = 0  # of the attention beside time mixing; 0: none
    map_rank: int = 0

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        return replace(
            super().read(config, shapes),
            turned=True,
            n_deep=config.integer("deep_embed_size", default=32, maximum=1 << 10),
        )

    def notes(self) -> Iterator[str]:
        return Family.notes(self)

    def rows(self) -> Iterator[Row]:
        yield from super().rows()
        n, d = self.n_embd, self.n_deep
        for i in range(self.n_layer):
            hf, blk = f"model.layers.{i}.ffn.s", f"blk.{i}.deep_embd"
            yield from self.table(hf + "_emb", blk, d * d)
            yield turned_row(hf + "1", blk + "_down.weight", d, n)
            yield turned_row(hf + "2", blk + "_up.weight", self.n_ff, d)
            yield channels(hf + "0", blk + "_up.bias", self.n_ff)
            if self.d_key:
                yield from self._attention(f"model.layers.{i}.qkv.", f"blk.{i}.dea_")

    def table(self, hf: str, blk: str, size: int) -> Iterator[Row]:
        """A row for every token, and the matrix for its embedding."""
        yield row(hf + ".weight", blk + ".weight", self.n_vocab, size)
        yield row(hf + "_x.weight", blk + "_x.weight", size, self.n_embd)

    def _attention(self, hf: str, blk: str) -> Iterator[Row]:
        n, sizes = self.n_embd, {"q": self.d_key, "k": self.d_key, "v": self.n_embd}
        yield row(hf + "qq.weight", blk + "q.weight", self.d_key, n)
        for part, size in sizes.items():
            yield channels(f"{hf}x_{part}", f"{blk}lerp_{part}.weight", size)
            yield from normed(f"{hf}ln{part}", f"{blk}{part}_norm", size)
            if part != "q":
                yield turned_row(f"{hf}{part}1", f"{blk}{part}_down.weight", self.map_rank, n)
                yield turned_row(f"{hf}{part}2", f"{blk}{part}_up.weight", size, self.map_rank)
                yield from self.table(f"{hf}{part}_emb", f"{blk}{part}_embd", size)


@dataclass(frozen=True)
class Rwkv7b(Rwkv7a):
    """Also with attention whose keys and values tables of their own multiply."""

    architectures: ClassVar[tuple[str, ...]] = ("Rwkv7bForCausalLM",)

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        it, d_key = super().read(config, shapes), config.integer("dea_key_size", default=256)
        if it.n_embd % d_key:
            raise config.wrong("dea_key_size", f"a divisor of the hidden size {it.n_embd}")
        return replace(it, d_key=d_key, map_rank=config.integer("dea_rank", default=32, maximum=1 << 16))
