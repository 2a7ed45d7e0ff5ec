"""A small config for every architecture: from tests/families.

`fields` tells which config fields of an architecture are used, refused or without effect.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import config_fields
from families import merged
from random_checkpoints import CONFIGS, ENCODERS

from hybrid.convert.architectures import ARCHITECTURES
from hybrid.convert.checkpoint import Config
from hybrid.convert.config_fields import (
    REFUSED,
    WITHOUT_EFFECT,
    condition,
    refuse_what_none_can,
    without_effect,
)

# Further configs, each for a spelling or a field that no other config has.
MORE: dict[str, dict[str, Any]] = merged("examples")

# Fields that are refused unless they have the value that follows from other fields.
COMPUTED = ("head_dim", "attention_hidden_size", "hybrid_layer_ids")

# Architectures with another architecture's configs.
ALIKE: dict[str, str] = merged("alike")


def examples() -> dict[str, dict[str, Any]]:
    """Configs by name, with small vocabularies."""
    sizes = {"vocab_size": 40, "max_position_embeddings": 64}
    configs = {name: sizes | config for name, config in (CONFIGS | MORE).items()}
    for name in ("gpt2", "openelm"):  # these name it differently
        del configs[name]["max_position_embeddings"]
    configs |= {name: config | sizes for name, config in ENCODERS.items()}
    for name, config in MORE.items():
        if "text_config" in config:
            configs[name] = config
    by_class = {config["architectures"][0]: config for config in configs.values()}
    return configs | {name: {**by_class[other], "architectures": [name]} for name, other in ALIKE.items()}


@dataclass(frozen=True)
class Fields:
    """The config fields of one architecture: used ones; refused ones, with their allowed values; those without effect,
    with the reason; and unknown ones."""

    used: list[str]
    refused: dict[str, tuple[Any, ...]]
    without_effect: dict[str, str]
    unknown: list[str]
    rope: dict[str, tuple[Any, ...]]  # used fields of rope_parameters, with their allowed values; (): any value


def fields(architecture: str) -> Fields:
    """Sort the fields of the architecture's config class, and the fields common to all classes, by what the examples
    show."""
    family, used, refused = ARCHITECTURES[architecture], set(), {}
    for config in examples().values():
        if config["architectures"] == [architecture]:
            wrapped = Config(config, "config.json")
            refuse_what_none_can(wrapped, family)
            family.read(wrapped, {})
            used |= wrapped.looked.used
            refused |= wrapped.looked.expected
    prefix = "rope_parameters."
    rope = {name.removeprefix(prefix): refused.get(name, ()) for name in used | set(refused) if name.startswith(prefix)}
    names = sorted(_names(architecture))
    without = {name: why for name in names if name not in used and (why := without_effect(family, name))}
    # a used field with only one allowed value counts as refused
    refused = {
        name: values
        for name, values in refused.items()
        if name in names and (name not in used or len([v for v in values if v is not None]) < 2)
    }
    used |= {name for name in names if condition(family, name)}
    return Fields(
        [name for name in names if name in used and name not in refused],
        {name: refused[name] for name in names if name in refused},
        {name: why for name, why in without.items() if name not in refused},
        [name for name in names if name not in {*used, *refused, *without}],
        dict(sorted(rope.items())),
    )


def _names(architecture: str) -> set[str]:
    own = config_fields.known_fields()[architecture]
    inner = own.get("text_config")
    names = {f"text_config.{name}" for name in inner} if isinstance(inner, dict) else set()
    return names | set(own) | set(config_fields.of_all()) | {"per_layer_config"}


def tally() -> str:
    """A Markdown table of the number of fields of each kind for each architecture."""
    lines = ["| architecture | used | without effect | refused unless | unknown |", "|---|---|---|---|---|"]
    for architecture in sorted(ARCHITECTURES):
        f = fields(architecture)
        numbers = (len(part) for part in (f.used, f.without_effect, f.refused, f.unknown))
        lines.append(f"| `{architecture}` | {' | '.join(map(str, numbers))} |")
    return "\n".join(lines) + "\n"


def of_all() -> str:
    """Lists of the fields that are treated alike in every family's configs."""
    lines = [f"- {reason}: {_listed(names)}" for reason, names in WITHOUT_EFFECT.items()]
    refused = ", ".join(f"`{name}` unless {_values(values, name)}" for name, values in REFUSED.items())
    return "\n".join([*lines, "", f"Refused: {refused}."]) + "\n"


def by_architecture() -> str:
    """What becomes of each architecture's other fields; architectures with the same answer share a section."""
    same: dict[str, list[str]] = {}
    for architecture in sorted(ARCHITECTURES):
        same.setdefault(_answer(architecture), []).append(architecture)
    return "\n".join(f"### {', '.join(names)}\n\n{answer}" for answer, names in same.items())


def _answer(architecture: str) -> str:
    f, family = fields(architecture), ARCHITECTURES[architecture]
    always = [name for name in f.used if not condition(family, name)]
    lines = [f"- used: {_listed(always)}"]
    if f.rope:
        limits = (f"`{name}`" + (f" ({_values(values, name)})" if values else "") for name, values in f.rope.items())
        lines.append(f"- used of `rope_parameters`: {', '.join(limits)}")
    conditions: dict[str, list[str]] = {}
    for name in f.used:
        if when := condition(family, name):
            conditions.setdefault(when, []).append(name)
    lines += [f"- used {when}: {_listed(names)}" for when, names in conditions.items()]
    own = {name: values for name, values in f.refused.items() if name not in REFUSED}
    lines += [f"- refused unless {', '.join(f'`{name}` is {_values(own[name], name)}' for name in own)}"] if own else []
    reasons: dict[str, list[str]] = {}
    for name, why in f.without_effect.items():
        if why not in WITHOUT_EFFECT:
            reasons.setdefault(why, []).append(name)
    lines += [f"- without effect, {why}: {_listed(names)}" for why, names in reasons.items()]
    return "\n".join(lines) + "\n"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _values(values: Iterable[Any], name: str) -> str:
    """The allowed values of a field, as text. Absent and null, which are always allowed, are left out."""
    if name in COMPUTED:
        return "the value that other fields give"
    return " or ".join(json.dumps(value) for value in values if value is not None) or "null"


if __name__ == "__main__":
    print(tally(), end="")
