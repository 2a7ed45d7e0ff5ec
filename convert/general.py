"""`general.*` keys: name, size, authors, licence and default sampling settings of a model."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hybrid.quant.ggml.errors import UsageError, shown
from hybrid.quant.ggml.types import ArrayOf, ValueType

from .checkpoint import Checkpoint, Config, read_object
from .checkpoint.config import kind_of
from .model_card import read_model_card
from .planned import PlannedTensor
from .tokenizers.vocabulary import KeyValue

# Sampling defaults: key -> names in generation_config.json, kind.
_SAMPLING: dict[str, tuple[tuple[str, ...], ValueType]] = {
    "sequence": (("sequence",), ValueType.STRING),
    "top_k": (("top_k",), ValueType.INT32),
    "top_p": (("top_p",), ValueType.FLOAT32),
    "min_p": (("min_p",), ValueType.FLOAT32),
    "xtc_probability": (("xtc_probability",), ValueType.FLOAT32),
    "xtc_threshold": (("xtc_threshold",), ValueType.FLOAT32),
    "temp": (("temperature",), ValueType.FLOAT32),
    "penalty_last_n": (("penalty_last_n",), ValueType.INT32),
    "penalty_repeat": (("penalty_repeat", "repetition_penalty"), ValueType.FLOAT32),
    "mirostat": (("mirostat",), ValueType.INT32),
    "mirostat_tau": (("mirostat_tau",), ValueType.FLOAT32),
    "mirostat_eta": (("mirostat_eta",), ValueType.FLOAT32),
}
# In the order of the file. Numbered keys (base_model.0.name, dataset.0.name) go between source and tags.
_FACTS = (
    "name", "author", "version", "organization", "finetune", "basename", "description", "quantized_by", "size_label",
    "license", "license.name", "license.link", "url", "doi", "uuid", "repo_url", "source.url", "source.doi",
    "source.uuid", "source.repo_url",
)  # fmt: skip
_LISTS = ("tags", "languages")
_ORIGINS = {"base_models": "base_model", "datasets": "dataset"}
# Written by the converter from what the file really holds.
_FIXED = ("architecture", "type", "file_type", "quantization_version", "alignment")

_SIZE = re.compile(r"(\d+x)?(\d+(?:[._]\d+)?)([kmbt])", re.IGNORECASE)
_TYPE = re.compile(r"i?q\d(_\w+)*|b?fp?(16|32)", re.IGNORECASE)  # left out of names: general.file_type says it
_VERSION = re.compile(r"v?\d+(\.\d+)*", re.IGNORECASE)
_TUNES = re.compile(r"chat|instruct|base|vision|it|sft|dpo", re.IGNORECASE)
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
Facts = dict[str, Any]


def sampling_keys(checkpoint: Checkpoint) -> list[KeyValue]:
    """general.sampling.* keys from generation_config.json."""
    config = checkpoint.optional_config("generation_config.json")
    key_values: list[KeyValue] = []
    for key, (names, kind) in _SAMPLING.items():
        if config.get(*names) is None:
            continue
        if kind is ValueType.STRING:
            value: Any = config.string(*names)
        elif kind is ValueType.INT32:
            value = config.integer(*names, minimum=-(2**31))
        else:
            value = config.number(*names, positive=False)
        key_values.append((f"general.sampling.{key}", value, kind))
    return key_values


def general_keys(
    checkpoint: Checkpoint,
    tensors: Sequence[PlannedTensor],
    override: Path | None,
    model_name: str | None,
    notes: list[str],
) -> tuple[list[KeyValue], Facts]:
    """The other general.* keys, and the facts they are made from.

    Sources in order of precedence: --model-name, --metadata, the README, the config's own path, the folder's name.
    """
    given = _read_override(override) if override else {}
    n_params = sum(math.prod(t.shape) for t in tensors)
    facts: Facts = read_model_card(checkpoint.folder, notes)
    path = checkpoint.config.get("_name_or_path")
    hub = path if isinstance(path, str) and _HUB_NAME.fullmatch(path) and not path.startswith(".") else None
    for source in filter(None, (hub, checkpoint.name)):
        for key, value in parse_name(source, n_params).items():
            facts.setdefault(key, value)
    facts.setdefault("name", checkpoint.name or "model")
    if tensors:
        facts.setdefault("size_label", size_label(tensors))
    facts |= {key: value for key, value in given.items() if not key.startswith("sampling.")}
    if model_name is not None:
        facts["name"] = model_name
    key_values: list[KeyValue] = [
        (f"general.{key}", value, _SAMPLING[key.removeprefix("sampling.")][1])
        for key, value in given.items()
        if key.removeprefix("sampling.") in _SAMPLING and key.startswith("sampling.")
    ]
    key_values += [(f"general.{key}", facts[key], None) for key in _FACTS if facts.get(key) is not None]
    for plural, singular in _ORIGINS.items():
        entries = facts.get(plural)
        if entries:
            key_values.append((f"general.{singular}.count", len(entries), ValueType.UINT32))
            key_values += [
                (f"general.{singular}.{i}.{key}", value, ValueType.STRING)
                for i, entry in enumerate(entries)
                for key, value in entry.items()
            ]
    key_values += [(f"general.{key}", facts[key], ArrayOf(ValueType.STRING)) for key in _LISTS if facts.get(key)]
    known = {*_FACTS, *_LISTS, *_ORIGINS}
    key_values += [(f"general.{key}", value, None) for key, value in facts.items() if key not in known]
    return key_values, facts


def _read_override(path: Path) -> Facts:
    """The facts in the user's file of general.* keys."""
    if not path.is_file():
        raise UsageError(f"{shown(path)} is not a file. Give a JSON file of general.* keys.")
    facts: Facts = {}
    content = read_object(path)
    config = Config(content, shown(path.name))
    for full, value in content.items():
        key = full.removeprefix("general.")
        if key == full or not key or key in _FIXED:
            reason = "is set by the converter" if key in _FIXED else "does not begin with general."
            raise UsageError(f"{config.where}: {shown(full)} {reason}. Leave it out.")
        if key in _ORIGINS:
            if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
                raise config.wrong(full, "a list of objects")
            if not all(isinstance(text, str) for entry in value for text in entry.values()):
                raise config.wrong(full, "a list of objects of strings")
        elif key in _LISTS or isinstance(value, list):
            if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
                raise config.wrong(full, "a list of strings")
        elif key in _FACTS or key == "sampling.sequence":
            config.string(full)
        elif key.startswith("sampling."):
            integral = _SAMPLING.get(key.removeprefix("sampling."), ((), None))[1] is ValueType.INT32
            value = config.integer(full, minimum=-(2**31)) if integral else config.number(full, positive=False)
        elif not isinstance(value, (str, int, float, bool)):
            raise UsageError(f"{config.where}: {shown(full)} is {kind_of(value)}, which a GGUF key cannot hold.")
        facts[key] = value
    return facts


