"""The form of an answer in requests: OpenAI's `response_format`, llama-server's `grammar` and `json_schema`, vLLM's
`guided_*`."""

import threading
from collections import OrderedDict
from typing import Annotated, Any, Literal

from pydantic import Field

from hybrid.infer.answers.constraints import Constraint, Grammar
from hybrid.infer.text.tokenizer import Tokenizer
from hybrid.quant.ggml.errors import UsageError

from .errors import RequestError
from .strict import Ignored, Strict

MOST_KEPT = 32  # compiled forms: clients send the same few again and again


class NamedSchema(Strict):
    """OpenAI's way of giving a schema."""

    schema_: Annotated[Any, Field(alias="schema")] = None
    name: Ignored
    description: Ignored
    strict: Ignored


class ResponseFormat(Strict):
    """`text`: any; `json_object`: some object, or of a `schema` as llama-server has it; `json_schema`: OpenAI's."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None
    schema_: Annotated[Any, Field(alias="schema")] = None


class FormFields(Strict):
    """At most one of them says something."""

    response_format: ResponseFormat | None = None
    grammar: str | None = None
    json_schema: Any = None
    guided_json: Any = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None


def form_of(body: FormFields, forms: "Forms") -> Constraint | None:
    """What was asked for, to be copied for each answer. RequestError: it cannot be used, or there are two."""
    made = {
        "response_format": lambda: _of_response_format(body.response_format),
        "grammar": lambda: Grammar.of_text(body.grammar) if body.grammar else None,
        "json_schema": lambda: _schema(body.json_schema),
        "guided_json": lambda: _schema(body.guided_json),
        "guided_regex": lambda: Grammar.regex(body.guided_regex) if body.guided_regex else None,
        "guided_choice": lambda: Grammar.choice(body.guided_choice) if body.guided_choice else None,
        "guided_grammar": lambda: Grammar.of_text(body.guided_grammar) if body.guided_grammar else None,
    }
    found: dict[str, Constraint] = {}
    for name, make in made.items():
        try:
            if (grammar := make()) is not None:
                found[name] = forms.compiled(grammar)
        except UsageError as error:
            raise RequestError(f"{name}: {error}", param=name) from None
    if len(found) > 1:
        first, second = list(found)[:2]
        raise RequestError(f"{first} and {second} exclude each other", param=second)
    return next(iter(found.values()), None)


def _of_response_format(given: ResponseFormat | None) -> Grammar | None:
    if given is None or given.type == "text":
        return None
    schema = given.json_schema.schema_ if given.json_schema is not None else given.schema_
    if given.type == "json_schema" and schema is None:
        raise RequestError("response_format: json_schema has no schema", param="response_format.json_schema.schema")
    return Grammar.any_json() if schema is None else Grammar.json_schema(schema)


def _schema(given: Any) -> Grammar | None:
    return None if given is None else Grammar.json_schema(given)


class Forms:
    """Forms of one vocabulary, compiled once. From any thread."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: OrderedDict[Grammar, Constraint] = OrderedDict()
        self._lock = threading.Lock()

    def compiled(self, grammar: Grammar) -> Constraint:
        """A constraint to be copied for each answer. UsageError: it cannot be compiled."""
        with self._lock:
            if (known := self._known.get(grammar)) is not None:
                self._known.move_to_end(grammar)
                return known
        made = Constraint(grammar, self._tokenizer)
        with self._lock:
            self._known[grammar] = made
            while len(self._known) > MOST_KEPT:
                self._known.popitem(last=False)
        return made
