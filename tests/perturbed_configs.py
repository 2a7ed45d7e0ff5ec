"""Configs with one changed field, and what their conversion yields."""

import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import config_fields

from hybrid.convert.checkpoint import Checkpoint
from hybrid.convert.config_fields import condition, without_effect
from hybrid.convert.plan import PreparedConversion, prepare
from hybrid.convert.stream import slices
from hybrid.quant.ggml.errors import HybridError

# Other values of words; any other word becomes a meaningless one.
_WORDS = {
    "rope": ["nope"], "silu": ["gelu"], "gelu": ["gelu_new", "relu"], "full_attention": ["sliding_attention"],
    "sliding_attention": ["full_attention"], "linear_attention": ["full_attention"], "mamba": ["attention"],
    "attention": ["mamba"], "conv": ["full_attention"], "hybrid": ["mamba"], "recurrent": ["attention"],
    "absolute": ["relative_key"], "default": ["linear"], "bfloat16": ["float16"],
}  # fmt: skip
# Values to try for fields that are absent and null by default, beside numbers and words.
_ROPE: list[Any] = [
    {"rope_theta": 54321.0},
    {"rope_type": "linear", "factor": 3.7},
    {"type": "linear", "factor": 3.7},
    {"rope_type": "dynamic", "factor": 3.7},
    {"rope_type": "default", "partial_rotary_factor": 0.375},
]
_TYPICAL: dict[str, list[Any]] = {
    "rope_parameters": _ROPE, "rope_scaling": _ROPE[1:4], "rope_theta": [54321.0], "partial_rotary_factor": [0.375],
    "per_layer_config": [{"0": {"hidden_act": "relu"}}], "layer_types": [["full_attention"], ["sliding_attention"]],
    "time_step_limit": [[0.01, 0.1]], "mlp_only_layers": [[0]], "clip_qkv": [8.0], "attn_logit_softcapping": [3.0],
    "final_logit_softcapping": [3.0], "rope_local_base_freq": [54321.0], "use_bidirectional_attention": [True],
    "ssm_multipliers": [[1.0, 2.0, 3.0, 4.0, 5.0]], "mlp_multipliers": [[1.0, 2.0]], "dtype": ["float16"],
    "is_decoder": [True], "attention_bias": [True], "mlp_bias": [True],
}  # fmt: skip


def other_values(name: str, value: Any) -> Iterator[Any]:
    """Values of the same kind that mean something else, or nothing."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, 2 * value, 7 * value) if value else (1, 2)
        if value > 1:
            yield from (value - 1, 1)
    elif isinstance(value, float):
        yield value * 1.5 if value and math.isfinite(value) else 0.5
    elif isinstance(value, str):
        yield from _WORDS.get(value, [])
        yield "nonsense"
    elif isinstance(value, (list, tuple)) and value:
        items = list(value)
        for at in {0, len(items) - 1}:
            yield from ([*items[:at], other, *items[at + 1 :]] for other in other_values(name, items[at]))
        yield items[:-1]
    elif isinstance(value, dict) and value.keys() == {"__float__"}:
        yield 5.0
    else:
        yield from _TYPICAL.get(name, [17, "nonsense"])


def _others(name: str, value: Any) -> Iterator[tuple[str, Any, Any]]:
    """(path, the changed value of field `name`, the new value at the path)."""
    if not isinstance(value, dict) or value.keys() == {"__float__"}:
        yield from ((name, other, other) for other in other_values(name, value))
        return
    for key, inner in value.items():
        for path, changed, other in _others(key, inner):
            yield f"{name}.{path}", {**value, key: changed}, other
    nested = [key for key, inner in value.items() if isinstance(inner, dict)]  # one object for each kind of layer
    for more in _TYPICAL.get(name, ()):
        for key in nested:
            yield name, {**value, key: {**value[key], **more}}, more
        if not nested:
            yield name, {**value, **more}, more


def perturbed(config: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """(path, config, value): configs with only that field changed to that value. Covers fields of the config and of its
    class."""
    own = config_fields.known_fields()[config["architectures"][0]]
    fields = config_fields.of_all() | {"per_layer_config": None} | own | config
    for name, value in fields.items():
        if name == "text_config" and name in config:
            for path, changed, other in _all_others(own[name] | value, own[name]):
                yield f"text_config.{path}", {**config, name: {**value, **changed}}, other
    plain = {name: value for name, value in fields.items() if name not in ("architectures", "text_config")}
    for path, changed, other in _all_others(plain, own):
        yield path, {**config, **changed}, other


def _all_others(fields: dict[str, Any], own: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Changes of all fields. partial_rotary_factor is left out unless the class has it in `own`: other classes may
    ignore it."""
    for name, value in fields.items():
        for path, changed, other in _others(name, value):
            if "partial_rotary_factor" in own or "partial_rotary_factor" not in f"{path} {other}":
                yield path, {name: changed}, other