def parse_name(name: str, n_params: int) -> Facts:
    """The parts of a name like `org/Llama-3.2-1B-Instruct-v0.3`: name, organization, basename, size_label, finetune,
    version. A size far from `n_params` is taken for something else (a context length)."""
    facts: Facts = {}
    organization, slash, title = name.rpartition("/")
    if slash and organization:
        facts["organization"] = _title(organization)
    parts = [part for part in title.split("-") if part and not _TYPE.fullmatch(part)]
    facts["name"] = _title(" ".join(parts) or title)
    size = next((i for i, part in enumerate(parts) if i and _plausible(part, n_params)), None)
    first_tune = next((i for i, part in enumerate(parts) if i and _TUNES.fullmatch(part)), len(parts))
    version = len(parts) - 1 if len(parts) > 1 and _VERSION.fullmatch(parts[-1]) and size != len(parts) - 1 else None
    end = min(i for i in (size, first_tune, version, len(parts)) if i is not None)
    rest = [part for i, part in enumerate(parts[end:], end) if i not in (size, version)]
    if size is None and version is None and not rest:
        return facts
    facts["basename"] = "-".join(parts[:end]) or None
    if size is not None:
        facts["size_label"] = parts[size].replace("_", ".").upper().replace("X", "x")
    if rest:
        facts["finetune"] = "-".join(rest)
    if version is not None:
        facts["version"] = parts[version]
    return {key: value for key, value in facts.items() if value}


def _plausible(part: str, n_params: int) -> bool:
    match = _SIZE.fullmatch(part)
    if match is None:
        return False
    stated = float(match[2].replace("_", ".")) * 1000 ** (" KMBT".index(match[3].upper()))
    return n_params == 0 or match[1] is not None or n_params / 8 <= stated <= n_params * 8


def _title(name: str) -> str:
    """The name in words for display: `falcon-mamba-7b` -> `Falcon Mamba 7b`; words with capitals stay unchanged."""
    words = name.strip().replace("-", " ").split()
    named = (word.islower() and not word[0].isdigit() and not _VERSION.fullmatch(word) for word in words)
    return " ".join(word.title() if is_name else word for word, is_name in zip(words, named, strict=True))


def size_label(tensors: Sequence[PlannedTensor]) -> str:
    """The number of weights with at least two digits: `11M`. With experts `16x3.4B`: the number of experts, and the
    weights of a model with one of them."""
    experts = [t.shape for t in tensors if "_exps." in t.name and len(t.shape) == 3]
    total = sum(math.prod(t.shape) for t in tensors)
    if not experts:
        return _rounded(total)
    n_expert = sum(shape[0] for shape in experts) // len(experts)
    inactive = sum(math.prod(shape) - math.prod(shape[1:]) for shape in experts)
    return f"{n_expert}x{_rounded(total - inactive)}"


def _rounded(n: int) -> str:
    scale, letter = next((s, c) for s, c in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")) if n > s or c == "K")
    digits = 1 if round(n / scale) < 10 else 0
    return f"{n / scale:.{digits}f}{letter}"


def output_name(facts: Facts, file_type: str | None) -> str:
    """The default file name without suffix: base name (or name), size, finetune, version, and type or `vocab`."""
    parts = [str(facts.get("basename") or facts["name"])]
    keys = ("size_label", "finetune", "version") if file_type else ("finetune", "version")
    parts += [str(facts[key]) for key in keys if facts.get(key)]
    parts.append(file_type.upper() if file_type else "vocab")
    return re.sub(r"[^\w.+-]+", "-", "-".join(part.strip() for part in parts)).strip("-.") or "model"
