"""What a constraint allows, and forms from which none can be made."""

import json
import random
import re

import numpy as np
import pytest
from verdicts import accepts

from hybrid.infer.answers.constraints import Constraint, Grammar
from hybrid.infer.answers.constraints.grammar import MOST_BYTES
from hybrid.infer.text.tokenizer import Tokenizer
from hybrid.quant.ggml.errors import HybridError, UsageError

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def drawn(constraint: Constraint, tokenizer: Tokenizer, seed: int, most: int = 200) -> str | None:
    """An answer of random logits; None if it did not end."""
    rng, ids = np.random.default_rng(seed), []
    while len(ids) < most:
        if constraint.ended:
            return tokenizer.decode(ids)
        token = int(constraint.masked(rng.standard_normal(tokenizer.n_vocab).astype(np.float32)).argmax())
        if token in tokenizer.eog:
            assert constraint.may_end
            return tokenizer.decode(ids)
        constraint.accept(token)
        ids.append(token)
    return None


@pytest.mark.parametrize(
    ("grammar", "right", "wrong"),
    [
        (
            Grammar.json_schema(PERSON),
            ['{"name":"ab","age":7}', '{ "name": "", "age" :0 }'],
            ['{"name":"ab"}', "{}", "7"],
        ),
        (Grammar.json_schema(json.dumps({"enum": ["a", 5, None]})), ['"a"', "5", "null"], ['"b"', "6", ""]),
        (Grammar.any_json(), ['{"a": [1, {"b": null}]}'], ["[]", "1", '{"a": }']),
        (Grammar.json_schema(True), ["1", "[]", '"a"'], ["", "nul"]),
        (Grammar.regex(r"[ab]{2,3}(-\d+)?"), ["ab", "aba-07"], ["a", "abab", "ab-", "xab"]),
        (Grammar.choice(["yes", "no", 'a "b"\n']), ["yes", "no", 'a "b"\n'], ["ye", "yesno", ""]),
        (Grammar.of_text('root ::= "a" | "(" root ")"'), ["a", "((a))"], ["(a", "", "b"]),
        (Grammar.of_text('root ::= [\\u0041-\\u0043\\U000000e9]+ "\\u00fc" "\\x41"'), ["ABéüA"], ["Dü", "é", "AA"]),
        (Grammar.of_text('root ::= "\\\\u0041"'), ["\\u0041"], ["A", "\\A"]),
        (Grammar.of_text('start: "a" rest\nrest: /[0-9]+/'), ["a1", "a007"], ["a", "1"]),
    ],
)
def test_what_fits(grammar: Grammar, right: list[str], wrong: list[str], tokenizer: Tokenizer) -> None:
    constraint = Constraint(grammar, tokenizer)
    for text in right:
        assert accepts(constraint, tokenizer, text), text
    for text in wrong:
        assert not accepts(constraint, tokenizer, text), text
    again = Constraint(Grammar.from_json(json.loads(json.dumps(grammar.to_json()))), tokenizer)
    assert all(accepts(again, tokenizer, text) for text in right)


def test_answers_of_a_schema_are_of_it(tokenizer: Tokenizer) -> None:
    made = Constraint(Grammar.json_schema(PERSON), tokenizer)
    answers = [drawn(made.copy(), tokenizer, seed) for seed in range(40)]
    whole = [json.loads(answer) for answer in answers if answer is not None]
    assert len(whole) > 30
    for value in whole:
        assert value.keys() == {"name", "age"} and len(value["name"]) <= 8 and 0 <= value["age"] <= 99


def test_forced_tokens_and_guesses(tokenizer: Tokenizer) -> None:
    constraint = Constraint(Grammar.choice(["name: abc", "name: ab"]), tokenizer)
    forced = constraint.forced()
    assert tokenizer.decode(forced).startswith("name:")
    guess = [*forced, 7]
    assert constraint.n_possible(guess) == len(forced)
    for token in forced:
        constraint.accept(token)
    other = constraint.copy()
    for token in tokenizer.encode("name: abc", add_special=False, continues=True)[len(forced) :]:
        other.accept(token)
    assert other.ended and not constraint.ended, "a copy goes its own way"
    assert other.forced() == [] and other.n_possible([7]) == 0


