"""Typed access to config.json and similar files; errors name file, key, found and expected value."""

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError, shown
from hybrid.quant.ggml.sources import check_source
from hybrid.quant.ggml.utf8 import decoded

_REQUIRED: Any = object()
MAX_INT = 2**31 - 1  # GGUF readers hold these numbers in 32 bits
_MAX_BYTES = 512 << 20  # a tokenizer.json of 256 k tokens has 35 MB


def read_json(path: Path) -> Any:
    """The value in a JSON file. CheckpointError: unreadable, not UTF-8, or not JSON."""
    name = shown(path.name)
    try:
        check_source(path, "a JSON file")
        if path.stat().st_size > _MAX_BYTES:
            raise CheckpointError(
                f"{name} has {path.stat().st_size} bytes, expected at most {_MAX_BYTES}. Download it again."
            )
        return json.loads(decoded(path.read_bytes()))
    except OSError as error:
        raise CheckpointError(f"{shown(path)} cannot be read: {error.strerror or error}.") from None
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{name} is not UTF-8: byte {error.start} is wrong. Download it again.") from None
    except json.JSONDecodeError as error:
        raise CheckpointError(
            f"{name} is not JSON: line {error.lineno}, column {error.colno}: {error.msg}. Download it again."
        ) from None
    except (RecursionError, ValueError):  # ValueError: an integer of thousands of digits
        raise CheckpointError(
            f"{name} is nested too deeply, or has a number of too many digits. Download it again."
        ) from None


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise CheckpointError(f"{shown(path.name)} holds {kind_of(value)}, expected an object. Download it again.")
    return value


