"""Files of settings: ours are added, and all others stay.

A file is replaced when the new one is complete. The old one is kept beside it, as NAME.before-hybrid or, if there is
one already, as NAME.before-hybrid-2 and so on.
"""

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hybrid.quant.ggml.errors import UsageError, shown
from hybrid.quant.ggml.replacing import Replacement

BACKUP = ".before-hybrid"
PRIVATE = 0o600  # permissions of a new file: it may have a key


@dataclass(frozen=True)
class SettingsFile:
    """A file of its own: its whole text is ours."""

    path: Path
    text: str

    def merged(self, old: str) -> str:
        """The new text. old: the present one, or "". UsageError: ours cannot be added to it."""
        return self.text

    @property
    def shown(self) -> str:
        """The settings, for people who add them by hand."""
        return self.text

    def refusal(self, why: str) -> UsageError:
        """The error for a file that is left alone."""
        return UsageError(f"{shown(self.path)} is left alone: {why}. Add the settings by hand, without --write.")


@dataclass(frozen=True)
class JSONSettings(SettingsFile):
    """Values of a JSON object. Objects in it are merged; lists get our items in front of items with another `id`."""

    text: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)

    def merged(self, old: str) -> str:
        try:
            given = json.loads(old) if old.strip() else {}
        except ValueError as error:
            raise self.refusal(f"it is not JSON ({error})") from None
        if not isinstance(given, dict):
            raise self.refusal("it is not a JSON object")
        return _json(_merged(given, self.values))

    @property
    def shown(self) -> str:
        return _json(self.values)


@dataclass(frozen=True)
class YAMLSettings(SettingsFile):
    """Keys at the top of a YAML file, each with a text or a number. The rest of the file stays, with its comments."""

    text: str = ""
    values: Mapping[str, str | int] = field(default_factory=dict)

    def merged(self, old: str) -> str:
        """The old text with these values. HybridError: it cannot be changed line by line."""
        given = _keys(old)
        if given is None:
            raise self.refusal("it is not YAML with keys")
        lines, found = old.splitlines(), set[str]()
        for i, line in enumerate(lines):
            key = line.partition(":")[0].rstrip()
            if key in self.values:
                lines[i] = self._line(key)
                found.add(key)
        lines += [self._line(key) for key in self.values if key not in found]
        new = "\n".join(lines) + "\n"
        # a value may take several lines, and a key may be quoted
        if _keys(new) != {**given, **self.values} or given.keys() & self.values.keys() != found:
            raise self.refusal("its lines cannot be changed one by one")
        return new

    def _line(self, key: str) -> str:
        return f"{key}: {json.dumps(self.values[key], ensure_ascii=False)}"

    @property
    def shown(self) -> str:
        return self.merged("")


def _keys(text: str) -> dict[str, Any] | None:
    """The keys and values of a YAML text; None: it is something else."""
    try:
        given = yaml.safe_load(text)
    except yaml.YAMLError:
        return None
    return {} if given is None else given if isinstance(given, dict) else None


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _merged(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, Mapping):
        return {**old, **{key: _merged(old.get(key), value) for key, value in new.items()}}
    if isinstance(old, list) and isinstance(new, list):
        ours = {one.get("id") for one in new if isinstance(one, dict)}
        return [*new, *(one for one in old if not (isinstance(one, dict) and one.get("id") in ours) and one not in new)]
    return new


def write(settings: SettingsFile) -> str:
    """Adds the settings to their file. Returns a sentence about it. UsageError, OSError: nothing was changed."""
    path = settings.path
    try:
        old: bytes | None = path.read_bytes()
    except FileNotFoundError:
        old = None
    try:
        text = "" if old is None else old.decode()
    except UnicodeDecodeError:
        raise settings.refusal("it is not UTF-8") from None
    new = settings.merged(text)
    if old is not None and new == text:
        return f"{shown(path)} has these settings already"
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = ""
    if old is not None:
        backup = _free(path)
        _replace(backup, old)
        kept = f"; the old one is {shown(backup)}"
    _replace(path, new.encode())
    return f"wrote {shown(path)}{kept}"


def _free(path: Path) -> Path:
    """A name for a backup that no file has."""
    names = (f"{path.name}{BACKUP}{f'-{number}' if number > 1 else ''}" for number in itertools.count(1))
    return next(place for name in names if not (place := path.with_name(name)).exists())


def others_read(path: Path) -> bool:
    """Whether the permissions of a file let others read it."""
    return bool(path.stat().st_mode & 0o044)


def _replace(path: Path, content: bytes) -> None:
    with Replacement(path, mode=PRIVATE) as file:
        file.write(content)
