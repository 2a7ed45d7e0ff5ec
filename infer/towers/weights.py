"""The tensors of a tower's file, by the names of a text model's layers, so that the same layers load them."""

import re
from dataclasses import dataclass

import numpy as np

from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import GGMLType

from ..layers.base import add_bias, optional_bias
from ..loading.weights import Weights
from ..program.builder import Builder, Rows, Weight, aligned_empty, round_up

_BLOCK = re.compile(r"blk\.\d+\.")
SWAPPED = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}


class TowerWeights(Weights):
    """Tensors named `blk.N.attn_output` are `v.blk.N.attn_out` in the file; other names are the file's.

    In files of older converters, ffn_up is the second matrix of a feed-forward part, and ffn_down the first.
    """

    def __init__(self, gguf: GGUFFile, n_ff: int) -> None:
        super().__init__(gguf)
        first = gguf.tensors.get("v.blk.0.ffn_up.weight")
        self._is_swapped = first is not None and first.shape[0] != n_ff == first.shape[-1]

    def _stored(self, name: str) -> str:
        if not (block := _BLOCK.match(name)):
            return name
        part = name[block.end() :].replace("attn_output.", "attn_out.")
        if self._is_swapped:
            stem, _, end = part.partition(".")
            part = f"{SWAPPED.get(stem, stem)}.{end}"
        return f"v.{block.group()}{part}"

    def __contains__(self, name: str) -> bool:
        return super().__contains__(self._stored(name))

    def matrix(self, name: str, rows: int, n: int) -> Weight:
        return super().matrix(self._stored(name), rows, n)

    def array(self, name: str, *shape: int) -> np.ndarray:
        return super().array(self._stored(name), *shape)

    def made(self, name: str, values: np.ndarray) -> Weight:
        """A matrix of F32 that is made of tensors of the file."""
        n_out, n = values.shape
        copy = aligned_empty(n_out * round_up(n, 16) * 4).view(np.float32).reshape(n_out, -1)
        copy[:, :n], copy[:, n:] = values, 0
        self.kept.append(copy)
        return Weight(name, GGMLType.F32, n_out, copy.shape[1], copy.ctypes.data, copy.strides[0], keep=copy)

    def patches(self, n: int, side: int, *, frames: int = 1, channels_last: bool = False) -> Weight:
        """The matrix of patches: v.patch_embd.weight [n, 3, side, side] for values in the order of channel, y, x, or of
        y, x, channel. The matrices of several frames are added: a picture is the same in all of them."""
        names = ["v.patch_embd.weight", *(f"v.patch_embd.weight.{i}" for i in range(1, frames))]
        total = sum(self.array(name, n, 3, side, side).astype(np.float64) for name in names)
        ordered = np.asarray(total)
        return self.made("v.patch_embd", (ordered.transpose(0, 2, 3, 1) if channels_last else ordered).reshape(n, -1))

    def norm(self, name: str, n: int) -> tuple[int, int]:
        """Addresses of a norm's factors and biases; without biases it is an RMS norm."""
        return self.vector(f"{name}.weight", n), optional_bias(self, f"{name}.weight", n)

    def linear(self, name: str, n_out: int, n: int) -> "Linear":
        """A matrix, and its bias if the file has one."""
        weight = f"{name}.weight"
        return Linear(name, self.matrix(weight, n_out, n), optional_bias(self, weight, n_out))


@dataclass(frozen=True)
class Linear:
    """W x + b. bias: an address; 0: none."""

    name: str
    weight: Weight
    bias: int

    def add(self, b: Builder, x: Rows) -> Rows:
        return add_bias(b, b.matmul(x, self.weight, self.name), self.bias)
