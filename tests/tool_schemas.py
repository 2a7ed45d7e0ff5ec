"""Parameters of tools from tool servers, home automation, editors and schema generators, and the parts of each that
cannot be enforced."""

from dataclasses import dataclass
from typing import Any

STRING = {"type": "string"}


@dataclass(frozen=True)
class Case:
    """parameters: of the tool. notes: prefixes or parts of the notes about it in every format of calls; xml: of further
    notes if calls write parameters one by one; json: of further notes if arguments are one object."""

    parameters: Any
    notes: tuple[str, ...] = ()
    xml: tuple[str, ...] = ()
    json: tuple[str, ...] = ()


def of(required: str = "", **properties: Any) -> dict[str, Any]:
    """A schema of an object with these properties."""
    made: dict[str, Any] = {"type": "object", "properties": properties}
    return {**made, "required": required.split()} if required else made


def one(**schema: Any) -> dict[str, Any]:
    """A schema of an object with one property, `v`."""
    return of("v", v=schema)


PYDANTIC = {
    "$defs": {
        "Unit": {"enum": ["c", "f"], "title": "Unit", "type": "string"},
        "Cat": {
            "properties": {"kind": {"const": "cat", "type": "string"}, "lives": {"type": "integer"}},
            "required": ["kind", "lives"],
            "title": "Cat",
            "type": "object",
        },
        "Dog": {
            "properties": {"kind": {"const": "dog", "type": "string"}, "name": STRING},
            "required": ["kind", "name"],
            "title": "Dog",
            "type": "object",
        },
    },
    "additionalProperties": False,
    "properties": {
        "unit": {"$ref": "#/$defs/Unit", "default": "c"},
        "pet": {
            "discriminator": {"mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"}, "propertyName": "kind"},
            "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
        },
        "note": {"anyOf": [STRING, {"type": "null"}], "default": None, "title": "Note"},
    },
    "required": ["pet"],
    "title": "Adopt",
    "type": "object",
}
ZOD = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "A file"},
        "edits": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"oldText": STRING, "newText": STRING},
                "required": ["oldText", "newText"],
                "additionalProperties": False,
            },
        },
        "dryRun": {"type": "boolean", "default": False},
    },
    "required": ["path", "edits"],
    "additionalProperties": False,
}
OPENAPI = of(
    "id",
    id={"type": "integer", "format": "int64"},
    pet={"$ref": "#/components/schemas/Pet"},
    status={"type": "string", "nullable": True, "enum": ["sold", "pending"], "xml": {"name": "status"}},
) | {"components": {"schemas": {"Pet": of("name", name=STRING, photo={"type": "string", "format": "binary"})}}}
HOME = of(
    name=STRING,
    area={"type": "string", "x-selector": "area"},
    domain={"type": "array", "items": STRING, "uniqueItems": False},
    brightness={"type": "integer", "minimum": 0, "maximum": 100, "x-unit": "%"},
    color={"type": "string", "format": "color"},
)
CODE = of(
    "query",
    query={"type": "string", "markdownDescription": "**What** to look for", "errorMessage": "Say what."},
    kind={
        "type": "string",
        "enum": ["file", "symbol"],
        "enumDescriptions": ["Files", "Symbols"],
        "markdownEnumDescriptions": ["*Files*", "*Symbols*"],
    },
    include={"type": "string", "externalDocs": {"url": "https://example.com"}, "scope": "resource", "order": 3},
    max={"type": "number", "default": 20, "deprecationMessage": "no"},
)
NODE = {"type": "object", "properties": {"name": STRING, "children": {"type": "array", "items": {"$ref": "#"}}}}


def unheld(what: str, instead: str = "any string is accepted", place: str = "parameters.v") -> str:
    """A note about a keyword that cannot be enforced."""
    return f"`{what}` at {place} cannot be enforced: {instead}"


