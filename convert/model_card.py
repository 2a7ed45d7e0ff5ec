"""The front matter of a repository's README.md: YAML between two lines of dashes."""

import re
from pathlib import Path
from typing import Any

from hybrid.quant.ggml.utf8 import decoded

# GGUF's name -> names in use; the first that is a text counts.
_TEXTS: dict[str, tuple[str, ...]] = {
    "name": ("name", "model_name"),
    "author": ("author", "model_author", "model_creator"),
    "version": ("version", "model_version"),
    "organization": ("organization", "model_organization"),
    "description": ("description", "model_description"),
    "finetune": ("finetune", "model_finetune"),
    "basename": ("basename", "model_basename", "model_type"),
    "size_label": ("size_label", "model_size_label"),
    "license": ("license",),
    "license.name": ("license_name",),
    "license.link": ("license_link",),
    "source.url": ("url", "model_url"),
    "source.doi": ("doi", "model_doi"),
    "source.uuid": ("uuid", "model_uuid"),
    "source.repo_url": ("repo_url", "model_repo_url"),
}
_LISTS: dict[str, tuple[str, ...]] = {"tags": ("tags", "pipeline_tag"), "languages": ("languages", "language")}
_ORIGINS: dict[str, tuple[str, ...]] = {
    "base_models": ("base_model", "base_models"),
    "datasets": ("datasets", "dataset"),
}
_HUB = re.compile(r"(?:https?://huggingface\.co/)?([\w.-]+)/([\w.-]+)")
_MAX_BYTES = 4 << 20


def read_model_card(folder: Path, notes: list[str]) -> dict[str, Any]:
    """general.* facts by key without the prefix. A README is written for people: errors in it only become notes."""
    path = folder / "README.md"
    if not path.is_file():
        return {}
    try:
        text = decoded(path.read_bytes()[:_MAX_BYTES], "replace")
    except OSError:
        return {}
    lines = text.splitlines()
    if not lines or lines[0].strip() != "---":
        return {}
    end = next((i for i, line in enumerate(lines[1:], 1) if line.strip() == "---"), None)
    card = _parse("\n".join(lines[1:end])) if end else None
    if card is None:
        notes.append("the front matter of README.md is not readable and was ignored")
        return {}
    facts: dict[str, Any] = {}
    for key, names in _TEXTS.items():
        value = next((card[name] for name in names if card.get(name)), None)
        if isinstance(value, list) and key == "license":
            value = ",".join(_texts(value))
        if isinstance(value, (str, int, float)) and not isinstance(value, bool):
            facts[key] = str(value)
    for key, names in _LISTS.items():
        values = [text for name in names for text in _texts(card.get(name))]
        if values:
            facts[key] = values
    for key, names in _ORIGINS.items():
        values = [text for name in names for text in _texts(card.get(name))]
        if values:
            facts[key] = [_origin(text) for text in values]
    return facts


def _parse(text: str) -> dict[str, Any] | None:
    import yaml

    # "no" alone is Norwegian here, not false.
    text = re.sub(r"^(\s*- )(no|yes|on|off)\s*$", r'\1"\2"', text.replace("\t", "  "), flags=re.MULTILINE)
    try:
        card = yaml.load(text, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError, ValueError):
        return None
    return card if isinstance(card, dict) else None


def _texts(value: Any) -> list[str]:
    if isinstance(value, str) and value:
        return [value]
    return [text for text in value if isinstance(text, str) and text] if isinstance(value, list) else []


def _origin(text: str) -> dict[str, str]:
    """name, organization and repo_url of `org/model` or a URL."""
    match = _HUB.fullmatch(text)
    if match is None:
        return {"repo_url": text} if "://" in text else {"name": text}
    organization, name = match.groups()
    return {
        "name": name.replace("-", " "),
        "organization": organization,
        "repo_url": f"https://huggingface.co/{organization}/{name}",
    }
