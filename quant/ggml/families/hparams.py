"""Hyper-parameters: a dataclass field per GGUF key, read and checked in one place."""

import dataclasses
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar, dataclass_transform

import numpy as np

from ..errors import FormatError, shown
from ..metadata import full_key
from ..reader import GGUFFile
from .unread_keys import check_unread

PREFIX = "prefix_embd.weight"
_REQUIRED = object()
_KINDS: dict[str, type] = {"int": int, "float": float, "bool": bool, "str": str}
_LARGEST = {int: 2**31 - 1, float: float(np.finfo(np.float32).max)}
H = TypeVar("H", bound="FileKeys")


def key(
    name: str,
    default: Any = _REQUIRED,
    *,
    per_layer: bool = False,
    pattern: bool = False,
    first: bool = False,
    values: int | None = None,
    minimum: float = 0,
    more: bool = False,
    counts: Literal["", "first", "last"] = "",
) -> Any:
    """A field read from `<architecture>.<name>`, or from `<name>` if that begins with `hybrid.`.

    per_layer: a tuple of int or of float; a scalar in the file stands for all layers. pattern: true or false for every
    layer, or a number n: true but for the last (with `first`, the first) of every n layers (0: for all); values of the
    last `n_ahead` layers (an earlier field) may be missing. more: values after the last layer are ignored. counts: the
    number of first or last layers that have something. values: a tuple of `values` numbers; 0: of any length.

    Numbers are at least `minimum`, integers below 2^31, floats finite in f32. Layers check what several keys or the
    tensors have to agree on.
    """
    meta = {
        "key": name, "per_layer": per_layer, "pattern": pattern, "first": first, "minimum": minimum, "default": default,
        "more": more, "values": values, "counts": counts,
    }  # fmt: skip
    return dataclasses.field(metadata=meta)


@dataclass(frozen=True)
class Scales:
    """Factors of the embedding and of every part's result, and the divisor of the logits, in some families."""

    embedding: float = 1.0
    residual: float = 1.0
    logits: float = 1.0


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(key,))
@dataclass(frozen=True, kw_only=True, eq=False)
class FileKeys:
    """Keys of a file, a field each; subclasses also become frozen dataclasses."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True, eq=False)(cls)  # nobody compares, and there are many

    @classmethod
    def read(cls: type[H], gguf: GGUFFile, arch: str) -> H:
        """Reads all fields. FormatError names the key that is missing or has a wrong value, UnsupportedError a key that
        changes the result and has no field (unread_keys)."""
        values: dict[str, Any] = {}
        if not gguf.tensors:
            raise FormatError(f"{gguf.path.name} holds no tensors, only metadata. Give a file with a model.")
        for field in dataclasses.fields(cls):
            name = full_key(arch, field.metadata["key"])
            default = field.metadata["default"]
            raw = gguf.get(name) if default is _REQUIRED else gguf.get(name, default)
            if field.metadata["values"] is not None:
                values[field.name] = _several(gguf, name, raw, field)
            elif field.metadata["pattern"]:
                values[field.name] = _pattern(gguf, name, raw, values, first=field.metadata["first"])
            elif field.metadata["per_layer"]:
                each = float if "float" in str(field.type) else int
                if field.metadata["more"] and isinstance(raw, np.ndarray):
                    raw = raw[: values["n_layer"]]
                values[field.name] = _per_layer(gguf, name, raw, values["n_layer"], each, field.metadata["minimum"])
            else:
                kind = _KINDS[getattr(field.type, "__name__", str(field.type))]
                values[field.name] = scalar(gguf, name, raw, kind, field.metadata["minimum"])
            # before anything is made for every layer
            if field.name == "n_layer" and values["n_layer"] > len(gguf.tensors):
                raise wrong(gguf, name, raw, f"no more layers than its {len(gguf.tensors)} tensors can make")
            if field.name == "n_ahead" and not values["n_ahead"] < values["n_layer"]:
                raise wrong(gguf, name, raw, f"fewer than its {values['n_layer']} blocks")
        check_unread(gguf, arch, cls.keys(arch))
        return cls(**values)

    @classmethod
    def keys(cls, arch: str) -> frozenset[str]:
        """The keys that are read for this architecture."""
        return frozenset(full_key(arch, field.metadata["key"]) for field in dataclasses.fields(cls))

    def wrong(self, gguf: GGUFFile, field: str, expected: str, value: Any = None) -> FormatError:
        """The error for a field that no layer can work with; `value`: the wrong value, if it is one layer's."""
        (key,) = (own.metadata["key"] for own in dataclasses.fields(self) if own.name == field)
        found = getattr(self, field) if value is None else value
        name = full_key(str(gguf.get("general.architecture")), key)
        return wrong(gguf, name, list(found) if isinstance(found, tuple) else found, expected)

    @classmethod
    def written(cls, value: Callable[[str], Any], order: str) -> Iterator[tuple[str, Any]]:
        """The pairs of a file, without the architecture in front of their keys. A word of `order` is

            name         a field: `value(name)` is written
            .key         a key that no reader here asks for: `value(key)` is written
            name=source  `value(source)` is written
            word?        not written if it is the field's default

        A value of None is not written: the field has a default, or the word a question mark.
        """
        fields = {field.name: field.metadata for field in dataclasses.fields(cls)}
        for word in order.split():
            name, _, source = word.removesuffix("?").partition("=")
            key = name.removeprefix(".")
            meta: Mapping[str, Any] = fields[name] if key == name else {"key": key, "default": _REQUIRED}
            found = value(source or key)
            if found is None:
                assert word.endswith("?") or meta["default"] is not _REQUIRED, f"{cls.__name__}: no {name}"
            elif not (word.endswith("?") and _is_default(meta, found, value("n_layer"))):
                yield meta["key"], list(found) if isinstance(found, tuple) else found


