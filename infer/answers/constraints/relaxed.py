"""The nearest wider schema that can be enforced: for tools, which shall be called even if some keyword is not enforced.

    schema, notes = relaxed({"type": "string", "format": "path"})
    notes[0]         "`format: path` at parameters cannot be enforced: any string is accepted"

Every value of the schema fits the relaxed one. `response_format` is never relaxed. Annotations stay unchanged.
References lead to "$defs" of the relaxed schema, wherever they led before.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

from hybrid.quant.ggml.errors import shown

from .corrected import PATTERNS, VALUES
from .disjoint import Disjoint

FORMATS = frozenset({*PATTERNS, "uri", "email", "ipv4", "ipv6", "hostname", "duration", "uuid"})
TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
# keywords that constrain values, in a relaxed schema
CONSTRAINING = {
    "$ref", "type", "enum", "const", "allOf", "anyOf", "oneOf", "minLength", "maxLength", "pattern", "format",
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "items", "prefixItems", "minItems",
    "maxItems", "properties", "required", "additionalProperties", "patternProperties", "minProperties",
    "maxProperties",
}  # fmt: skip
MOST_NOTES = 20  # of one schema
PER_BYTE = 0.5  # subschemas that are visited, per byte of the whole schema
MOST_DIGITS = 10  # of an index into a list
MOST_DEFINITIONS = 300  # more are not searched for circular references
# keywords that cannot be enforced, and the values that are accepted instead; {} is the type
_DROPPED = {
    "uniqueItems": "repeated items are accepted",
    "contains": "any items are accepted",
    "unevaluatedItems": "further items are accepted",
    "propertyNames": "any names of properties are accepted",
    "unevaluatedProperties": "further properties are accepted",
    "dependentRequired": "each property is accepted without the others",
    "dependentSchemas": "each property is accepted without the others",
    "dependencies": "each property is accepted without the others",
    "not": "any {} is accepted",
    "if": "any {} is accepted",
    "$dynamicRef": "any value is accepted",
    "$recursiveRef": "any value is accepted",
}
# values that have no effect
_WITHOUT_EFFECT = {"uniqueItems": (False,), "not": (False,), "propertyNames": (True, {}, {"type": "string"})}
_SILENT = ("then", "else", "minContains", "maxContains")  # no effect without `if` and `contains`
_NAMING = ("$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$defs", "definitions")
_PLAIN = frozenset({"type", "description", "title", "default", "examples"})
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_COMBINED = ("allOf", "anyOf", "oneOf", "$ref", "if", "dependentSchemas")
_OLD = re.compile(r"draft-0[3-7]")  # these ignore keywords beside a $ref
_LOOKS = ("(?=", "(?!", "(?<=", "(?<!")


def relaxed(schema: dict[str, Any], place: str = "parameters") -> tuple[dict[str, Any], tuple[str, ...]]:
    """The schema that can be enforced, and a sentence for each part that cannot. place: the schema's name in them."""
    made = _Relaxed(schema, place)
    return made.schema, tuple(made.notes)


def spoken(pointer: str, place: str = "parameters") -> str:
    """A JSON pointer as notes write it: "parameters.names[]"."""
    names = pointer.replace("/properties/", "/").replace("/items", "[]").replace("/", ".")
    return place + names.replace("~1", "/").replace("~0", "~")


def can_be_matched(pattern: str) -> bool:
    """Whether the compiler gives an ECMA-262 pattern the same meaning, judged by its characters.

    False for look-around, back-references, word boundaries and escapes of other dialects, and for character classes
    that are empty or that Rust would read as sets of classes.
    """
    at, in_class = 0, False
    while at < len(pattern):
        if pattern[at] == "\\":
            if pattern[at + 1 : at + 2] in {*"123456789bBcGkZzAe"}:
                return False
            at += 2
            continue
        if in_class:
            if pattern[at] == "[" or pattern[at : at + 2] in ("&&", "--", "~~"):
                return False
            in_class = pattern[at] != "]"
        elif pattern[at] == "[":
            in_class = True
            if pattern.startswith(("]", "^]"), at + 1):
                return False
        elif pattern.startswith(_LOOKS, at):
            return False
        at += 1
    return True


