"""Facts about a GGUF file's model, from metadata and shapes of tensors; weights are not read.

The file need not be a model that `infer` can load: missing facts are 0 or empty, so damaged files can be shown. Facts
about layers and their memory come from `infer` (infer/engine/layer_facts.py).
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .ggml.reader import GGUFFile
from .ggml.split import open_gguf
from .ggml.types import FileType


@dataclass(frozen=True)
class TypeUse:
    """Number of tensors and of weights with one type."""

    type: str
    n_tensors: int
    n_weights: int
    nbytes: int


@dataclass(frozen=True)
class Inspection:
    """Facts about a file. Sizes in bytes.

    n_weights counts the weights of all tensors, bits_per_weight is their mean. types: sorted by bytes, the most first.
    """

    path: Path
    nbytes: int
    version: int
    architecture: str
    name: str
    file_type: str
    n_weights: int
    bits_per_weight: float
    n_vocab: int
    n_ctx_train: int
    n_embd: int
    n_expert: int
    n_expert_used: int
    types: tuple[TypeUse, ...]
    is_encoder: bool


def inspect(file: GGUFFile | Path | str) -> Inspection:
    """Facts about an open file, or the file at a path (of a split model the first part).

    Missing facts are 0 or "". Raises UsageError (no such file), FormatError (not GGUF, or damaged).
    """
    if isinstance(file, Path | str):
        with open_gguf(file) as opened:
            return _facts(opened)
    return _facts(file)


def _facts(gguf: GGUFFile) -> Inspection:
    arch = str(gguf.get("general.architecture", ""))
    weights = sum(math.prod(t.shape) for t in gguf.tensors.values())
    stored = sum(t.nbytes for t in gguf.tensors.values())
    tokens = gguf.get("tokenizer.ggml.tokens", ())
    return Inspection(
        path=gguf.path,
        nbytes=gguf.nbytes,
        version=gguf.version,
        architecture=arch,
        name=str(gguf.get("general.name", "")),
        file_type=_file_type(gguf),
        n_weights=weights,
        bits_per_weight=8 * stored / weights if weights else 0.0,
        n_vocab=len(tokens) if isinstance(tokens, Sequence) and not isinstance(tokens, str) else 0,
        n_ctx_train=_int(gguf, f"{arch}.context_length"),
        n_embd=_int(gguf, f"{arch}.embedding_length"),
        n_expert=_int(gguf, f"{arch}.expert_count"),
        n_expert_used=_int(gguf, f"{arch}.expert_used_count"),
        types=_types_of(gguf),
        is_encoder=gguf.get(f"{arch}.attention.causal", True) is False,
    )


def _types_of(gguf: GGUFFile) -> tuple[TypeUse, ...]:
    """Tensor types, sorted by bytes, the most first."""
    number: Counter[str] = Counter()
    weights: Counter[str] = Counter()
    nbytes: Counter[str] = Counter()
    for t in gguf.tensors.values():
        number[t.type.name] += 1
        weights[t.type.name] += math.prod(t.shape)
        nbytes[t.type.name] += t.nbytes
    return tuple(TypeUse(name, number[name], weights[name], total) for name, total in nbytes.most_common())


def _file_type(gguf: GGUFFile) -> str:
    """The name of `general.file_type`, or its number if unknown."""
    value = gguf.get("general.file_type", None)
    try:
        return FileType(value if isinstance(value, int) else -1).name
    except ValueError:
        return "" if value is None else str(value)


def _int(gguf: GGUFFile, key: str) -> int:
    """A count; for an array with one per layer the largest; 0 if absent or not a number."""
    value = gguf.get(key, 0)
    if hasattr(value, "tolist"):
        value = max(value.tolist(), default=0)
    return value if isinstance(value, int) else 0
