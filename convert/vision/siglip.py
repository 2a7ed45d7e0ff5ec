"""What the towers share that are SigLIP's: learned positions, pre-norm blocks with biases, a norm at the end.
arXiv:2303.15343"""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from hybrid.quant.ggml.types import GGMLType

from ..architectures.family import Row, row
from .tower import Tower, linear, norm


@dataclass(frozen=True)
class SiglipTower(Tower):
    """A tower of SigLIP; `hf` begins its tensors' names."""

    hf: ClassVar[str]
    untaken: ClassVar[tuple[str, ...]] = (".head.", ".position_ids")
    exact_patches: ClassVar[bool] = False  # patches in F32, as llama.cpp's converter writes them here

    @property
    def n_positions(self) -> int:
        """Rows of the table of positions."""
        n: int = (self.more["image_size"] // self.sizes.patch_size) ** 2
        return n

    def canonical(self, name: str) -> str:
        """Published checkpoints have one more level of names."""
        return name.replace("vision_tower.vision_model.", "vision_tower.", 1)

    def outer(self) -> Iterator[Row]:
        n = self.n_embd
        yield from self.patches()
        yield row(f"{self.hf}embeddings.patch_embedding.bias", "v.patch_embd.bias", n)
        yield row(f"{self.hf}embeddings.position_embedding.weight", "v.position_embd.weight", self.n_positions, n)
        yield from norm(f"{self.hf}post_layernorm", "v.post_ln", n)
        yield from self.projector_rows()

    def patches(self) -> Iterator[Row]:
        """The matrix of patches."""
        p = self.sizes.patch_size
        yield row(
            f"{self.hf}embeddings.patch_embedding.weight", "v.patch_embd.weight", self.n_embd, 3, p, p,
            type=GGMLType.F32 if self.exact_patches else None,
        )  # fmt: skip

    @abstractmethod
    def projector_rows(self) -> Iterator[Row]:
        """Tensors of the projector."""

    def block(self, i: int, blk: str) -> Iterator[Row]:
        hf, n, n_ff = f"{self.hf}encoder.layers.{i}.", self.n_embd, self.sizes.n_ff
        yield from norm(f"{hf}layer_norm1", f"{blk}ln1", n)
        yield from norm(f"{hf}layer_norm2", f"{blk}ln2", n)
        for part, name in (("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj"), ("out", "out_proj")):
            yield from linear(f"{hf}self_attn.{name}", f"{blk}attn_{part}", n, n)
        yield from linear(f"{hf}mlp.fc1", f"{blk}ffn_up", n_ff, n)
        yield from linear(f"{hf}mlp.fc2", f"{blk}ffn_down", n, n_ff)
