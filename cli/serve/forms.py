"""The form of an answer in requests: OpenAI's `response_format`, llama-server's `grammar` and `json_schema`, and vLLM's
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
    """A JSON schema in OpenAI's format."""

    schema_: Annotated[Any, Field(alias="schema")] = None
    name: Ignored
    description: Ignored
    strict: Ignored


class ResponseFormat(Strict):
    """`text`: free text; `json_object`: any JSON object, or one of a `schema` (llama-server); `json_schema`: OpenAI's
    schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None
    schema_: Annotated[Any, Field(alias="schema")] = None


class StructuredOutputs(Strict):
    """vLLM's newer names for `guided_*`. At most one field is set."""

    json_: Annotated[Any, Field(alias="json")] = None
    json_object: bool = False
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    structural_tag: Unsupported

    def form(self) -> Grammar | None:
        """The grammar, or None. UsageError: an invalid form, or two forms."""
        given = {"json_schema": self.json_, "regex": self.regex, "choice": self.choice, "grammar": self.grammar}
        if self.json_object:
            given["response_format"] = {"type": "json_object"}
        return asked_form(given)


class FormFields(Strict):
    """Fields for the form of an answer. At most one is set."""

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
    """A grammar, and the name of the request's field that sets it."""

    name: str
    grammar: Grammar


def form_of(body: FormFields) -> RequestedForm | None:
    """The form that a body asks for, or None. RequestError: an invalid form, or two forms."""
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
    """The compiled constraint, to be copied for each answer. RequestError: it cannot be compiled."""
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