class Hparams(FileKeys):
    """The keys of every family. n_layer: blocks of the file, the last n_ahead of which guess tokens ahead."""

    n_layer: int = key("block_count", minimum=1)
    n_ahead: int = key("nextn_predict_layers", 0, counts="last")
    n_embd: int = key("embedding_length", minimum=1)
    n_ctx_train: int = key("context_length", minimum=1)
    eps: float = key("attention.layer_norm_rms_epsilon")  # of the norms

    @property
    def n_run(self) -> int:
        """Layers that a token goes through."""
        return self.n_layer - self.n_ahead

    @property
    def scales(self) -> Scales:
        return Scales()

    logit_cap = 0.0  # logits become cap * tanh(logit / cap); 0: unchanged
    # tensors beside the layers that have an equal part for each: name -> dimension of the parts, 0 or -1 (of rows)
    in_parts: ClassVar[Mapping[str, int]] = {}
    n_prefix = 0  # rows of the tensor PREFIX, which stand before every text like the embeddings of tokens
    halve_every = 0  # the residual stream is halved after every `halve_every` layers; 0: never

    def usual_context(self, tensors: Container[str]) -> int:
        """Default number of tokens of a sequence: the longest texts that the model was trained for."""
        return self.n_ctx_train

    def variant(self, tensors: Container[str], n_ctx: int) -> str:
        """How a context of n_ctx tokens changes the results of a model with these tensors; "": not at all."""
        return ""


def by_period(period: int, n_layer: int, *, first: bool = False) -> tuple[bool, ...]:
    """Per layer: False for the last (or first) of every `period` layers, True for the others; period 0: True for
    all."""
    return tuple(period == 0 or i % period != (0 if first else period - 1) for i in range(n_layer))


def _is_default(meta: Mapping[str, Any], value: Any, n_layer: int) -> bool:
    default = meta["default"]
    if default is _REQUIRED:
        return False
    if meta.get("values") is not None:
        return bool(tuple(value) == default)
    if isinstance(value, list | tuple):
        return tuple(value) == (
            by_period(default, n_layer, first=meta["first"]) if meta["pattern"] else (default,) * n_layer
        )
    return bool(value == default)


