"""No tool is refused for its schema, and notes name the constraints that its calls do not enforce.

One template writes arguments as one JSON object, the other writes parameters one by one.
"""

import json
import random
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from chat_templates import template
from chat_vocabulary import NORMAL, chat_tokenizer
from random_schemas import schemas, text
from tool_schemas import CASES
from verdicts import accepts

from hybrid.infer.answers.chat.call_text import written_calls
from hybrid.infer.answers.chat.dialect import ChatOptions, Dialect
from hybrid.infer.answers.chat.parameter_types import STRING, types_of
from hybrid.infer.answers.chat.reader import AnswerReader
from hybrid.infer.answers.chat.tools import Tool, ToolChoice, tools_of
from hybrid.infer.answers.constraints.forms import Forms
from hybrid.infer.answers.constraints.relaxed import CONSTRAINING

TOKENIZER = chat_tokenizer(NORMAL)
TEMPLATES = {"json": "Qwen-Qwen2.5-7B-Instruct", "xml": "Qwen3-Coder"}


@pytest.fixture(scope="module")
def forms() -> Iterator[Forms]:
    made = Forms(TOKENIZER)
    yield made
    made.close()


@pytest.fixture(scope="module")
def dialects(forms: Forms) -> dict[str, Dialect]:
    return {kind: Dialect(template(name), TOKENIZER, forms) for kind, name in TEMPLATES.items()}


def tool(parameters: Any) -> Tool:
    return tools_of([{"type": "function", "function": {"name": "f", "parameters": parameters}}])[0]


@pytest.mark.parametrize("kind", TEMPLATES)
@pytest.mark.parametrize("name", CASES)
def test_every_tool_is_taken(name: str, kind: str, dialects: dict[str, Dialect]) -> None:
    case = CASES[name]
    grammar = dialects[kind].grammar(ChatOptions((tool(case.parameters),), ToolChoice("required")), False, None)
    assert grammar is not None
    expected = [*case.notes, *(case.xml if kind == "xml" else case.json)]
    assert len(grammar.notes) == len(expected), grammar.notes
    for note, part in zip(grammar.notes, expected, strict=True):
        assert note.startswith("tool `f`: ") and part in note


def test_there_are_sixty() -> None:
    assert len(CASES) >= 60


VALUES = [
    None,
    True,
    False,
    0,
    -7,
    3,
    12.5,
    17,
    "",
    "a",
    "ab",
    "no",
    "yes",
    "12",
    "x y\n",
    "2024-02-29",
    [],
    [1],
    ["a", 2],
]
VALUES += [{}, {"name": "a"}, {"x": 1, "age": 3}, {"k": [None]}, [1, "a"], [[], {}], "a/b", 'q"', [None, True]]


def test_what_fits_may_be_written_parameter_by_parameter(dialects: dict[str, Dialect], forms: Forms) -> None:
    """The grammar accepts any text that a reader parses as a valid value.

    Texts that begin like values of another type of the parameter are left out: the grammar refuses them.
    """
    rng, n = random.Random(1), 0
    dialect = dialects["xml"]
    for schema in schemas(80, seed=7):
        if "$ref" in schema:
            continue
        wide = schema | rng.choice(
            [{}, {"format": "path"}, {"not": {"const": "q"}}, {"uniqueItems": True}, {"x-a": {}}]
        )
        made = tool({"type": "object", "properties": {"v": wide}, "required": ["v"]})
        grammar = dialect.grammar(ChatOptions((made,), ToolChoice("required")), False, None)
        assert grammar is not None
        held, validator = forms.compiled(grammar), jsonschema_rs.validator_for(wide, validate_formats=True)
        is_text = types_of(made, "v") == STRING
        for value in filter(validator.is_valid, VALUES):
            if not is_text and isinstance(value, str) and value[:1] in {*"[{tfn-0123456789"}:
                continue
            written = written_calls(dialect.format.calls, [("", "f", {"v": value})])
            reader = AnswerReader(dialect.format, [made])
            reader.push(written)
            reader.finish()
            if [json.loads(call.arguments) for call in reader.calls] == [{"v": value}]:
                n += 1
                assert accepts(held, TOKENIZER, written), (written, text(wide))
    assert n > 60, n


KEYWORDS = [*sorted(CONSTRAINING), "not", "if", "then", "else", "$defs", "definitions", "additionalItems", "nullable"]
KEYWORDS += ["propertyNames", "unevaluatedProperties", "dependentRequired", "dependentSchemas", "dependencies", "x-a"]
KEYWORDS += ["uniqueItems", "contains", "title", "description", "default", "$schema", "$id", "id", "$anchor"]
JUNK: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    2,
    2.5,
    1e300,
    "",
    "a",
    "#",
    "#/properties/a",
    "#/$defs/a",
    "string",
    "OBJECT",
]
JUNK += [
    [],
    ["a"],
    [1, None],
    ["string", "null"],
    {},
    {"a": {}},
    {"a": 1},
    {"type": "integer"},
    {"(": True},
    [{}],
    [{"a": []}],
]


def junk(rng: random.Random, depth: int) -> dict[str, Any]:
    """Keywords with valid or invalid values."""
    made = {key: rng.choice(JUNK) for key in rng.sample(KEYWORDS, rng.randint(0, 5))}
    if depth and rng.random() < 0.7:
        made["properties"] = {key: junk(rng, depth - 1) for key in rng.sample("abc", rng.randint(1, 3))}
    return {**made, "anyOf": [junk(rng, 0), junk(rng, 0)]} if depth and rng.random() < 0.2 else made


@pytest.mark.parametrize("kind", TEMPLATES)
def test_no_object_is_refused(kind: str, dialects: dict[str, Dialect]) -> None:
    rng = random.Random(5)
    for _ in range(40):
        parameters = junk(rng, 2)
        grammar = dialects[kind].grammar(ChatOptions((tool(parameters),), ToolChoice("required")), False, None)
        assert grammar is not None and all("\n" not in note for note in grammar.notes), text(parameters)