class Conversion:
    """The files of a checkpoint, converted repeatedly with other configs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.tensors = Checkpoint(folder).tensors
        self.plain = self.prepared(self.config)
        self.digest = digest(self.plain)
        own = config_fields.known_fields()[self.config["architectures"][0]]
        self.fields = {*own, *config_fields.of_all(), *own.get("text_config", ())}

    def prepared(self, config: dict[str, Any]) -> PreparedConversion:
        """Prepare a conversion. The headers of the weights are read once, as no config changes them: reading them took
        half the time."""
        file = self.folder / "config.json"
        file.unlink()  # ext4 flushes a file to disk at once when it is truncated and rewritten
        file.write_text(json.dumps(config), encoding="utf-8")
        with patch.object(Checkpoint, "tensors", self.tensors):
            return prepare(self.folder, with_vocabulary=False)

    def changes(self, config: dict[str, Any]) -> bool:
        """Whether the config changes the file, is refused, or causes a note that another spelling counts."""
        try:
            prepared = self.prepared(config)
        except HybridError:
            return True
        return digest(prepared) != self.digest or any("is ignored, because" in note for note in prepared.plan.notes)

    def fault(self, path: str, config: dict[str, Any]) -> str:
        """Why the conversion with this config is wrong. "" if right: the file changes, the config is refused with a
        message, the tables say that the field has no effect, or a note reports it."""
        try:
            prepared = self.prepared(config)
        except HybridError as error:
            return "" if str(error) else "an error without words"
        last, why = path.rpartition(".")[2], without_effect(prepared.family, path)
        looked = prepared.config.looked
        if digest(prepared) != self.digest:
            used = path in looked.used or path in looked.expected
            return "" if used or why is None else f"changes the file, though: {why}"
        why = why or condition(prepared.family, path)
        new = [note for note in prepared.plan.notes if last in note and note not in self.plain.plan.notes]
        known = last in self.fields or path in self.fields
        if why or any("is ignored" in note or not known for note in new):
            return ""
        return "changes nothing, and nobody says why"


def faults(conversion: Conversion, *, every: bool = True) -> list[str]:
    """The faults of all configs with a changed field. At least one of a number's other values has to change something.
    The values after that one are tried only with `every`, for errors without a message."""
    by_path: dict[str, list[str]] = {}
    right, tried = set(), 0
    for path, config, value in perturbed(conversion.config):
        if path in right and not every:
            continue
        tried += 1
        if fault := conversion.fault(path, config):
            by_path.setdefault(path, []).append(f"{path} = {value!r} {fault}")
        elif type(value) in (int, float):
            right.add(path)
    print(f"{tried} configs with one other value each")
    assert tried > 20
    return [fault for path, some in by_path.items() if path not in right for fault in some]


def digest(prepared: PreparedConversion) -> str:
    """A digest of everything that the file will hold, except its name and the vocabulary."""
    lines = [
        f"{key}={value}"
        for key, value in prepared.plan.metadata.items()
        if not key.startswith("general.") or key in ("general.architecture", "general.file_type")
    ]
    values_digest = hashlib.sha256()
    for job in prepared.jobs:
        lines.append(f"{job.planned}")
        if job.row.constant is not None:
            values_digest.update(job.row.constant.tobytes())
        elif job.row.transform is not None:
            for part in slices(job):
                values_digest.update(part.values().tobytes())
    return hashlib.sha256(values_digest.digest() + "\n".join(lines).encode()).hexdigest()
