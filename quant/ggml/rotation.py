"""Rotated weights: the keys `prism.hadamard.*` of PrismML's llama.cpp, read and checked.

Rows of the weights in `weight_names` are stored as H (s * w): H is a normalized Walsh-Hadamard transform of each block
of `block_size` values, s the signs of a row, which all weights with rows of one length share. Products need their
inputs rotated, rows of the embedding are rotated back (infer/kernels/rows/hadamard.py). No other key tells that
weights are rotated. A key or value that is not understood is refused, since the result would be noise.
"""

import math
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .errors import UnsupportedError, shown
from .metadata import StringArray
from .reader import GGUFFile

PREFIX = "prism.hadamard."
TRANSFORM, AXIS = "normalized-sylvester-walsh-hadamard", "input-last-dimension"
EMBEDDING, OUTPUT = "token_embd.weight", "output.weight"
LEAST_BLOCK = 16  # of the kernels
# architectures that PrismML's llama.cpp takes, where only `FOLDED` may be rotated
ARCHITECTURES = ("llama", "qwen3", "qwen3moe", "qwen35", "qwen35moe", "qwen3next")
FOLDED = re.compile(
    r"output\.weight|blk\.\d+\.(attn_(q|k|v|qkv|gate|output)|ffn_(gate|up|down)(_exps|_shexp)?|ffn_gate_up_exps|ssm_out)"
    r"\.weight"
)
# elsewhere: all matrices of layers, except the one that is no product (deepseek4's groups of heads)
_MORE = re.compile(r"blk\.\d+\.(?!attn_output_a\.)\w+\.weight")
_NAMES = (
    "version", "block_size", "transform", "axis", "sign_mode", "sign_widths", "sign_values", "weight_names",
    "inverse_weight_names", "gdn_v_grouped", "tied_output",
)  # fmt: skip
KEYS = frozenset(PREFIX + name for name in _NAMES)