def test_a_wrong_token_is_an_error(tokenizer: Tokenizer) -> None:
    constraint = Constraint(Grammar.choice(["yes"]), tokenizer)
    with pytest.raises(HybridError, match="the answer cannot go on in the form of the choice"):
        constraint.accept(tokenizer.encode("x", add_special=False, continues=True)[0])
    with pytest.raises(HybridError):
        constraint.masked(np.zeros(tokenizer.n_vocab, np.float32))


def test_control_tokens_are_never_text(tokenizer: Tokenizer) -> None:
    """The string `<s>` is spelled with its characters."""
    constraint = Constraint(Grammar.json_schema({"type": "string"}), tokenizer)
    for token in tokenizer.encode('"a', add_special=False, continues=True):
        constraint.accept(token)
    allowed = np.isfinite(constraint.masked(np.zeros(tokenizer.n_vocab, np.float32)))
    assert not allowed[[0, 1, 2]].any() and allowed[tokenizer.encode("<", add_special=False, continues=True)[0]]


DEEP: object = {"type": "string"}
for _ in range(120):
    DEEP = {"type": "array", "items": DEEP}


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Grammar.json_schema("{"), "the schema is not JSON: Expecting property name"),
        (lambda: Grammar.json_schema("[" * 5000), "the schema is not JSON"),
        (lambda: Grammar.json_schema([1]), "the schema is [1], expected an object"),
        (lambda: Grammar.json_schema(False), "the schema is false: no answer fits it"),
        (lambda: Grammar.json_schema({"type": "strin"}), "the schema cannot be used: Invalid type: strin"),
        (lambda: Grammar.json_schema({"properties": {"a/b": {"items": {"not": {}}}}}), "(at /properties/a~1b/items)"),
        (
            lambda: Grammar.json_schema({"$defs": {"x": {"uniqueItems": True}}, "items": {"$ref": "#/$defs/x"}}),
            'Unimplemented keys: ["uniqueItems"] (at /items)',
        ),
        (lambda: Grammar.json_schema({"$ref": "https://example.com/a"}), "the schema cannot be used: Resource"),
        (lambda: Grammar.json_schema(DEEP), "the schema is nested deeper than 100 levels"),
        (lambda: Grammar.json_schema({"description": "x" * MOST_BYTES}), f"at most {MOST_BYTES}. Make it smaller"),
        (lambda: Grammar.regex("(?=a)b"), "the expression cannot be used"),
        (lambda: Grammar.regex("("), "the expression cannot be used"),
        (lambda: Grammar.choice([]), "the choices are empty"),
        (lambda: Grammar.choice(["a", ""]), "the choices are empty or hold an empty text"),
        (lambda: Grammar.choice(["a"] * 5000), "there are 5000 choices, expected at most 4096"),
        (lambda: Grammar.of_text('root ::= "a" ('), "the grammar cannot be read: Failed to convert"),
        (lambda: Grammar.of_text("root ::= foo"), "Rule 'foo' not found"),
        (lambda: Grammar.of_text("nonsense"), "the grammar cannot be used"),
        (lambda: Grammar.of_text('root ::= root "a"'), "nothing fits the grammar"),
        (
            lambda: Grammar.json_schema({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
            "nothing fits the schema",
        ),
    ],
)
def test_what_cannot_be_a_form_is_refused(make: object, says: str, tokenizer: Tokenizer) -> None:
    with pytest.raises(UsageError, match=re.escape(says)) as error:
        Constraint(make(), tokenizer)  # type: ignore[operator]
    assert "\n" not in str(error.value) and len(str(error.value)) < 600


