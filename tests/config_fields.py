"""The fields of transformers' config classes, names and defaults, for the architectures that can be converted.

    python tests/config_fields.py     # writes tests/data/config_fields.json

Writing the file needs transformers, here 5.24.0, and the package in one environment. Tests need neither: they read the
file. Classes that transformers lacks have the fields of published configs, from tests/families.
"""

import dataclasses
import inspect
import json
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

from families import merged

FILE = Path(__file__).resolve().parent / "data" / "config_fields.json"

# Configs of classes that transformers lacks.
PUBLISHED: dict[str, dict[str, Any]] = merged("published")

# Vision parts of published configs, if transformers' default is another one.
TOWERS_OF = {"Granite4VisionForConditionalGeneration": "siglip_vision_model"}


def has_class(architecture: str) -> bool:
    """Whether transformers has this architecture."""
    return any(architecture in of_class["architectures"] for of_class in _read()["classes"].values())


@cache
def _read() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return data


def of_all() -> dict[str, Any]:
    """The fields that all classes have, with defaults."""
    fields: dict[str, Any] = _read()["of all"]
    return fields


def known_fields() -> dict[str, dict[str, Any]]:
    """Config fields with defaults, by architecture; `text_config` holds the text part's fields."""
    classes: dict[str, dict[str, Any]] = _read()["classes"]
    fields = {name: of_class["fields"] for of_class in classes.values() for name in of_class["architectures"]}
    fields |= PUBLISHED
    # of two classes with the same configs transformers may lack either
    both = [pair for one, other in merged("alike").items() for pair in ((one, other), (other, one))]
    return fields | {name: fields[known] for name, known in both if name not in fields and known in fields}


def tower_fields() -> dict[str, dict[str, Any]]:
    """Fields of vision_config with defaults, by architecture."""
    fields: dict[str, dict[str, Any]] = _read()["towers"]
    return fields


def main() -> None:
    import transformers
    from transformers import CONFIG_MAPPING

    from hybrid.convert.architectures import ARCHITECTURES
    from hybrid.convert.vision import TOWERS

    common = _defaults(transformers.PreTrainedConfig)
    classes: dict[str, dict[str, Any]] = {}
    for name in sorted(ARCHITECTURES):
        if name in PUBLISHED or not hasattr(transformers, name):
            continue
        config_class = getattr(transformers, name).config_class
        of_class = classes.setdefault(config_class.__name__, {"architectures": [], "fields": {}})
        of_class["architectures"].append(name)
        of_class["fields"] = _fields(getattr(transformers, name), config_class, common)
    towers = {}
    for name in sorted(TOWERS):
        model = getattr(transformers, name)
        spec = model.config_class.sub_configs_defaults["vision_config"]
        own = CONFIG_MAPPING[TOWERS_OF[name]] if name in TOWERS_OF else _class_of(spec)
        towers[name] = _fields(model, own, common)
    data = {"transformers": transformers.__version__, "of all": common, "towers": towers, "classes": classes}
    FILE.write_text(_compact(data), encoding="utf-8")


def _fields(model: Any, config_class: Any, common: dict[str, Any]) -> dict[str, Any]:
    """The class's own fields, their aliases, and other fields that its code reads from a file (null: no default)."""
    own = {name: value for name, value in _defaults(config_class).items() if name not in common}
    code = inspect.getsource(sys.modules[config_class.__module__])
    source = inspect.getsource(sys.modules[model.__module__])
    if "text_config" in config_class.sub_configs_defaults:
        code = source = ""
    popped = set(re.findall(r'kwargs\.(?:pop|get|setdefault)\(\s*"(\w+)"', code)) | set(config_class.attribute_map)
    popped |= set(re.findall(r'getattr\(\s*(?:self\.)?(?:text_)?config,\s*"(\w+)"', source))
    if "rope_parameters" in own:
        popped |= {"rope_theta", "rope_scaling"} | ({"partial_rotary_factor"} if "partial_rotary" in source else set())
    for name in sorted(popped - {"_attn_implementation"}):
        own.setdefault(name, None)
    for name, spec in config_class.sub_configs_defaults.items():
        if name == "text_config":
            own[name] = _fields(model, _class_of(spec), common)
    return own


def _class_of(spec: Any) -> Any:
    """The config class of the text part; the usual one if several are possible."""
    from transformers import CONFIG_MAPPING, AutoConfig

    return CONFIG_MAPPING[spec.model_type] if spec.config_class is AutoConfig else spec.config_class


def _defaults(config_class: Any) -> dict[str, Any]:
    return {
        f.name: None if f.default is dataclasses.MISSING else f.default
        for f in dataclasses.fields(config_class)
        if f.default_factory is dataclasses.MISSING
    }


def _compact(data: dict[str, Any]) -> str:
    """JSON text with one line for each class; infinity is spelled as in config.json of transformers 5."""
    text = json.dumps(data["classes"], default=list).replace("Infinity", '{"__float__": "Infinity"}')
    rows = [f'  "{name}": {json.dumps(value)}' for name, value in json.loads(text).items()]
    head = "".join(f' "{key}": {json.dumps(data[key])},\n' for key in ("transformers", "of all"))
    towers = ",\n".join(f'  "{name}": {json.dumps(fields)}' for name, fields in data["towers"].items())
    head += ' "towers": {\n' + towers + "\n },\n"
    return "{\n" + head + ' "classes": {\n' + ",\n".join(rows) + "\n }\n}\n"


if __name__ == "__main__":
    main()
