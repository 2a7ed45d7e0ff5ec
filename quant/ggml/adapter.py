"""LoRA adapters in GGUF: for some matrices W two thin matrices, whose product is added to W. Hu et al. 2021,
arXiv:2106.09685.

    general.type = adapter, adapter.type = lora, general.architecture as the model's
    adapter.lora.alpha  f32: y = W x + scale * alpha / rank * B (A x) with the user's scale; alpha 0 counts as rank
    adapter.alora.invocation_tokens  u32 [n]: only tokens from their last occurrence on are read with the adapter
    NAME.lora_a  [rank, n], NAME.lora_b [rows, rank] for the model's tensor NAME [rows, n]; stacked for experts
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from .errors import FormatError, Remedy, UnsupportedError, UsageError, shown
from .reader import GGUFFile

A, B = ".lora_a", ".lora_b"
INVOCATION = "adapter.alora.invocation_tokens"
Given = tuple[Path | str, float]  # a file and its scale


@dataclass(frozen=True, eq=False)
class Halves:
    """f32 A [1 or experts, rank, n] and B [1 or experts, rows, rank]; factor: what B A is multiplied with beside the
    scale."""

    a: np.ndarray
    b: np.ndarray
    factor: float


class Adapter:
    """An adapter, checked for consistency; `pair` checks it against a model's matrix."""

    def __init__(self, gguf: GGUFFile, scale: float) -> None:
        self.gguf, self.scale, self.path = gguf, scale, gguf.path
        self._where = shown(gguf.path.name)
        if gguf.get("general.type", "") != "adapter" or gguf.get("adapter.type", "") != "lora":
            raise FormatError(f"{self._where} is not a LoRA adapter.", remedy=Remedy.MAKE_ADAPTER)
        self.invocation = self._invocation()
        alpha = gguf.get("adapter.lora.alpha", 0.0)
        if not isinstance(alpha, float) or not math.isfinite(alpha):
            raise FormatError(
                f"{self._where}: adapter.lora.alpha = {shown(alpha)}, expected a number. Convert it again."
            )
        self.alpha = alpha
        names = [name for name in gguf.tensors if name.endswith((A, B))]
        self.names = list(dict.fromkeys(name.removesuffix(A).removesuffix(B) for name in names))
        for name in gguf.tensors:
            if name not in names:
                raise UnsupportedError(f"{self._where}: {shown(name)} is neither lora_a nor lora_b of anything.")
        for name in self.names:
            if name == "token_embd.weight":
                raise UnsupportedError(f"{self._where} adapts the embedding, which this version cannot apply.")
            for half in (A, B):
                if name + half not in gguf.tensors:
                    raise FormatError(f"{self._where} lacks {shown(name + half)}. Convert it again.")
        if not self.names:
            raise FormatError(f"{self._where} holds no tensors. Convert it again.")

    def _invocation(self) -> tuple[int, ...]:
        """Tokens of an activated LoRA (aLoRA): it is applied from their last occurrence on. Empty: always."""
        tokens = self.gguf.get(INVOCATION, None)
        if tokens is None:
            return ()
        if not isinstance(tokens, np.ndarray) or tokens.dtype.kind not in "iu" or (tokens < 0).any():
            raise FormatError(f"{self._where}: {INVOCATION} is not a list of tokens. Convert it again.")
        return tuple(map(int, tokens))

    @classmethod
    def open(cls, given: Given, arch: str) -> Self:
        """Opens an adapter. FormatError, UnsupportedError or UsageError: not an adapter for models of this
        architecture."""
        path, scale = given
        if not math.isfinite(scale):
            raise UsageError(f"{shown(path)}: its scale is {scale}, expected a number such as 1 or 0.5.")
        gguf = GGUFFile.open(path)
        try:
            adapter = cls(gguf, scale)
            stated = gguf.get("general.architecture", "")
            if stated != arch:
                raise UsageError(f"{adapter._where} adapts models of architecture {shown(stated)}, this one is {arch}.")
            return adapter
        except BaseException:
            gguf.close()
            raise

    def __contains__(self, name: str) -> bool:
        return name + A in self.gguf.tensors

    @property
    def label(self) -> str:
        """The file name, and the scale unless it is 1, for messages."""
        return self.labelled(self.scale)

    def labelled(self, scale: float) -> str:
        """The same with this scale."""
        return self.path.stem + (f":{scale:g}" if scale != 1 else "")

    def pair(self, name: str, n_expert: int, rows: int, n: int) -> tuple[np.ndarray, np.ndarray]:
        """f32 A [n_expert, rank, n] and B [n_expert, rows, rank] for the model's tensor; B includes all factors."""
        halves = self.halves(name, n_expert, rows, n)
        a, b = halves.a, (halves.b.astype(np.float64) * (self.scale * halves.factor)).astype(np.float32)
        return np.broadcast_to(a, (n_expert, *a.shape[1:])), np.broadcast_to(b, (n_expert, *b.shape[1:]))

    def halves(self, name: str, n_expert: int, rows: int, n: int) -> "Halves":
        """The halves for the model's tensor [rows, n], or for n_expert of them. FormatError: they do not fit."""
        factors = []
        for half in (A, B):
            values = np.asarray(self.gguf.f32(name + half), np.float32)
            if not np.isfinite(values).all():
                raise FormatError(f"{self._where}: {name}{half} contains NaN or infinity. Convert it again.")
            factors.append(values)
        a, b = (values[None] if values.ndim == 2 else values for values in factors)
        right = a.ndim == b.ndim == 3 and {len(a), len(b)} <= {1, n_expert} and a.shape[1] == b.shape[2]
        if not right or a.shape[2] != n or b.shape[1] != rows:
            shapes = " and ".join(str(list(values.shape)) for values in factors)
            stack = f"{n_expert} times " if n_expert > 1 else ""
            raise FormatError(
                f"{self._where}: {name} has shapes {shapes}, for this model it needs {stack}[rank, {n}] and [{rows}, "
                "rank]. It was made for another model."
            )
        return Halves(a, b, self.alpha / a.shape[1] if self.alpha else 1.0)

    def update_at(self, digest: "hashlib._Hash", scale: float) -> None:
        """Adds the adapter, applied at this scale, to a model's fingerprint."""
        digest.update(f"lora {scale!r} ".encode() + self.digest)

    @cached_property
    def digest(self) -> bytes:
        """Identifies what it adds at scale 1, and from where on."""
        digest = hashlib.sha256(f"{self.alpha!r} {list(self.invocation)};".encode())
        for t in self.gguf.tensors.values():
            digest.update(f"{t.name} {t.type} {t.shape};".encode())
            digest.update(self.gguf.raw(t.name).tobytes())
        return digest.digest()

    def close(self) -> None:
        self.gguf.close()


def open_all(given: Sequence[Given], arch: str) -> list[Adapter]:
    """Opens all adapters. On an error those already opened are closed."""
    adapters: list[Adapter] = []
    try:
        for one in given:
            adapters.append(Adapter.open(one, arch))
    except BaseException:
        for adapter in adapters:
            adapter.close()
        raise
    return adapters