def test_an_expression_that_explodes_ends_the_answer_not_the_program(tokenizer: Tokenizer) -> None:
    with pytest.raises(HybridError, match=r"the answer cannot go on|cannot be used"):
        drawn(Constraint(Grammar.regex("(a{1000}){1000}"), tokenizer), tokenizer, 1)


def test_a_large_schema_compiles(tokenizer: Tokenizer) -> None:
    """100 kB, as agents send with their tools."""
    tool = {"type": "object", "properties": {f"p{i}": {"enum": ["a" * 20, "b" * 20]} for i in range(40)}}
    schema = {"anyOf": [{**tool, "required": [f"p{i}"], "description": "x" * 200} for i in range(40)]}
    assert len(json.dumps(schema)) > 90_000
    assert not Constraint(Grammar.json_schema(schema), tokenizer).ended


def test_order_of_drawing_does_not_depend_on_what_was_asked(tokenizer: Tokenizer) -> None:
    """Asking for forced tokens, guesses and copies leaves the state unchanged."""
    made, rng = Constraint(Grammar.json_schema(PERSON), tokenizer), random.Random(3)
    asked, plain = made.copy(), made.copy()
    rows = np.random.default_rng(5).standard_normal((60, tokenizer.n_vocab)).astype(np.float32)
    for row in rows:
        if plain.ended:
            break
        if rng.random() < 0.5:
            asked.forced()
            asked.n_possible([rng.randrange(tokenizer.n_vocab) for _ in range(4)])
            asked = asked.copy()
        token = int(plain.masked(row).argmax())
        assert token == int(asked.masked(row).argmax())
        if token in tokenizer.eog:
            break
        plain.accept(token)
        asked.accept(token)


@pytest.mark.parametrize("text", [r"[0-9]+", r"(?s:.)*", r"[a-z \x80-\U0010ffff]*", r"[^a]*", r"(a|b)"])
def test_a_mask_is_what_its_bits_say(text: str, tokenizer: Tokenizer) -> None:
    """Masks of any number of tokens, also where the vocabulary does not fill the last word of bits."""
    assert tokenizer.n_vocab % 32
    constraint = Constraint(Grammar.regex(text), tokenizer)
    logits = np.random.default_rng(1).standard_normal(tokenizer.n_vocab).astype(np.float32)
    masked = constraint.masked(logits)
    allowed = np.unpackbits(constraint._bits.view(np.uint8), count=tokenizer.n_vocab, bitorder="little").view(bool)
    assert np.array_equal(masked, np.where(allowed, logits, np.float32(-np.inf))) and allowed.any()
    assert masked.dtype == np.float32


def test_a_panic_of_llguidance_is_a_fault_of_ours(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The panic's text has a traceback of the tokenizer that llguidance calls: clients do not see it."""
    constraint = Constraint(Grammar.of_text('root ::= "ab" "cd" "ef"'), tokenizer)

    class Broken:
        def is_error(self) -> bool:
            return True

        def get_error(self) -> str:
            return "panic: called `Result::unwrap()` on an `Err` value: PyErr { ... }\nline 7"

        def consume_token(self, token: int) -> None:
            pass

    monkeypatch.setattr(constraint, "_matcher", Broken())
    with pytest.raises(RuntimeError, match=r"^llguidance: panic: called `Result::unwrap"):
        constraint.accept(5)


def test_a_fault_of_the_tokenizer_is_no_end(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """llguidance asks the tokenizer how a forced text is encoded; after a fault there it claims that the answer is
    complete."""
    constraint = Constraint(Grammar.choice(["name: abc", "name: ab"]), tokenizer)

    def fail(*_: object) -> None:
        raise RuntimeError("in the tokenizer")

    monkeypatch.setattr(type(tokenizer), "_slices", fail)
    with pytest.raises(RuntimeError, match=r"^llguidance: panic"):
        constraint.forced()