@dataclass(frozen=True)
class Rotation:
    """The rotation of a file's weights.

    block     values that are transformed together
    folded    weights whose inputs are rotated
    restored  whether rows of the embedding are rotated back
    heads     (heads of keys, heads of values) if the columns of ssm_out are in the checkpoint's order, else None
    signs     by length of a row, f32
    """

    block: int
    folded: frozenset[str]
    restored: bool
    heads: tuple[int, int] | None
    signs: dict[int, np.ndarray] = field(repr=False, compare=False)

    def places(self, name: str, n: int) -> np.ndarray | None:
        """i32 [n]: the value of the input that comes to each place before the signs; None: all stay.

        Value heads are stored tiled (head h has the keys of head h % n_k), and in the columns of ssm_out grouped: heads
        with the same keys are adjacent.
        """
        if self.heads is None or ".ssm_out." not in name:
            return None
        n_k, n_v = self.heads
        places = np.arange(n, dtype=np.int32).reshape(n_v // n_k, n_k, -1)  # [repeat, head of keys, value]
        return np.ascontiguousarray(places.transpose(1, 0, 2)).reshape(-1)


def can_fold(name: str, arch: str) -> bool:
    """Whether a tensor of this name may be rotated."""
    return bool(FOLDED.fullmatch(name) or (arch not in ARCHITECTURES and _MORE.fullmatch(name)))


def transform(x: np.ndarray, block: int) -> None:
    """The normalized transform of each run of `block` values, in place: x f32 [row, n], C order.

    Sums are in the order of the butterflies, distance 1 first, and so the same on every processor.
    """
    distance = 1
    while distance < block:
        pairs = x.reshape(-1, 2, distance)
        # numpy is slow with short inner loops
        for part in [np.s_[:, i] for i in range(distance)] if distance < LEAST_BLOCK else [np.s_[:]]:
            low, high = pairs[:, 0][part], pairs[:, 1][part]
            difference = low - high
            low += high
            high[...] = difference
        distance *= 2
    x *= np.float32(1 / math.sqrt(block))


def rotation_of(gguf: GGUFFile) -> Rotation | None:
    """The rotation of a file's weights; None: they are not rotated. UnsupportedError: a key that is not understood."""
    keys = [key for key in gguf.metadata if key.startswith(PREFIX)]
    return _Reader(gguf).read() if keys else None


class _Reader:
    def __init__(self, gguf: GGUFFile) -> None:
        self.gguf = gguf

    def wrong(self, name: str, expected: str, found: Any = None) -> UnsupportedError:
        value = self.value(name) if found is None else found
        value = value.tolist() if hasattr(value, "tolist") else value
        return UnsupportedError(
            f"{self.gguf.path.name}: {PREFIX}{name} = {shown(repr(value), 60)}, expected {expected}. Its weights are "
            "rotated, and the result would be noise. Use another file of this model."
        )

    def value(self, name: str, default: Any = None) -> Any:
        return self.gguf.get(PREFIX + name, default)

    def read(self) -> Rotation:
        arch = self.gguf.get("general.architecture", "")
        version = self._one_of("version", (1, 2))
        block = self._integer("block_size")
        if block < LEAST_BLOCK or block & (block - 1):
            raise self.wrong("block_size", f"a power of two from {LEAST_BLOCK}")
        self._one_of("transform", (TRANSFORM,))
        self._one_of("axis", (AXIS,))
        folded, inverse = self._names("weight_names"), self._names("inverse_weight_names", optional=True)
        for name in folded:
            if name not in self.gguf.tensors or not can_fold(name, arch):
                raise self.wrong("weight_names", "matrices of the file that can be rotated", name)
        if set(inverse) - {EMBEDDING}:
            raise self.wrong("inverse_weight_names", f"only {EMBEDDING}")
        self._check_output(version, folded, inverse)
        widths = {self.gguf.info(name).shape[-1] for name in (*folded, *inverse)}
        for width in widths:
            if width % block:
                raise self.wrong("block_size", f"a divisor of the length of all rotated rows, such as {width}")
        return Rotation(block, frozenset(folded), bool(inverse), self._heads(folded), self._signs(block, widths))

    def _check_output(self, version: int, folded: list[str], inverse: list[str]) -> None:
        tied = self._flag("tied_output")
        if tied != (version == 2):
            raise self.wrong("tied_output", "true with version 2, and no such key with version 1", tied)
        has_output = OUTPUT in self.gguf.tensors
        if tied and (has_output or not inverse):
            raise self.wrong("tied_output", f"no {OUTPUT}, and {EMBEDDING} in inverse_weight_names")
        if inverse and not tied and not has_output:
            raise self.wrong("inverse_weight_names", f"{OUTPUT} beside a rotated embedding, or version 2")
        if EMBEDDING in folded:
            raise self.wrong("weight_names", f"{EMBEDDING} only in inverse_weight_names")

    def _heads(self, folded: list[str]) -> tuple[int, int] | None:
        if not self._flag("gdn_v_grouped"):
            return None
        arch = self.gguf.get("general.architecture")
        n_k, n_v = (self.gguf.get(f"{arch}.ssm.{name}", 0) for name in ("group_count", "time_step_rank"))
        rows = [self.gguf.info(name).shape[-1] for name in folded if ".ssm_out." in name]
        if not n_k or not n_v or n_v % n_k or any(n % n_v for n in rows):
            raise self.wrong("gdn_v_grouped", f"whole groups of value heads, found {n_v} on {n_k} heads of keys")
        return int(n_k), int(n_v)

    def _signs(self, block: int, needed: set[int]) -> dict[int, np.ndarray]:
        if self._one_of("sign_mode", ("explicit", "identity")) == "identity":
            return {width: np.ones(width, np.float32) for width in needed}
        widths = self._numbers("sign_widths")
        if not len(widths) or len(set(widths)) < len(widths) or any(width <= 0 or width % block for width in widths):
            raise self.wrong("sign_widths", f"different multiples of {block}")
        values = np.asarray(self._numbers("sign_values"))
        if len(values) != sum(widths) or not (np.abs(values) == 1).all():
            raise self.wrong("sign_values", f"{sum(widths)} values of 1 and -1", f"{len(values)} values")
        parts = np.split(values.astype(np.float32), np.cumsum(widths)[:-1])
        signs = dict(zip(widths, parts, strict=True))
        if missing := needed - signs.keys():
            raise self.wrong("sign_widths", f"signs for rows of {min(missing)} values")
        return {width: signs[width] for width in needed}

    # --- values ---
    def _one_of(self, name: str, known: tuple[Any, ...]) -> Any:
        value = self.value(name)
        if value not in known or isinstance(value, bool):
            raise self.wrong(name, " or ".join(map(str, known)))
        return value

    def _integer(self, name: str) -> int:
        value = self.value(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.wrong(name, "an integer")
        return value

    def _flag(self, name: str) -> bool:
        value = self.value(name, False)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def _numbers(self, name: str) -> list[int]:
        value = self.value(name)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu":
            raise self.wrong(name, "an array of integers")
        numbers: list[int] = value.tolist()
        return numbers

    def _names(self, name: str, *, optional: bool = False) -> list[str]:
        value = self.value(name)
        if value is None and optional:
            return []
        names: list[str] = list(value) if isinstance(value, StringArray | list) else []
        if not names or len(set(names)) < len(names):
            raise self.wrong(name, "different names of tensors")
        return names
