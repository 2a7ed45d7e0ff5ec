"""`hybrid run` with constrained answers: one prompt, a file of prompts, guesses, refused options."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from end_to_end.outcomes import Cli, failed, ok
from fake_chat import said

from hybrid.infer import LoadedModel
from hybrid.infer.answers.constraints import Constraint, Grammar
from hybrid.infer.answers.constraints.forms import Forms
from hybrid.infer.answers.conversations.conversation import Conversation
from hybrid.infer.answers.prompt_files import prompt_files
from hybrid.infer.answers.sampling import SamplingParams
from hybrid.infer.answers.state_files.saved_states import form_behind
from hybrid.quant.ggml.errors import StateError, UsageError

pytestmark = pytest.mark.exhaustive

SCHEMA = {
    "type": "object",
    "properties": {"word": {"type": "string", "maxLength": 9}, "n": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["word", "n"],
    "additionalProperties": False,
}
DRAWN = ["--temp", "2", "--top-k", "0", "--seed", "3", "-n", "150"]


def test_one_answer_with_and_without_guesses(files: dict[str, Path], cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(SCHEMA))
    texts = set()
    for schema in (str(path), json.dumps(SCHEMA)):
        for spec in ("none", "ngram"):
            code, out, err = cli(
                "run", files["q8_0"], "--raw", "-p", "A word:", "--json-schema", schema, "--spec", spec, *DRAWN
            )
            assert code == 0, err
            texts.add(out)
    (text,) = texts
    assert json.loads(text).keys() == {"word", "n"}


def test_other_forms(files: dict[str, Path], cli: Cli, tmp_path: Path) -> None:
    gbnf, lark = tmp_path / "a.gbnf", tmp_path / "a.lark"
    gbnf.write_text('root ::= "<" [a-c]{4} ">"')
    lark.write_text('start: "<" /[a-c]{4}/ ">"')
    for options, expression in (
        (["--grammar", gbnf], "<[a-c]{4}>"),
        (["--grammar", lark], "<[a-c]{4}>"),
        (["--regex", "[0-9]{3}"], "[0-9]{3}"),
        (["--choice", "left", "--choice", "right"], "left|right"),
    ):
        code, out, err = cli("run", files["q8_0"], "--raw", "-p", "Say", *options, *DRAWN)
        assert code == 0 and re.fullmatch(expression, out.rstrip("\n")), (out, err)


def test_a_file_of_prompts(files: dict[str, Path], cli: Cli, tmp_path: Path) -> None:
    prompts, out = tmp_path / "p.jsonl", tmp_path / "out.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in ("One", "Two", "Three")))
    asked = ["run", files["q8_0"], "-f", prompts, "--json-schema", json.dumps(SCHEMA), "--n-samples", "2", *DRAWN]
    assert cli(*asked, "-o", out)[0] == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(lines) == 6 and all(json.loads(line["text"]).keys() == {"word", "n"} for line in lines)
    again = tmp_path / "again.jsonl"
    assert cli(*asked, "--spec", "ngram", "--parallel", "3", "-o", again)[0] == 0
    assert [json.loads(line)["text"] for line in again.read_text().splitlines()] == [line["text"] for line in lines]
    other = [*asked[:4], "--choice", "yes", *asked[6:]]
    code, _, err = cli(*other, "-o", out)
    assert code == 2 and "other prompts or settings" in err


def test_a_line_has_its_own_form(files: dict[str, Path], cli: Cli, tmp_path: Path) -> None:
    """A line's form overrides the command's; other answers in the batch have other forms, or none."""
    prompts, out = tmp_path / "p.jsonl", tmp_path / "out.jsonl"
    wanted = [
        ({"json_schema": SCHEMA}, r'\{\s*"word".*\}'),
        ({"json_schema": json.dumps({"enum": [1, 2]})}, "[12]"),
        ({"grammar": 'root ::= "<" [a-c]{4} ">"'}, "<[a-c]{4}>"),
        ({"regex": "[0-9]{3}"}, "[0-9]{3}"),
        ({"choice": ["left", "right"]}, "left|right"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"const": 5}}}}, "5"),
        ({}, "yes"),
        ({"response_format": {"type": "text"}}, "(?!yes).*"),
        ({"response_format": {"type": "json_object", "schema": {"type": "boolean"}}}, "true|false"),
    ]
    prompts.write_text("".join(json.dumps({"prompt": "One", **form}) + "\n" for form, _ in wanted))
    asked = ["run", files["q8_0"], "-f", prompts, "--choice", "yes", "--parallel", "4", *DRAWN]
    code, _, err = cli(*asked, "-o", out)
    assert code == 0, err
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    for (form, expression), line in zip(wanted, lines, strict=True):
        assert re.fullmatch(expression, line["text"], re.DOTALL), (form, line)
    alone = tmp_path / "alone.jsonl"
    alone.write_text(json.dumps({"prompt": "One", "choice": ["left", "right"]}) + "\n")
    code, first, _ = cli("run", files["q8_0"], "-f", alone, "--choice", "yes", *DRAWN)
    code, again, _ = cli("run", files["q8_0"], "-f", alone, *DRAWN)
    assert first == again and code == 0, "what the command says does not matter to a line that says something"
    prompts.write_text(prompts.read_text().replace('["left", "right"]', '["up", "down"]'))
    code, _, err = cli(*asked, "-o", out)
    assert code == 2 and "other prompts or settings" in err


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ({"json_schema": {"not": {}}}, 'the schema cannot be used: Unimplemented keys: ["not"]'),
        ({"json_schema": "{"}, "json_schema: the schema is not JSON"),
        ({"json_schema": 5}, "json_schema: the schema is 5, expected an object"),
        ({"grammar": "root ::= foo"}, "the grammar cannot be read"),
        ({"grammar": ["a"]}, "grammar: expected a text, found ['a']"),
        ({"regex": "("}, "the expression cannot be used"),
        ({"regex": 7}, "regex: expected a text, found 7"),
        ({"choice": "yes"}, "choice: expected a list of texts, found yes"),
        ({"choice": [1]}, "choice: the choices are empty or hold"),
        ({"regex": "a", "choice": ["b"]}, "regex and choice are both given"),
        ({"response_format": {"type": "xml"}}, "response_format: expected a type of text, json_object or json_schema"),
        ({"response_format": 3}, "response_format: expected a type"),
        ({"response_format": {"type": "json_schema"}}, "response_format: json_schema has no schema"),
    ],
    ids=str,
)
def test_a_line_whose_form_cannot_be_is_named(
    form: dict[str, object], says: str, files: dict[str, Path], cli: Cli, tmp_path: Path
) -> None:
    """Invalid forms are reported before any answer."""
    prompts, out = tmp_path / "p.jsonl", tmp_path / "out.jsonl"
    prompts.write_text(json.dumps("First") + "\n\n" + json.dumps({"prompt": "One", **form}) + "\n")
    line = failed(cli("run", files["q8_0"], "-f", prompts, "-o", out), 2)
    assert f"p.jsonl, line 3: {says}" in line and not out.exists()


def test_what_lines_share_is_compiled_once(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(json.dumps({"prompt": f"{i}", "json_schema": SCHEMA, "id": i}) + "\n" for i in range(1000))
    with LoadedModel.load(files["q8_0"], n_ctx=256, n_seq_max=4) as model:
        forms = Forms(model.tokenizer)
        prompts = prompt_files.read_prompts(text, "p", model, None, forms)
        batch = prompt_files.PromptBatch(model, SamplingParams(), 3, n_parallel=4, forms=forms)
        answers = io.StringIO()
        assert batch.run(prompts[:8], answers).n_answers == 8
        assert forms.n_compiled == 1 and len(prompts) == 1000
        forms.close()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--json-schema", "{"], "the schema is not JSON"),
        (["--json-schema", '{"not": {}}'], 'Unimplemented keys: ["not"]'),
        (["--json-schema", "nowhere.json"], "nowhere.json"),
        (["--grammar", "nowhere.gbnf"], "nowhere.gbnf"),
        (["--regex", "("], "the expression cannot be used"),
        (["--choice", ""], "the choices"),
        (["--regex", "a", "--choice", "b"], "--regex and --choice are both given"),
    ],
)
def test_what_cannot_be_is_one_line(options: list[str], says: str, files: dict[str, Path], cli: Cli) -> None:
    code, out, err = cli("run", files["q8_0"], "--raw", "-p", "a", *options)
    assert code == 2 and says in err and not out and len(err.strip().splitlines()) <= 2, err


SAMPLED = ["--temp", "2", "--top-k", "0", "--seed", "3"]


@pytest.mark.parametrize(
    "drawn", [pytest.param(["--temp", "0"], id="greedy", marks=pytest.mark.matrix), pytest.param(SAMPLED, id="sampled")]
)
@pytest.mark.parametrize("spec", ["none", "ngram"])
def test_an_answer_goes_on_in_its_form(
    drawn: list[str], spec: str, files: dict[str, Path], cli: Cli, tmp_path: Path
) -> None:
    """An answer saved in the middle, even within forced tokens, continues with the tokens of an uninterrupted one. The
    form may be given again."""
    path, form = tmp_path / "state", ["--json-schema", json.dumps(SCHEMA)]
    asked = ["run", files["q8_0"], "--raw", "--json", "--spec", spec, *drawn]
    whole = json.loads(ok(cli(*asked, "-p", "A word:", "-n", "150", *form)))
    assert whole["reason"] == "eos" and json.loads(whole["text"]).keys() == {"word", "n"}
    lengths = (2, 1, 3, 2, 4) if spec == "none" else (5, 1, 2, 9, 14)
    parts = [json.loads(ok(cli(*asked, "-p", "A word:", "-n", "3", *form, "--state", path)))]
    while parts[-1]["reason"] == "length":
        again = form if len(parts) % 2 else []
        code, out, err = cli(*asked, "-p", "", "-n", str(lengths[len(parts) % 5]), *again, "--state", path)
        assert code == 0 and ("the answer goes on in its form" in err) == (not again), err
        parts.append(json.loads(out))
    assert [token for part in parts for token in part["ids"]] == whole["ids"] and len(parts) > 3


def test_what_follows_a_saved_answer(files: dict[str, Path], cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "state"

    def run(*options: str) -> tuple[int, str, str]:
        return cli("run", files["q8_0"], "--raw", "--state", path, *SAMPLED, *options)

    ok(run("-p", "Say", "-n", "2", "--regex", "[0-9]{4}"))
    assert (
        failed(run("-p", "", "--regex", "[a-z]{4}"), 2)
        == "error: the saved answer is incomplete, and the expression is "
        "not its form: go on without one, or begin another answer with a prompt."
    )
    # a prompt begins another answer, with another form or none
    before = path.read_bytes()
    assert re.fullmatch("[a-z]{4}", ok(run("-p", " Again", "--regex", "[a-z]{4}")).strip())
    path.write_bytes(before)
    code, _, err = run("-p", " Again", "-n", "3")
    assert code == 0 and "the saved answer was not whole; its form ends" in err
    # after a complete answer or one without a form, the next answer has the requested form
    assert re.fullmatch("[a-z]{4}", ok(run("-p", "", "--regex", "[a-z]{4}")).strip())
    assert re.fullmatch("[0-9]{4}", ok(run("-p", "", "--regex", "[0-9]{4}")).strip())
    code, out, err = run("-p", "", "-n", "8")
    assert code == 0 and "form" not in err and out


BAD_FORMS: list[tuple[object, str]] = [
    (3, "has no form that can be read"),
    ({}, "has no form that can be read"),
    ({"grammar": {"kind": "xml", "text": ""}}, "has no form that can be read"),
    ({"grammar": {"kind": "json_schema", "text": "{"}}, "cannot be"),
    ({"grammar": {"kind": "json_schema", "text": "[" * 5000}}, "cannot be"),
    ({"grammar": {"kind": "choice", "text": "3"}}, "cannot be"),
    ({"grammar": {"kind": "composed", "text": "{}"}}, "has no form that can be read"),
    ({"grammar": {"kind": "composed", "text": "3"}}, "has no form that can be read"),
    ({"grammar": {"kind": "composed", "text": '{"name": 1, "parts": [1]}'}}, "has no form that can be read"),
    ({"grammar": {"kind": "composed", "text": '{"name": 1, "lark": 3, "parts": {}}'}}, "cannot be"),
    ({"said": 3}, "has tokens outside this vocabulary"),
    ({"said": [10**9]}, "has tokens outside this vocabulary"),
    ({"said": [True]}, "has tokens outside this vocabulary"),
    ({"forced": None}, "has tokens outside this vocabulary"),
    ({"said": [5, 6, 7]}, "does not match its form"),
    ({"forced": [5, 6, 7]}, "cannot continue with the tokens it names"),
]


@pytest.mark.parametrize(("form", "says"), BAD_FORMS, ids=str)
def test_a_damaged_form_of_a_state_is_refused(form: Any, says: str, files: dict[str, Path]) -> None:
    whole = {"grammar": Grammar.regex("[0-9]{4}").to_json(), "said": [], "forced": []}
    with LoadedModel.load(files["q8_0"], n_ctx=64) as model:
        seq, forms = model.sequence(), Forms(model.tokenizer)
        seq.extra = {"form": {**whole, **form} if isinstance(form, dict) and form else form}
        with pytest.raises((StateError, UsageError), match=says) as error:
            form_behind(seq, None, forms, goes_on=True)
        assert "\n" not in str(error.value)
        forms.close()


INTERSECTIONS = {"allOf": [{"pattern": f"(a|b)*a(a|b){{{i}}}"} for i in range(5, 25)], "type": "string"}
CHAIN = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(15000)} | {"d15000": {"type": "string"}}


@pytest.mark.parametrize(
    ("option", "text", "says"),
    [
        ("--json-schema", '{"type": "object", "properties": {"a": {"type": "strin"}}}', "Invalid type: strin (at /pro"),
        ("--json-schema", json.dumps({"enum": ["x" * 1000] * 10_000}), "the schema has 10040010 bytes, expected at"),
        ("--json-schema", "[" * 10_000_000, "the schema is not JSON"),
        pytest.param(
            "--json-schema",
            json.dumps(INTERSECTIONS),
            "compiling it takes more than 2 seconds, or too much memory",
            marks=pytest.mark.matrix,
        ),
        pytest.param(
            "--json-schema",
            json.dumps({"$defs": CHAIN, "$ref": "#/$defs/d0"}),
            "more than 2 seconds, or too much memory",
            marks=pytest.mark.matrix,
        ),
        (
            "--json-schema",
            '{"type": "integer", "minimum": 5, "maximum": 3}',
            "the schema cannot be used: Unsatisfiable",
        ),
        ("--grammar", "root ::= a\na ::= b\nb ::= a", "nothing fits the grammar: it refers to itself without end"),
        ("--grammar", 'root ::= "a" (', "the grammar cannot be read: Failed to convert"),
        ("--grammar", "start: " + "(" * 20000 + '"a"' + ")" * 20000, "the grammar cannot be used"),
        ("--grammar", 'start: "' + "x" * (1 << 20) + '"', "expected at most 1048576. Make it smaller."),
        ("--regex", "(a{1000}){1000}", "the expression cannot be used: lexer error: too many expressions"),
        ("--regex", "(?=a)b", "look-around, including look-ahead and look-behind, is not supported"),
    ],
    ids=lambda value: value[:40],
)
def test_what_hurts_is_one_line(
    option: str, text: str, says: str, files: dict[str, Path], cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "form"
    path.write_text(text)
    given = text if option == "--regex" else path
    line = failed(cli("run", files["q8_0"], "--raw", "-p", "a", option, given), 2)
    assert says in line and len(line) < 700, line


def test_every_answer_of_a_chat_has_the_form(files: dict[str, Path], tmp_path: Path) -> None:
    """Each answer has its own copy: repeated, undone, on another branch, after saving and loading."""
    with LoadedModel.load(files["q8_0"], n_ctx=512, n_seq_max=2) as model:
        form = Constraint(Grammar.regex("<[a-c]{6}>"), model.tokenizer)

        def chat() -> Conversation:
            return Conversation(model, SamplingParams(seed=1, temp=2.0, top_k=0), model.chat_template, 20, form=form)

        first, right = chat(), re.compile("<[a-c]{6}>").fullmatch
        assert all(right(said(first.answer(question))) for question in ("Where?", "And then?", "Why?"))
        stopped = first.answer("In the middle?")
        next(stopped)
        stopped.close()
        assert not right(first.turns.head.answer.text if first.turns.head else "")
        first.undo()
        assert right(said(first.regenerate()))
        first.turns.fork("other")
        answers = [said(first.answer("On a branch?"))]
        first.turns.switch("main")
        answers += [said(first.answer("On a branch?")), said(first.edit(1, "Who?"))]
        first.save(tmp_path / "chat")
        loaded = chat()
        loaded.load(tmp_path / "chat")
        answers += [said(some.answer("And now?")) for some in (first, loaded)]
        assert all(map(right, answers)) and answers[-1] == answers[-2]
        assert not form.may_end, "the one that they are copies of is where it was"
