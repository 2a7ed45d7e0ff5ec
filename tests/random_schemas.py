"""Random JSON schemas with all supported keywords; most answers to them are short."""

import json
import random
from typing import Any

Schema = dict[str, Any]
# names and values, some with characters that matter in JSON
WORDS = ("name", "age", "city", "tags", "is ok", "größe", 'a "quote"', "x", "items", "when")
PATTERNS = ("^[a-z]{1,4}$", "^(yes|no)$", "[0-9]{2}", "^\\d{4}-\\d{2}$", "^[A-Z][a-z]*$", "^(a|b){3,5}$", "^$")
FORMATS = ("date", "time", "date-time", "uuid", "ipv4", "email", "duration", "hostname")
CONSTANTS = (None, True, 0, -7, 12.5, "", "a/b", 'q"', "\n", [1, "a"], {"k": [None]}, "ü\U0001f600")


def schemas(n: int, seed: int = 1) -> list[Schema]:
    """n different schemas, always the same for a seed."""
    made: dict[str, Schema] = {}
    rng = random.Random(seed)
    while len(made) < n:
        schema = _whole(rng)
        made.setdefault(text(schema), schema)
    return list(made.values())


def _whole(rng: random.Random) -> Schema:
    kind = rng.choice((_object, _object, _object, _array, _any, _reference, _all_of, _one_of))
    return kind(rng, 2)


def _any(rng: random.Random, depth: int) -> Schema:
    simple = (_string, _integer, _number, _constant, _enumeration, _boolean, _several)
    return rng.choice(simple if depth <= 0 else (*simple, _object, _array, _any_of, _one_of, _all_of))(rng, depth - 1)


def _string(rng: random.Random, depth: int) -> Schema:
    least = rng.randint(0, 3)
    return rng.choice(
        [
            {"type": "string", "maxLength": least + rng.randint(0, 6), "minLength": least},
            {"type": "string", "pattern": rng.choice(PATTERNS), "maxLength": 12},
            {"type": "string", "format": rng.choice(FORMATS), "maxLength": 40},
        ]
    )


def _integer(rng: random.Random, depth: int) -> Schema:
    low = rng.choice((-1000, -5, 0, 1, 17))
    made: Schema = {"type": "integer", rng.choice(("minimum", "exclusiveMinimum")): low}
    made[rng.choice(("maximum", "exclusiveMaximum"))] = low + rng.choice((2, 9, 100, 12345))
    return {**made, "multipleOf": rng.choice((1, 2))} if rng.random() < 0.2 else made


def _number(rng: random.Random, depth: int) -> Schema:
    low = rng.choice((-2.5, 0, 0.125))
    return {"type": "number", "minimum": low, "exclusiveMaximum": low + rng.choice((0.5, 3, 100.75))}


def _constant(rng: random.Random, depth: int) -> Schema:
    return {"const": rng.choice(CONSTANTS)}


def _enumeration(rng: random.Random, depth: int) -> Schema:
    return {"enum": rng.sample(CONSTANTS, rng.randint(1, 5))}


def _boolean(rng: random.Random, depth: int) -> Schema:
    return {"type": rng.choice(("boolean", "null"))}


def _several(rng: random.Random, depth: int) -> Schema:
    return {"type": ["integer", "boolean", "null"][rng.randint(0, 1) :], "minimum": -3, "maximum": 12}


def _object(rng: random.Random, depth: int) -> Schema:
    names = rng.sample(WORDS, rng.randint(0, 4))
    made: Schema = {"type": "object", "properties": {name: _any(rng, depth - 1) for name in names}}
    made["required"] = [name for name in names if rng.random() < 0.6]
    rest = rng.random()
    if rest < 0.7:
        made["additionalProperties"] = False
    elif rest < 0.85:
        made |= {"additionalProperties": _integer(rng, 0), "maxProperties": len(names) + 2, "required": names}
    else:
        made |= {"patternProperties": {"^z[a-c]{1,3}$": _integer(rng, 0)}, "additionalProperties": False}
    return made


def _array(rng: random.Random, depth: int) -> Schema:
    least = rng.randint(0, 2)
    made: Schema = {"type": "array", "minItems": least, "maxItems": least + rng.randint(0, 2)}
    if rng.random() < 0.3:
        made["prefixItems"] = [_any(rng, depth - 1) for _ in range(rng.randint(1, 2))]
    return {**made, "items": _any(rng, depth - 1)}


def _any_of(rng: random.Random, depth: int) -> Schema:
    return {"anyOf": [_any(rng, depth - 1) for _ in range(rng.randint(1, 3))]}


def _one_of(rng: random.Random, depth: int) -> Schema:
    """Alternatives of different types: the overlap of others is not always detected."""
    return {"oneOf": [_string(rng, 0), _integer(rng, 0), {"type": "null"}][: rng.randint(1, 3)]}


def _all_of(rng: random.Random, depth: int) -> Schema:
    bounds: list[Schema] = [{"minimum": -5}, {"maximum": 50}, {"type": "integer"}]
    return {"allOf": [{"type": ["integer", "string"], "maxLength": 5}, *rng.sample(bounds, 3)]}


def _reference(rng: random.Random, depth: int) -> Schema:
    """A recursive list with a likely end."""
    node = {
        "type": "object",
        "properties": {
            "value": {"$ref": "#/$defs/value"},
            "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/n"}]},
        },
        "required": ["value", "next"],
        "additionalProperties": False,
    }
    return {"$defs": {"n": node, "value": _any(rng, 0)}, "$ref": "#/$defs/n"}


def text(schema: Schema) -> str:
    """The schema as JSON, for messages."""
    return json.dumps(schema, ensure_ascii=False)
