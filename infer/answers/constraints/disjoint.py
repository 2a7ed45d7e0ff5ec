"""Whether a value can fit only one of several schemas, judged by types, constants and properties that name the kind."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

MOST_PARTS = 32  # parts that are compared with each other
MOST_REFERENCES = 20  # in a chain
_NUMBERS = frozenset({"integer", "number"})


@dataclass(frozen=True)
class _Facts:
    """types: empty for any; values: all that fit, as JSON, or None if unlisted; tags: values of required properties."""

    types: frozenset[str] = frozenset()
    values: frozenset[str] | None = None
    tags: Mapping[str, frozenset[str]] | None = None
    fits_nothing: bool = False

    def differ(self, other: "_Facts") -> bool:
        if self.fits_nothing or other.fits_nothing:
            return True
        if self.types and other.types and not self.types & other.types:
            return True
        if self.values is not None and other.values is not None:
            return self.values.isdisjoint(other.values)
        tags, others = self.tags or {}, other.tags or {}
        return any(tags[key].isdisjoint(others[key]) for key in tags.keys() & others.keys())


class Disjoint:
    """Compares schemas of one document. definitions: targets of "#/$defs/NAME", by NAME."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._known: dict[str, _Facts] = {}

    def are(self, parts: list[Any]) -> bool:
        """Whether no two of the schemas have a value in common; False if that is not certain."""
        if len(parts) > MOST_PARTS:
            return False
        return all(a.differ(b) for a, b in combinations([self._facts(part) for part in parts], 2))

    def _facts(self, schema: Any) -> _Facts:
        if not isinstance(schema, dict):
            return _Facts(fits_nothing=schema is False)
        if "$ref" not in schema:
            return self._of(schema)
        if schema["$ref"] not in self._known:
            self._known[schema["$ref"]] = self._of(self._resolved(schema))
        return self._known[schema["$ref"]]

    def _of(self, schema: Any) -> _Facts:
        if not isinstance(schema, dict):
            return _Facts(fits_nothing=schema is False)
        named = schema.get("type", [])
        types = frozenset([named] if isinstance(named, str) else named)
        if types & _NUMBERS:
            types |= _NUMBERS
        tags = {}
        for key in schema.get("required", ()) if types == {"object"} else ():
            values = _values(self._resolved(schema.get("properties", {}).get(key)))
            if values is not None:
                tags[key] = values
        return _Facts(types, _values(schema), tags)

    def _resolved(self, schema: Any) -> Any:
        for _ in range(MOST_REFERENCES):
            if not isinstance(schema, dict) or "$ref" not in schema:
                return schema
            schema = self._definitions.get(schema["$ref"].removeprefix("#/$defs/"), True)
        return True


def _values(schema: Any) -> frozenset[str] | None:
    """All values that fit, as JSON; None if the schema does not list them."""
    if not isinstance(schema, dict):
        return None
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    return None if listed is None else frozenset(json.dumps(value, sort_keys=True) for value in listed)