def wrong(gguf: GGUFFile, name: str, value: Any, expected: str) -> FormatError:
    """The error for an impossible value."""
    return FormatError(f"{gguf.path.name}: {name} = {shown(repr(value), 60)}, expected {expected}.")


def scalar(gguf: GGUFFile, name: str, raw: Any, kind: type, minimum: float) -> Any:
    if kind in (bool, str):
        if not isinstance(raw, kind):
            raise wrong(gguf, name, raw, "true or false" if kind is bool else "a string")
        return raw
    fits = isinstance(raw, int | float if kind is float else int) and not isinstance(raw, bool)
    if not fits or not minimum <= raw <= _LARGEST[kind]:
        raise wrong(gguf, name, raw, f"{'an integer' if kind is int else 'a finite number'} of at least {minimum:g}")
    return kind(raw)


def _per_layer(gguf: GGUFFile, name: str, raw: Any, n_layer: int, kind: type, minimum: float) -> tuple[Any, ...]:
    """kind: int or float."""
    if isinstance(raw, int | kind) and not isinstance(raw, bool):
        return (scalar(gguf, name, raw, kind, minimum),) * n_layer
    if not isinstance(raw, np.ndarray) or raw.dtype.kind not in ("iuf" if kind is float else "iu"):
        raise wrong(gguf, name, raw, f"{'a number' if kind is float else 'an integer'}, or one for every layer")
    values = raw.tolist()
    if len(values) != n_layer:
        raise FormatError(f"{gguf.path.name}: {name} has {len(values)} values for {n_layer} layers.")
    return tuple(scalar(gguf, name, v, kind, minimum) for v in values)


def _several(gguf: GGUFFile, name: str, raw: Any, field: dataclasses.Field[Any]) -> tuple[Any, ...]:
    """The value of a field of several values."""
    if isinstance(raw, tuple):  # the default
        return raw
    kind, count = _KINDS[str(field.type).removeprefix("tuple[").partition(",")[0]], field.metadata["values"]
    codes = {int: "iu", float: "fiu", bool: "b"}[kind]
    if not isinstance(raw, np.ndarray) or raw.dtype.kind not in codes or (count and len(raw) != count):
        many = f"{count} values" if count else "a list"
        raise wrong(gguf, name, raw, f"{many} of {'true or false' if kind is bool else 'numbers'}")
    return tuple(scalar(gguf, name, kind(value), kind, field.metadata["minimum"]) for value in raw.tolist())


def _pattern(gguf: GGUFFile, name: str, raw: Any, earlier: dict[str, Any], *, first: bool) -> tuple[bool, ...]:
    """earlier: fields, of which n_ahead is the number of last layers that need no values; they are True."""
    n_layer, n_ahead = earlier["n_layer"], earlier.get("n_ahead", 0)
    if isinstance(raw, int) and not isinstance(raw, bool):
        return by_period(scalar(gguf, name, raw, int, 0), n_layer, first=first)
    if not isinstance(raw, np.ndarray) or raw.dtype.kind not in "biu" or not ((raw == 0) | (raw == 1)).all():
        raise wrong(gguf, name, raw, "a number of layers, or true or false for every layer")
    if len(raw) not in (n_layer, n_layer - n_ahead):
        raise FormatError(f"{gguf.path.name}: {name} has {len(raw)} values for {n_layer} layers.")
    return (*raw.astype(bool).tolist(), *[True] * (n_layer - len(raw)))


class AttentionHparams(Hparams):
    """Keys of a model with attention on some or all layers."""

    n_head: int = key("attention.head_count", minimum=1)
    n_head_kv: tuple[int, ...] = key("attention.head_count_kv", per_layer=True)  # 0 marks a layer without attention


class TransformerHparams(AttentionHparams):
    """Keys of a model with a feed-forward part on all layers; n_ff may be the width of an expert."""

    n_ff: int = key("feed_forward_length", minimum=1)
