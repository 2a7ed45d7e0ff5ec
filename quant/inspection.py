"""What a GGUF file says about its model, from metadata and the shapes of tensors: no weight is read.

The file need not be a model that `infer` can load: what it lacks is 0 or empty, so that a damaged file can be shown.
What its layers are, and keep of a text, is up to `infer` (infer/engine/layer_facts.py).
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
    """How many tensors and weights have one type."""

    type: str
    n_tensors: int
    n_weights: int
    nbytes: int


@dataclass(frozen=True)
class Inspection:
    """Facts about a file. Sizes in bytes.

    n_weights counts those of all tensors, bits_per_weight is over them. types: the one that takes most bytes first.
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
    """Reads the facts of an open file, or of the one at a path (the first part of several).

    What the file lacks is 0 or an empty string. Raises UsageError (no such file), FormatError (no GGUF file, or a
    damaged one).
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
    """Tensor types, the one that takes most bytes first."""
    number: Counter[str] = Counter()
    weights: Counter[str] = Counter()
    nbytes: Counter[str] = Counter()
    for t in gguf.tensors.values():
        number[t.type.name] += 1
        weights[t.type.name] += math.prod(t.shape)
        nbytes[t.type.name] += t.nbytes
    return tuple(TypeUse(name, number[name], weights[name], total) for name, total in nbytes.most_common())


def _file_type(gguf: GGUFFile) -> str:
    """The name of `general.file_type`; its number when it is one that is not known here."""
    value = gguf.get("general.file_type", None)
    try:
        return FileType(value if isinstance(value, int) else -1).name
    except ValueError:
        return "" if value is None else str(value)


def _int(gguf: GGUFFile, key: str) -> int:
    """A count; of an array per layer the largest; 0 when absent or not a number."""
    value = gguf.get(key, 0)
    if hasattr(value, "tolist"):
        value = max(value.tolist(), default=0)
    return value if isinstance(value, int) else 0
