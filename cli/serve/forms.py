"""The form of an answer in requests: OpenAI's `response_format`, llama-server's `grammar` and `json_schema`, vLLM's
`guided_*`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from hybrid.infer.answers.constraints import Constraint, Grammar
from hybrid.infer.answers.constraints.form_fields import asked_form, response_format
from hybrid.infer.answers.constraints.forms import Forms
from hybrid.quant.ggml.errors import UsageError

from .errors import RequestError
from .strict import Ignored, Strict, Unsupported


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


class StructuredOutputs(Strict):
    """vLLM's newer names of `guided_*`. At most one of them says something."""

    json_: Annotated[Any, Field(alias="json")] = None
    json_object: bool = False
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    structural_tag: Unsupported

    def form(self) -> Grammar | None:
        """UsageError: it cannot be a form, or there are two."""
        given = {"json_schema": self.json_, "regex": self.regex, "choice": self.choice, "grammar": self.grammar}
        if self.json_object:
            given["response_format"] = {"type": "json_object"}
        return asked_form(given)


class FormFields(Strict):
    """At most one of them says something."""

    response_format: ResponseFormat | None = None
    grammar: str | None = None
    json_schema: Any = None
    guided_json: Any = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    structured_outputs: StructuredOutputs | None = None


@dataclass(frozen=True)
class RequestedForm:
    """What was asked for, by which field."""

    name: str
    grammar: Grammar


def form_of(body: FormFields) -> RequestedForm | None:
    """What was asked for. RequestError: it cannot be a form, or there are two."""
    made: dict[str, Callable[[], Grammar | None]] = {
        "response_format": lambda: _of_response_format(body.response_format),
        "grammar": lambda: Grammar.of_text(body.grammar) if body.grammar else None,
        "json_schema": lambda: _schema(body.json_schema),
        "guided_json": lambda: _schema(body.guided_json),
        "guided_regex": lambda: Grammar.regex(body.guided_regex) if body.guided_regex else None,
        "guided_choice": lambda: Grammar.choice(body.guided_choice) if body.guided_choice else None,
        "guided_grammar": lambda: Grammar.of_text(body.guided_grammar) if body.guided_grammar else None,
        "structured_outputs": lambda: body.structured_outputs.form() if body.structured_outputs else None,
    }
    found: list[RequestedForm] = []
    for name, make in made.items():
        try:
            if (grammar := make()) is not None:
                found.append(RequestedForm(name, grammar))
        except UsageError as error:
            raise RequestError(f"{name}: {error}", param=name) from None
    if len(found) > 1:
        first, second = found[:2]
        raise RequestError(f"{first.name} and {second.name} exclude each other", param=second.name)
    return found[0] if found else None


def compiled(form: RequestedForm, forms: Forms) -> Constraint:
    """To be copied for each answer. RequestError: it cannot be used."""
    try:
        return forms.compiled(form.grammar)
    except UsageError as error:
        raise RequestError(f"{form.name}: {error}", param=form.name) from None


def _of_response_format(given: ResponseFormat | None) -> Grammar | None:
    if given is None:
        return None
    schema = given.schema_ if given.json_schema is None else given.json_schema.schema_
    return response_format({"type": given.type, "schema": schema})


def _schema(given: Any) -> Grammar | None:
    return None if given is None else Grammar.json_schema(given)