def kind_of(value: Any) -> str:
    """JSON's name for the type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    kinds = {int: "an integer", float: "a number", str: "a string", list: "a list", dict: "an object"}
    return kinds.get(type(value), type(value).__name__)


@dataclass
class Looked:
    """The keys of one file that were looked at so far, by dotted path (`rope_parameters.factor`), present or not."""

    used: set[str] = field(default_factory=set)
    expected: dict[str, tuple[Any, ...]] = field(default_factory=dict)  # the values without which it is refused
    sections: set[str] = field(default_factory=set)  # objects of which single keys were looked at
    counted: set[str] = field(default_factory=set)
    overruled: dict[str, str] = field(default_factory=dict)  # by which other spelling, of another value

    def ignored(self) -> dict[str, str]:
        """Keys that are present but ignored, because another spelling with another value took precedence."""
        return {path: by for path, by in self.overruled.items() if path not in self.counted}


class Config:
    """An object of a JSON file. Getters take several spellings of a key; the first that is not null counts. All
    sections of a file share `looked`; `prefixes` are the paths to this one, several if two are read as one."""

    def __init__(
        self, data: Mapping[str, Any], where: str, looked: Looked | None = None, prefixes: tuple[str, ...] = ("",)
    ) -> None:
        self.data = data
        self.where = where
        self.looked = Looked() if looked is None else looked
        self.prefixes = prefixes

    @classmethod
    def read(cls, path: Path) -> "Config":
        return cls(read_object(path), shown(path.name))

    def over(self, other: "Config") -> "Config":
        """This section and `other` of the same file as one; keys of this one take precedence."""
        prefixes = (*self.prefixes, *(prefix for prefix in other.prefixes if prefix not in self.prefixes))
        return Config({**other.data, **self.data}, self.where, self.looked, prefixes)

    def __contains__(self, key: str) -> bool:
        self.looked.used |= self._paths(key)
        return self.data.get(key) is not None

    def get(self, *keys: str) -> Any:
        """The first value that is not null, else None. `{"__float__": "Infinity"}` means that float."""
        return self._find(keys)[1]

    def integer(self, *keys: str, default: Any = _REQUIRED, minimum: int = 1, maximum: int = MAX_INT) -> int:
        """The value of the first present key. CheckpointError: missing without a default, or not an integer in minimum
        .. maximum."""
        key, value = self._find(keys)
        if value is None:
            missing: int = self._default(keys, default)
            return missing
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(key, "an integer")
        if not minimum <= value <= maximum:
            raise self.wrong(key, f"an integer from {minimum} to {maximum}")
        return value

    def number(self, *keys: str, default: Any = _REQUIRED, positive: bool = True) -> float:
        """A finite number."""
        key, value = self._find(keys)
        if value is None:
            missing: float = self._default(keys, default)
            return missing
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 3.4e38:
            raise self.wrong(key, "a finite number")
        if positive and value <= 0:
            raise self.wrong(key, "a positive number")
        return float(value)

    def boolean(self, *keys: str, default: Any = _REQUIRED) -> bool:
        """CheckpointError: missing without a default, or not a boolean."""
        key, value = self._find(keys)
        if value is None:
            missing: bool = self._default(keys, default)
            return missing
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def string(self, *keys: str, default: Any = _REQUIRED) -> str:
        """CheckpointError: missing without a default, or not a string."""
        key, value = self._find(keys)
        if value is None:
            missing: str = self._default(keys, default)
            return missing
        if not isinstance(value, str):
            raise self.wrong(key, "a string")
        return value

    def section(self, *keys: str) -> "Config":
        """The object of this key; empty if absent."""
        key, value = self._find(keys)
        within = keys if value is None else (key,)
        prefixes = tuple(f"{prefix}{name}." for prefix in self.prefixes for name in within)
        if value is None:
            return Config({}, self.where, self.looked, prefixes)
        if not isinstance(value, dict):
            raise self.wrong(key, "an object")
        self.looked.sections |= self._paths(key)
        return Config(value, f"{self.where}: {key}", self.looked, prefixes)

    def expects(self, key: str, *values: Any) -> None:
        """UnsupportedError unless the key is absent, null or one of `values`."""
        self.looked.expected |= dict.fromkeys(self._paths(key), values)
        value = self._value(key)
        if value is not None and not any(value == v and type(value) is type(v) for v in values):
            wanted = " or ".join(json.dumps(v) for v in values if v is not None) or "nothing"
            raise UnsupportedError(f"{self.where}: {key} = {self._text(value)} is not supported, only {wanted} is.")

    def refuse_unread(self, idle: Collection[str]) -> None:
        """UnsupportedError names a key of this object that nobody looked at and that `idle` does not list, unless it
        says nothing: null, false or empty."""
        for key, value in self.data.items():
            if value not in (None, False, "", [], {}) and key not in idle and not self._paths(key) & self._looked():
                raise UnsupportedError(
                    f"{self.where}: {shown(key)} = {self._text(value)} is not understood. "
                    "Give the checkpoint it was made from."
                )

    def _looked(self) -> set[str]:
        return self.looked.used | self.looked.expected.keys() | self.looked.sections

    def wrong(self, key: str, expected: str) -> CheckpointError:
        """The error for an impossible value, or for an impossible default of an absent value."""
        if key not in self.data:
            return CheckpointError(f"{self.where} has no {key}, expected {expected}.")
        value = self.data[key]
        return CheckpointError(f"{self.where}: {key} = {self._text(value)} ({kind_of(value)}), expected {expected}.")

    def named(self, *keys: str) -> str:
        """The spelling of a key that this config uses, or the first spelling if it lacks the key."""
        return self._find(keys)[0]

    def _find(self, keys: tuple[str, ...]) -> tuple[str, Any]:
        there = [(key, value) for key in keys if (value := self._value(key)) is not None]
        for key in keys:
            self.looked.used |= self._paths(key)
        if not there:
            return keys[0], None
        spelling, counts = there[0]
        self.looked.counted |= self._paths(spelling)
        for key, value in there[1:]:
            if value != counts:
                self.looked.overruled |= dict.fromkeys(self._paths(key), spelling)
        return spelling, counts

    def _value(self, key: str) -> Any:
        value = self.data.get(key)
        if isinstance(value, dict) and value.keys() == {"__float__"}:
            return {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}.get(value["__float__"], value)
        return value

    def _paths(self, key: str) -> set[str]:
        return {prefix + key for prefix in self.prefixes}

    def _default(self, keys: tuple[str, ...], default: Any) -> Any:
        if default is _REQUIRED:
            raise CheckpointError(f"{self.where} has no {' or '.join(keys)}. Is it the config of this model?")
        return default

    @staticmethod
    def _text(value: Any) -> str:
        return shown(json.dumps(value, ensure_ascii=False), 60)