CASES: dict[str, Case] = {
    "nothing": Case(None),
    "empty": Case({}),
    "without properties": Case({"type": "object"}),
    "without type": Case({"properties": {"v": STRING}}),
    "properties null": Case({"type": "object", "properties": None, "required": None}),
    "pydantic": Case(PYDANTIC),
    "zod": Case(ZOD),
    "openapi": Case(OPENAPI, (unheld("format: binary", place="parameters.components.schemas.Pet.photo"),)),
    "home assistant": Case(HOME, (unheld("format: color", place="parameters.color"),)),
    "vs code": Case(CODE),
    "recursive": Case(NODE),
    "path": Case(one(type="string", format="path"), (unheld("format: path"),)),
    "password": Case(one(type="string", format="password"), (unheld("format: password"),)),
    "byte": Case(one(type="string", format="byte"), (unheld("format: byte"),)),
    "regex": Case(one(type="string", format="regex"), (unheld("format: regex"),)),
    "uri-reference": Case(one(type="string", format="uri-reference"), (unheld("format: uri-reference"),)),
    "markdown": Case(one(type="string", format="markdown"), (unheld("format: markdown"),)),
    "phone": Case(one(type="string", format="phone"), (unheld("format: phone"),)),
    "decimal": Case(one(type="string", format="decimal"), (unheld("format: decimal"),)),
    "uint": Case(one(type="integer", format="uint")),
    "float": Case(one(type="number", format="float", minimum=0)),
    "date and time": Case(of(a={"type": "string", "format": "date"}, b={"type": "string", "format": "date-time"})),
    "uri": Case(one(type="string", format="uri", minLength=1)),
    "format of another type": Case(one(type="string", format={"a": 1}), (unheld("format: {'a': 1}"),)),
    "uniqueItems": Case(
        one(type="array", items=STRING, uniqueItems=True), (unheld("uniqueItems", "repeated items are accepted"),)
    ),
    "uniqueItems false": Case(one(type="array", items=STRING, uniqueItems=False)),
    "propertyNames": Case(
        one(type="object", propertyNames={"pattern": "^[a-z]+$"}, additionalProperties=STRING),
        (unheld("propertyNames", "any names of properties are accepted"),),
    ),
    "record of zod": Case(one(type="object", propertyNames={"type": "string"}, additionalProperties={})),
    "unevaluatedProperties": Case({**of("v", v=STRING), "unevaluatedProperties": False}),
    "unevaluated beside allOf": Case(
        {"type": "object", "allOf": [of("v", v=STRING)], "unevaluatedProperties": False},
        (unheld("unevaluatedProperties", "further properties are accepted", "parameters"),),
    ),
    "dependentRequired": Case(
        {**of(v=STRING, w=STRING), "dependentRequired": {"v": ["w"]}},
        (unheld("dependentRequired", "each property is accepted without the others", "parameters"),),
    ),
    "dependencies": Case(
        {**of(v=STRING, w=STRING), "dependencies": {"v": ["w"]}},
        (unheld("dependencies", "each property is accepted without the others", "parameters"),),
    ),
    "not": Case(one(type="string", **{"not": {"enum": ["x"]}}), (unheld("not"),)),
    "not at the top": Case(
        {**of(v=STRING, w=STRING), "not": {"required": ["v", "w"]}},
        (unheld("not", "any object is accepted", "parameters"),),
    ),
    "if": Case(
        {**of("v", v=STRING), "if": {"required": ["v"]}, "then": {"required": ["w"]}, "else": {}},
        (unheld("if", "any object is accepted", "parameters"),),
    ),
    "contains": Case(
        one(type="array", contains=STRING, minContains=2), (unheld("contains", "any items are accepted"),)
    ),
    "look-ahead": Case(one(type="string", pattern="^(?!-)[a-z-]+$"), (unheld("pattern"),)),
    "reference back": Case(one(type="string", pattern=r"^(.)\1$"), (unheld("pattern"),)),
    "boundary": Case(one(type="string", pattern=r"\bv[0-9]+\b"), (unheld("pattern"),)),
    "pattern": Case(one(type="string", pattern=r"^[\w.\-]+$", maxLength=20)),
    "anchors within": Case(one(type="string", pattern="^a|b$"), (), ("pattern",)),
    "not an expression": Case(
        one(type="string", pattern="a{2,1}"), ("at parameters.v cannot be enforced: regex parse error",)
    ),
    "anyOf at the top": Case({"anyOf": [of("v", v=STRING), of("w", w={"type": "integer"})]}, (), ("anyOf",)),
    "oneOf at the top": Case(
        {**of(v=STRING, w=STRING), "oneOf": [{"required": ["v"]}, {"required": ["w"]}]},
        (unheld("oneOf", "a value may fit several of its schemas", "parameters"),),
        ("anyOf",),
    ),
    "allOf at the top": Case({"allOf": [of("v", v=STRING), of(w={"type": "integer"})]}),
    "$ref at the top": Case({"$ref": "#/definitions/In", "definitions": {"In": of("v", v=STRING)}}),
    "$ref to itself": Case(of(v={"$ref": "#/properties/v"}), xml=("only the names of its parameters are enforced",)),
    "$ref elsewhere": Case(
        of(v={"$ref": "https://example.com/a.json"}),
        (unheld("$ref: https://example.com/a.json", "any value is accepted"),),
    ),
    "$ref to nothing": Case(
        of(v={"$ref": "#/$defs/Gone"}), (unheld("$ref: #/$defs/Gone", "it leads nowhere, any value is accepted"),)
    ),
    "additionalProperties": Case({**of("v", v=STRING), "additionalProperties": {"type": "integer"}}),
    "types": Case(one(type=["string", "null"])),
    "uppercase types": Case({"type": "OBJECT", "properties": {"v": {"type": "STRING"}}}),
    "type any": Case(one(type="any"), (unheld("type: any", "any value is accepted"),)),
    "array of types": Case({"type": ["object", "null"], "properties": {"v": STRING}}),
    "draft 4": Case(
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "id": "http://example.com/in",
            **one(type="number", minimum=0, exclusiveMinimum=True),
        }
    ),
    "tuple of draft 7": Case(one(type="array", items=[STRING, {"type": "integer"}], additionalItems=False)),
    "annotations": Case(
        one(
            type="string",
            const="a",
            default="a",
            examples=["a"],
            deprecated=True,
            readOnly=True,
            **{"$comment": "no", "title": "V"},
        )
    ),
    "const null": Case(one(const=None)),
    "enum of another type": Case(one(type="string", enum=[1, 2]), json=("incompatible types",)),
    "empty range": Case(one(type="array", items=STRING, minItems=3, maxItems=1), ("minItems (3) is greater",)),
    "required of draft 3": Case(
        of(v={"type": "string", "required": True}), ("`required: True` at parameters.v cannot be enforced",)
    ),
    "forbidden and required": Case(
        of("v", v=False), xml=("`required` at parameters.v",), json=("required property 'v' is unsatisfiable",)
    ),
    "overlapping names": Case(one(type="object", patternProperties={"^a": {}, "^ab": STRING}), ("not disjoint",)),
    "one or more properties": Case(
        {**of(v=STRING, w=STRING), "minProperties": 1},
        (unheld("minProperties", "any number of properties is accepted", "parameters"),),
    ),
    "many options": Case(
        of(**{f"option_{i}": {"anyOf": [STRING, {"type": "null"}], "default": None, "title": "O"} for i in range(60)})
    ),
    "long text": Case(one(type="string", minLength=1, maxLength=1_000_000)),
}
