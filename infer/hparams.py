"""Hyper-parameters: a dataclass field per GGUF key, read and checked in one place."""

import dataclasses
from dataclasses import dataclass
from typing import Any, TypeVar

from ..quant.ggml.errors import FormatError
from ..quant.ggml.reader import GGUFFile

_REQUIRED = object()
H = TypeVar("H", bound="Hparams")


def key(name: str, default: Any = _REQUIRED, *, per_layer: bool = False, minimum: float = 0) -> Any:
    """Field that is read from `<architecture>.<name>`; a scalar stands for all layers when `per_layer`."""
    meta = {"key": name, "per_layer": per_layer, "minimum": minimum, "default": default}
    return dataclasses.field(metadata=meta)


@dataclass(frozen=True)
class Hparams:
    """What every family has."""

    n_layer: int = key("block_count", minimum=1)
    n_embd: int = key("embedding_length", minimum=1)
    n_ctx_train: int = key("context_length", minimum=1)

    @classmethod
    def read(cls: type[H], gguf: GGUFFile, arch: str) -> H:
        """Raises FormatError naming the key when one is missing or not what it should be."""
        values: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            name = f"{arch}.{field.metadata['key']}"
            default = field.metadata["default"]
            raw = gguf.get(name) if default is _REQUIRED else gguf.get(name, default)
            if field.metadata["per_layer"]:
                values[field.name] = _per_layer(gguf, name, raw, values["n_layer"], field.metadata["minimum"])
            else:
                kind = {"int": int, "float": float, "bool": bool}[getattr(field.type, "__name__", str(field.type))]
                values[field.name] = _scalar(gguf, name, raw, kind, field.metadata["minimum"])
        return cls(**values)


def _scalar(gguf: GGUFFile, name: str, raw: Any, kind: type, minimum: float) -> Any:
    fits = isinstance(raw, bool) if kind is bool else isinstance(raw, int | float) and not isinstance(raw, bool)
    if kind is int:
        fits = fits and isinstance(raw, int)
    if not fits or (kind is not bool and not minimum <= raw < 2**31):
        raise FormatError(f"{gguf.path.name}: {name} = {raw!r}, expected {kind.__name__} of at least {minimum}.")
    return kind(raw)


def _per_layer(gguf: GGUFFile, name: str, raw: Any, n_layer: int, minimum: float) -> tuple[int, ...]:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return (_scalar(gguf, name, raw, int, minimum),) * n_layer
    try:
        values = [int(v) for v in raw]
    except (TypeError, ValueError):
        values = []
    if len(values) != n_layer:
        raise FormatError(f"{gguf.path.name}: {name} has {len(values)} values for {n_layer} layers.")
    return tuple(_scalar(gguf, name, v, int, minimum) for v in values)