def _references(schema: Any) -> Iterator[str]:
    """Names of the definitions that a relaxed schema refers to."""
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].removeprefix("#/$defs/")
        for key, part in schema.items():
            if key not in VALUES:
                yield from _references(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _references(part)


class _Relaxed:
    """The relaxed schema of one document."""

    def __init__(self, root: dict[str, Any], place: str) -> None:
        self._root, self._place = root, place
        self._ignores_siblings = bool(_OLD.search(str(root.get("$schema", ""))))
        self._names: dict[str, str] = {}  # names of definitions, by JSON pointer
        self._waiting: list[tuple[str, Any]] = []
        self._one_of: list[tuple[str, list[Any]]] = []
        self._left = PER_BYTE * len(json.dumps(root, default=str)) + 100  # subschemas to visit: references repeat parts
        self._beside: list[tuple[str, dict[str, Any]]] = []  # schemas with keywords beside a reference
        self.notes: list[str] = []
        self.schema: dict[str, Any] = self._node(root, place)
        definitions: dict[str, Any] = {}
        while self._waiting:
            pointer, target = self._waiting.pop()
            definitions[self._names[pointer]] = self._any(target, spoken(pointer, place))
        if definitions:
            self.schema["$defs"] = definitions
        self._alone(definitions)
        disjoint = Disjoint(definitions)
        for where, parts in self._one_of:
            if not disjoint.are(parts):
                self._note("oneOf", where, "a value may fit several of its schemas")

    def _note(self, what: str, where: str, instead: str) -> None:
        note = f"`{shown(what, 60)}` at {shown(where, 120)} cannot be enforced: {instead}"
        if note not in self.notes and len(self.notes) < MOST_NOTES:
            self.notes.append(note)

    # --- schemas ---
    def _any(self, schema: Any, where: str) -> Any:
        if isinstance(schema, dict):
            return self._node(schema, where)
        if not isinstance(schema, bool):
            self._note(f"{schema!r}", where, "any value is accepted")
        return schema is not False

    def _node(self, given: dict[str, Any], where: str) -> dict[str, Any]:
        self._left -= 1
        if self._left < 0:
            self._note("$ref", where, "the schema refers to too much, any value is accepted")
            return {}
        if given.keys() <= _PLAIN and given.get("type", "string") in TYPES:  # a shortcut for most schemas
            return dict(given)
        schema = {key: value for key, value in given.items() if key not in _NAMING}
        if self._ignores_siblings and isinstance(schema.get("$ref"), str):
            schema = {"$ref": schema["$ref"]}
        self._as_today(schema)
        self._types(schema, where)
        if "enum" in schema and (not isinstance(schema["enum"], list) or not schema["enum"]):
            self._odd(schema, "enum", where)
        self._numbers(schema, where)
        self._strings(schema, where)
        self._refer(schema, where)
        self._items(schema, where)
        self._properties(schema, where)
        self._combinations(schema, where)
        self._drop(schema, where)
        made = self._nullable(schema, given)
        if "$ref" in schema:
            for key in (
                schema.keys() - CONSTRAINING - {"description"}
            ):  # others count in circles, as the compiler has it
                del schema[key]
            self._beside.append((where, schema))
        return made

    def _as_today(self, schema: dict[str, Any]) -> None:
        """Rewrites keywords of older drafts."""
        for excluded, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if isinstance(schema.get(excluded), bool) and schema.pop(excluded) and bound in schema:
                schema[excluded] = schema.pop(bound)
        if isinstance(schema.get("items"), list):
            schema["prefixItems"] = schema.pop("items")
            if "additionalItems" in schema:
                schema["items"] = schema["additionalItems"]
        schema.pop("additionalItems", None)
        closed = schema.get("unevaluatedProperties")
        if closed is not None and not {"additionalProperties", *_COMBINED} & schema.keys():
            schema["additionalProperties"] = schema.pop("unevaluatedProperties")
        elif closed is True:
            del schema["unevaluatedProperties"]

    def _types(self, schema: dict[str, Any], where: str) -> None:
        if "type" not in schema:
            return
        value = schema.pop("type")
        named = value if isinstance(value, list) else [value]
        known = [name.lower() for name in named if isinstance(name, str) and name.lower() in TYPES]
        if named and len(known) == len(named):
            schema["type"] = known if isinstance(value, list) else known[0]
        elif value is not None:
            self._note(f"type: {value}", where, "any value is accepted")

    def _numbers(self, schema: dict[str, Any], where: str) -> None:
        for key in [key for key in schema if key in _COUNTS]:
            count = schema[key]
            if isinstance(count, float) and count.is_integer():
                schema[key] = count = int(count)
            if type(count) is not int or count < 0:
                self._odd(schema, key, where)
        for key in [key for key in schema if key in _BOUNDS]:
            bound = schema[key]
            is_number = isinstance(bound, int | float) and not isinstance(bound, bool)
            if not is_number or (key == "multipleOf" and bound <= 0):
                self._odd(schema, key, where)

    def _odd(self, schema: dict[str, Any], key: str, where: str) -> bool:
        """Drops a keyword with an invalid value. Returns False for null, which some programs write for nothing."""
        value = schema.pop(key)
        if value is not None:
            self._note(f"{key}: {value}", where, "JSON Schema does not allow that value")
        return value is not None

    def _strings(self, schema: dict[str, Any], where: str) -> None:
        may_be_text = "string" in schema.get("type", "string")
        pattern = schema.get("pattern")
        if "pattern" in schema and not (isinstance(pattern, str) and can_be_matched(pattern)):
            del schema["pattern"]
            if may_be_text:
                self._note("pattern", where, "any string is accepted")
        if "format" in schema and not (isinstance(schema["format"], str) and schema["format"] in FORMATS):
            named = schema.pop("format")
            if may_be_text:
                self._note(f"format: {named}", where, "any string is accepted")

    # --- schemas in schemas ---
    def _refer(self, schema: dict[str, Any], where: str) -> None:
        if "$ref" not in schema:
            return
        reference = schema.pop("$ref")
        own = self._root.get("$id", self._root.get("id"))
        if isinstance(reference, str) and isinstance(own, str) and own:
            reference = reference.removeprefix(own.rstrip("#"))
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            self._note(f"$ref: {reference}", where, "any value is accepted")
            return
        found: Any = self._root
        pointer = unquote(reference[1:])
        for step in pointer.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and key.isdecimal() and len(key) < MOST_DIGITS and int(key) < len(found):
                found = found[int(key)]
            elif isinstance(found, dict) and key in found:
                found = found[key]
            else:
                self._note(f"$ref: {reference}", where, "it leads nowhere, any value is accepted")
                return
        if pointer not in self._names:
            self._names[pointer] = f"d{len(self._names)}"
            self._waiting.append((pointer, found))
        schema["$ref"] = f"#/$defs/{self._names[pointer]}"

    def _alone(self, definitions: dict[str, Any]) -> None:
        """Drops the keywords beside a circular reference, which cannot be enforced."""
        leads = {name: set(_references(schema)) for name, schema in definitions.items()}
        found: dict[str, set[str]] = {}  # all definitions that each leads to
        for where, schema in self._beside if len(definitions) <= MOST_DEFINITIONS else []:
            name = schema["$ref"].removeprefix("#/$defs/")
            if name not in found:
                waiting, found[name] = [name], set()
                while waiting:
                    more = leads[waiting.pop()] - found[name]
                    found[name] |= more
                    waiting += more
            for key in [key for key in schema if key not in ("$ref", "$defs", "description") and name in found[name]]:
                del schema[key]
                self._note(key, where, "it stands beside a circular reference")

    def _items(self, schema: dict[str, Any], where: str) -> None:
        if "items" in schema:
            schema["items"] = self._any(schema["items"], f"{where}[]")
        self._list(schema, "prefixItems", where, lambda i: f"{where}[{i}]")

    def _list(self, schema: dict[str, Any], key: str, where: str, place: Callable[[int], str]) -> None:
        if key in schema and (not isinstance(schema[key], list) or not schema[key]):
            self._odd(schema, key, where)
        elif key in schema:
            schema[key] = [self._any(part, place(i)) for i, part in enumerate(schema[key])]

    def _properties(self, schema: dict[str, Any], where: str) -> None:
        if "properties" in schema:
            if isinstance(schema["properties"], dict):
                schema["properties"] = {
                    key: self._any(part, f"{where}.{key}") for key, part in schema["properties"].items()
                }
            elif self._odd(schema, "properties", where):
                schema["additionalProperties"] = True
        required = schema.get("required")
        if "required" in schema and not (isinstance(required, list) and all(isinstance(n, str) for n in required)):
            self._odd(schema, "required", where)
        if "additionalProperties" in schema:
            schema["additionalProperties"] = self._any(schema["additionalProperties"], f"{where}.*")
        patterns = schema.get("patternProperties")
        if isinstance(patterns, dict) and all(map(can_be_matched, patterns)):
            schema["patternProperties"] = {key: self._any(part, f"{where}.*") for key, part in patterns.items()}
        elif "patternProperties" in schema:
            del schema["patternProperties"]
            schema["additionalProperties"] = True
            self._note("patternProperties", where, "further properties are accepted")
        if not set(schema.get("properties", ())) <= set(schema.get("required", ())):
            for key in ("minProperties", "maxProperties"):
                if schema.pop(key, 0):
                    self._note(key, where, "any number of properties is accepted")

    def _combinations(self, schema: dict[str, Any], where: str) -> None:
        for key in ("allOf", "anyOf", "oneOf"):

            def place(i: int, key: str = key) -> str:
                return f"{where}.{key}[{i}]"

            self._list(schema, key, where, place)
        if "oneOf" not in schema:
            return
        parts = schema.pop("oneOf")
        self._one_of.append((where, parts))
        if "anyOf" in schema:
            schema["allOf"] = [*schema.get("allOf", []), {"anyOf": parts}]
        else:
            schema["anyOf"] = parts

    def _drop(self, schema: dict[str, Any], where: str) -> None:
        kinds = schema.get("type")
        kind = kinds if isinstance(kinds, str) else "value"
        for key in [key for key in schema if key in _DROPPED]:
            value = schema.pop(key)
            if value not in _WITHOUT_EFFECT.get(key, (True, {})):
                self._note(key, where, _DROPPED[key].format(kind))
        for key in [key for key in schema if key in _SILENT]:
            del schema[key]

    def _nullable(self, schema: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        """Applies OpenAPI's `nullable`."""
        if given.get("nullable") is not True:
            return schema
        if "type" in schema:
            kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
            schema["type"] = [*kinds, *([] if "null" in kinds else ["null"])]
        elif {"$ref", "anyOf", "allOf"} & schema.keys():
            return {"anyOf": [schema, {"type": "null"}]}
        return schema
