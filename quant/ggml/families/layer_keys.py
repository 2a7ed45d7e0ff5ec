"""Keys whose values go by the layer, in a file without some of its layers.

Fields of a family say what their keys are (`hparams.key`). Keys without a field are in tables here.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import UnsupportedError
from ..metadata import full_key
from ..reader import GGUFFile
from .hparams import Hparams, by_period

# Keys without a field that says so in some or all families: a value for every layer; numbers of layers; the number of
# first layers.
_EACH = (
    "attention.head_count", "attention.head_count_kv", "attention.sliding_window_pattern", "feed_forward_length",
    "activation_sparsity_scale", "deepstack_mapping",
)  # fmt: skip
_NUMBERS = ("ple.layers",)
_FIRST = ("leading_dense_block_count",)
# Architectures whose tensors tell here which layers are recurrent. llama.cpp reads keys: a list, or the period of
# layers with attention, by default this one.
_RECURRENT, _PERIOD = "attention.recurrent_layers", "full_attention_interval"
_USUAL_PERIOD = {"minimax-01": 8, "qwen35": 4, "qwen35moe": 4, "qwen3next": 4, "qwen4exp": 4}


@dataclass(frozen=True)
class KeptLayers:
    """The layers of a file that are kept, of `n`; the last n_ahead of which guess tokens ahead."""

    kept: Sequence[int]
    n: int
    n_ahead: int

    def each(self, values: Sequence[Any]) -> list[Any]:
        """The kept ones of values for every layer. The last layers may have none; values after all layers are kept."""
        return [values[i] for i in self.kept if i < len(values)] + list(values[self.n :])

    def count_of(self, number: int, side: str) -> int:
        """How many of the first or last `number` layers are kept."""
        return sum(i < number if side == "first" else i >= self.n - number for i in self.kept)


def without_layers(gguf: GGUFFile, arch: str, h: Hparams, kept: Sequence[int]) -> dict[str, Any]:
    """The keys that change if only these layers are kept, with their new values; None: the key is left out.

    gguf: the file before, h: its keys. UnsupportedError: nothing would use some tensors.
    """
    layers = KeptLayers(kept, h.n_layer, h.n_ahead)
    changed = dict(_of_fields(gguf, arch, h, layers))
    by_layer = ("per_layer", "pattern", "counts")
    fields = [field.metadata for field in dataclasses.fields(h)]
    declared = {full_key(arch, meta["key"]) for meta in fields if any(meta[kind] for kind in by_layer)}
    for name in (*_EACH, *_NUMBERS, *_FIRST):
        key = full_key(arch, name)
        if key in declared or key not in gguf.metadata:
            continue
        value = gguf.get(key)
        if name in _FIRST:
            changed[key] = layers.count_of(int(value), "first")
        elif isinstance(value, np.ndarray):
            number = {old: new for new, old in enumerate(kept)}
            left = layers.each(value.tolist()) if name in _EACH else [number[i] for i in value.tolist() if i in number]
            if not left:
                raise UnsupportedError(
                    f"{gguf.path.name}: of the layers of {key} none would be left. Leave out other layers."
                )
            changed[key] = np.asarray(left, value.dtype)
    if arch in _USUAL_PERIOD:
        changed |= _recurrent(gguf, arch, layers)
    return changed


def _of_fields(gguf: GGUFFile, arch: str, h: Hparams, layers: KeptLayers) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(h):
        meta, key = field.metadata, full_key(arch, field.metadata["key"])
        raw = gguf.get(key, None)
        if field.name == "n_layer":
            yield key, len(layers.kept)
        elif meta["counts"] and raw is not None:
            yield key, layers.count_of(raw, meta["counts"])
        elif meta["pattern"]:
            values, period = layers.each(getattr(h, field.name)), meta["default"] if raw is None else raw
            usual = by_period(period, len(values), first=meta["first"]) if isinstance(period, int) else ()
            if usual != tuple(values):
                yield key, values
        elif meta["per_layer"] and isinstance(raw, np.ndarray):
            yield key, np.asarray(layers.each(raw.tolist()), raw.dtype)


def _recurrent(gguf: GGUFFile, arch: str, layers: KeptLayers) -> Iterator[tuple[str, Any]]:
    key, of_period = f"{arch}.{_RECURRENT}", f"{arch}.{_PERIOD}"
    period, stated = int(gguf.get(of_period, _USUAL_PERIOD[arch])), gguf.get(key, None)
    n_run = layers.n - layers.n_ahead
    usual = [i < n_run and recurrent for i, recurrent in enumerate(by_period(period, layers.n))]
    values = layers.each(usual if stated is None else stated.tolist())
    n_kept = sum(i < n_run for i in layers.kept)
    regular = tuple(values[:n_kept]) == by_period(period, n_kept)
    if stated is not None or not regular:
        yield key, values
    if not regular and of_period in gguf.metadata:
        yield of_period, None
