"""Tools that the compiler refuses are enforced with wider schemas."""

from collections.abc import Iterator
from typing import Any

import pytest
from chat_templates import template
from chat_vocabulary import NORMAL, chat_tokenizer
from verdicts import accepts

from hybrid.infer.answers.chat import wider_tools
from hybrid.infer.answers.chat.dialect import ChatOptions, Dialect
from hybrid.infer.answers.chat.tools import Tool, ToolChoice, tools_of
from hybrid.infer.answers.constraints import Constraint, Grammar
from hybrid.infer.answers.constraints.forms import Forms
from hybrid.quant.ggml.errors import UsageError

TOKENIZER = chat_tokenizer(NORMAL)
REQUIRED = ToolChoice("required")


@pytest.fixture(scope="module")
def forms() -> Iterator[Forms]:
    made = Forms(TOKENIZER)
    yield made
    made.close()


@pytest.fixture(scope="module", params=["Qwen-Qwen2.5-7B-Instruct", "Qwen3-Coder"])
def dialect(request: pytest.FixtureRequest, forms: Forms) -> Dialect:
    return Dialect(template(request.param), TOKENIZER, forms)


def tools(**schemas: Any) -> tuple[Tool, ...]:
    functions = [{"name": name, "parameters": schema} for name, schema in schemas.items()]
    return tuple(tools_of([{"type": "function", "function": function} for function in functions]))


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


BAD = of(a={"type": "array", "minItems": 2, "maxItems": 1}, b={"type": "integer"})
GOOD = of(c={"type": "integer", "minimum": 5})


def test_the_tool_to_blame_is_wider_and_the_others_are_held(dialect: Dialect, forms: Forms) -> None:
    asked = ChatOptions(tools(bad=BAD, good=GOOD), REQUIRED)
    grammar = dialect.grammar(asked, False, None)
    assert grammar is not None
    (note,) = grammar.notes
    assert note.startswith("tool `bad`: the schema at parameters.a cannot be enforced: Unsatisfiable schema: minI")
    n = forms.trial.n_ended, forms.n_compiled
    assert dialect.grammar(asked, False, None) is grammar and (forms.trial.n_ended, forms.n_compiled) == n
    held = forms.compiled(grammar)
    is_json = "arguments" in grammar.text
    for name, arguments, fits in (
        ("good", {"c": "5"}, True),
        ("good", {"c": "4"}, False),
        ("bad", {"a": "[1]", "b": "1"}, True),
        ("bad", {"a": "1", "b": "1"}, False),
        ("bad", {"a": "[1]", "b": '"x"'}, False),
    ):
        if is_json:
            inside = ", ".join(f'"{key}": {value}' for key, value in arguments.items())
            text = f'<tool_call>\n{{"name": "{name}", "arguments": {{{inside}}}}}\n</tool_call>'
        else:
            inside = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
            text = f"<tool_call>\n<function={name}>\n{inside}</function>\n</tool_call>"
        assert accepts(held, TOKENIZER, text) == fits, text


def test_rules_have_the_notes(dialect: Dialect) -> None:
    asked = ChatOptions(tools(f=of(p={"type": "string", "format": "path"})))
    prompt = dialect.prompt([{"role": "user", "content": "Hi"}], asked)
    assert dialect.rules(asked, prompt).notes == (
        "tool `f`: `format: path` at parameters.p cannot be enforced: any string is accepted",
    )
    assert (
        dialect.exchange([{"role": "user", "content": "Hi"}], asked).rules.notes == dialect.rules(asked, prompt).notes
    )
    none = ChatOptions(asked.tools, ToolChoice("none"))
    assert dialect.rules(none, prompt).notes == ()


def test_names_remain_where_types_do_not(dialect: Dialect, forms: Forms, monkeypatch: pytest.MonkeyPatch) -> None:
    """The 3 failures allowed: all tools together, the first alone, then the other two together."""
    monkeypatch.setattr(wider_tools, "MOST_FAILURES", 3)
    grammar = dialect.grammar(ChatOptions(tools(first=BAD, second=BAD, third=GOOD), REQUIRED), False, None)
    assert grammar is not None
    first, second, third = grammar.notes
    assert "tool `first`: the schema at parameters.a" in first
    assert second == "tool `second`: only the names of its parameters are enforced"
    assert third == "tool `third`: only the names of its parameters are enforced"


def test_tools_that_are_too_much_together_are_wider(
    dialect: Dialect, forms: Forms, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = forms.compiled

    def refuses(grammar: Grammar) -> Constraint:
        if sum("minimum" in part.grammar.text for part in grammar.parts.values()) > 1:
            raise UsageError("too large")
        return compiled(grammar)

    monkeypatch.setattr(forms, "compiled", refuses)
    both = tools(**{f"f{i}": of(**{f"p{i}": {"type": "integer", "minimum": i}}) for i in range(3)})
    grammar = dialect.grammar(ChatOptions(both, REQUIRED), False, None)
    assert grammar is not None
    says = "only the names of its parameters are enforced"
    assert list(grammar.notes) == [f"tool `f{i}`: {says}" for i in range(3)]


def test_a_form_is_not_relaxed(dialect: Dialect) -> None:
    form = Grammar.json_schema({"type": "array", "uniqueItems": True})
    with pytest.raises(UsageError, match="uniqueItems"):
        dialect.grammar(ChatOptions(tools(f=GOOD)), False, form)
