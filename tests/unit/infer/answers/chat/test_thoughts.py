"""The budget of thoughts: counted as a reader sees them, closed with the model's own tag."""

import json

import numpy as np
import pytest
from chat_templates import template
from chat_vocabulary import CONTROL, NORMAL, USER_DEFINED, chat_tokenizer

from hybrid.infer.answers.chat.call_grammar import answer_grammar
from hybrid.infer.answers.chat.dialect import NOTHING, Dialect
from hybrid.infer.answers.chat.format import ChatFormat, ThoughtFormat
from hybrid.infer.answers.chat.marks import shown_tokens
from hybrid.infer.answers.chat.thoughts import ThoughtBudget, ThoughtMarks
from hybrid.infer.answers.chat.tools import ToolChoice
from hybrid.infer.answers.constraints import Constraint, Grammar
from hybrid.infer.answers.drawing.drawing import Drawing
from hybrid.infer.answers.sampling import Sampler, SamplingParams
from hybrid.infer.text.tokenizer import Tokenizer
from hybrid.quant.ggml.errors import StateError

FORMAT = ChatFormat(ThoughtFormat("<think>", "</think>"))


@pytest.fixture(params=[NORMAL, USER_DEFINED, CONTROL], ids=["text", "own tokens", "control tokens"], scope="module")
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return chat_tokenizer(request.param)


def ids_of(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special=False, continues=True, parse_special=True)


def drawn(
    tokenizer: Tokenizer, wants: str, budget: ThoughtBudget, constraint: Constraint | None = None, most: int = 60
) -> tuple[str, Drawing]:
    """The answer of a model that wants to say `wants` and then to end, and its drawing."""
    sampler = Sampler(SamplingParams(temp=0), tokenizer.n_vocab)
    drawing = Drawing(
        sampler, tokenizer, most, (), constraint=constraint, shown=shown_tokens(FORMAT, tokenizer), budget=budget
    )
    drawing.begin(())
    wanted = [*ids_of(tokenizer, wants), tokenizer.eos or 0]
    at = 0
    while drawing.ended is None:
        logits = np.zeros(tokenizer.n_vocab, np.float32)
        logits[wanted[at]] = 9
        piece = drawing.draw(logits)
        at += piece is not None and piece.id == wanted[at]
    drawing.finish()
    return drawing.result.text, drawing


@pytest.mark.parametrize(
    ("most", "thinks", "wants", "says"),
    [
        (3, True, "stuvwz", "stu\n</think>vwz"),
        (0, True, "st", "\n</think>st"),
        (0, False, "<think>st", "<think>\n</think>st"),
        (2, False, "\n<think>stuv", "\n<think>st\n</think>uv"),
        (4, False, "x<think>stuvwz", "x<think>stuvwz"),
        (3, True, "st</think>uvwzyq", "st</think>uvwzyq"),
        (3, True, "st\nuv", "st\n</think>uv"),
        (3, False, "</think>x", "</think>x"),
        (3, True, "s<tool_call>tuvwz", "s<tool_call>tuvwz"),
    ],
)
def test_thoughts_are_closed(most: int, thinks: bool, wants: str, says: str, tokenizer: Tokenizer) -> None:
    if len(ids_of(tokenizer, "<tool_call>")) > most > 0 and "<tool_call>" in wants:
        most += len(ids_of(tokenizer, "<tool_call>"))
    if wants.startswith("st</think>"):
        most += len(ids_of(tokenizer, "</think>"))
    assert drawn(tokenizer, wants, ThoughtBudget(FORMAT, tokenizer, most, thinks))[0] == says


def test_a_character_is_not_cut(tokenizer: Tokenizer) -> None:
    """Emoji are four tokens of this vocabulary."""
    for most in (2, 3, 4, 5):
        text, _ = drawn(tokenizer, "s\U0001f600zyv", ThoughtBudget(FORMAT, tokenizer, most, True))
        assert text == ("s\U0001f600\n</think>zyv")


def test_a_budget_goes_with_a_form(tokenizer: Tokenizer) -> None:
    form = Grammar.json_schema({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
    grammar = answer_grammar(FORMAT, tokenizer, [], ToolChoice("none"), thinks=True, form=form)
    assert grammar is not None
    budget = ThoughtBudget(FORMAT, tokenizer, 3, True)
    text, drawing = drawn(tokenizer, 'stu{"a": 7}', budget, Constraint(grammar, tokenizer))
    assert text == 'stu\n</think>{"a": 7}' and drawing.ended == "eos"


def test_forced_tokens_are_foreseen_and_guesses_end_where_they_begin(tokenizer: Tokenizer) -> None:
    budget = ThoughtBudget(FORMAT, tokenizer, 3, True)
    drawing = Drawing(Sampler(SamplingParams(temp=0), tokenizer.n_vocab), tokenizer, -1, (), budget=budget)
    drawing.begin(())
    guess = ids_of(tokenizer, "stuvwz")
    assert drawing.foresees and drawing.foreseen(guess, 9) == guess[:3]
    for token in guess[:3]:
        logits = np.zeros(tokenizer.n_vocab, np.float32)
        logits[token] = 9
        drawing.draw(logits)
    assert drawing.is_forced and drawing.foreseen(guess, 99) == ids_of(tokenizer, "\n</think>")


@pytest.mark.parametrize("has_form", [False, True])
def test_a_restored_answer_goes_on_the_same(has_form: bool, tokenizer: Tokenizer) -> None:
    """A restored answer continues the same from any token, also within forced text."""
    form = Grammar.json_schema({"type": "object", "properties": {"name": {"type": "integer"}}, "required": ["name"]})
    grammar = answer_grammar(FORMAT, tokenizer, [], ToolChoice("none"), thinks=True, form=form)
    assert grammar is not None
    made = Constraint(grammar, tokenizer) if has_form else None
    rows = np.random.default_rng(3).standard_normal((40, tokenizer.n_vocab)).astype(np.float32)

    def answer(constraint: Constraint | None, budget: ThoughtBudget) -> Drawing:
        sampler = Sampler(SamplingParams(temp=0), tokenizer.n_vocab)
        drawing = Drawing(sampler, tokenizer, -1, (), constraint=constraint, budget=budget)
        drawing.begin(())
        return drawing

    def said(drawing: Drawing, done: int) -> list[int]:
        for row in rows[done:]:
            if drawing.ended is None:
                drawing.draw(row)
        return drawing.result.ids

    whole = said(answer(made and made.copy(), ThoughtBudget(FORMAT, tokenizer, 4, True)), 0)
    assert tokenizer.decode(whole).count("</think>") == 1 and len(whole) > 12
    for n in range(1, len(whole)):
        begun = answer(made and made.copy(), ThoughtBudget(FORMAT, tokenizer, 4, True))
        for row in rows[:n]:
            begun.draw(row)
        state = json.loads(json.dumps(begun.state()))
        constraint = made.resumed(state["form"]) if made is not None else None
        resumed = answer(constraint, ThoughtBudget.resumed(FORMAT, tokenizer, state["thoughts"]))
        assert [*whole[:n], *said(resumed, n)] == whole


@pytest.mark.parametrize("wrong", [None, {}, {"most": 1, "thinks": True, "said": [-1], "forced": []}, {"most": "1"}])
def test_a_damaged_budget(wrong: object, tokenizer: Tokenizer) -> None:
    with pytest.raises(StateError):
        ThoughtBudget.resumed(FORMAT, tokenizer, wrong)


@pytest.mark.parametrize(
    ("thinks", "text", "thoughts"),
    [
        (True, "ab</think>cd", "ab</think>"),
        (True, "ab", "ab"),
        (True, "a<tool_call>b</think>c", "a"),
        (True, "a</think>\n<think>b</think>c</think>", "a</think>\n<think>b</think>"),
        (True, "</think>\n\nc<think>d</think>", "</think>"),
        (False, "\n<think>a</think>b", "\n<think>a</think>"),
        (False, "<think>a<tool_call></think>b", "<think>a<tool_call></think>"),
        (False, "<thin", ""),
        (False, " <thinx</think>", ""),
        (False, "", ""),
    ],
)
def test_thoughts_are_told_from_the_rest(thinks: bool, text: str, thoughts: str) -> None:
    """Thoughts are recognized however the text is cut."""
    for n in range(1, len(text) + 2):
        marks = ThoughtMarks(FORMAT, thinks)
        parts = [part for at in range(0, len(text), n) for part in marks.split(text[at : at + n])]
        parts.append((marks.rest(), False))
        assert "".join(part for part, _ in parts) == text
        found = "".join(part for part, is_thought in parts if is_thought)
        assert found == thoughts or (thoughts == "a" and found == "a<tool_call>"[: len(found)]), n


@pytest.mark.parametrize(
    ("thinks", "wants", "stop", "says", "found"),
    [
        (True, "sSTOPt</think>uSTOPv", "STOP", "sSTOPt</think>u", "STOP"),
        (True, "sSTOPt</think>uv", "STOP", "sSTOPt</think>uv", None),
        (True, "sSTOP", "STOP", "sSTOP", None),
        (False, "\n<think>sSTOPt</think>uSTOPv", "STOP", "\n<think>sSTOPt</think>u", "STOP"),
        (False, "\n<think>s</think>", "\n", "\n<think>s</think>", None),
        (False, "sSTOPt<think>", "STOP", "s", "STOP"),
        (False, "<thSTOPt", "STOP", "<th", "STOP"),
        (True, "sST</think>OPt", "STOP", "sST</think>OPt", None),
        (True, "s</think>\n\nt", "\n\n", "s</think>", "\n\n"),
        (True, "s</think>t", "</think>", "s</think>t", None),
        (True, "s</think>", ">", "s</think>", None),
        (True, "s\n\nt</think>u\nST", "STOP", "s\n\nt</think>u\nST", None),
        (False, "s\nSTOPt", "STOP", "s\n", "STOP"),
    ],
)
def test_stop_strings_are_for_what_is_no_thought(
    thinks: bool, wants: str, stop: str, says: str, found: str | None, tokenizer: Tokenizer
) -> None:
    """Stop strings do not count inside thoughts, with and without a budget."""
    shown = shown_tokens(FORMAT, tokenizer)
    for most in (None, 100):
        budget = ThoughtBudget(FORMAT, tokenizer, most, thinks)
        sampler = Sampler(SamplingParams(temp=0), tokenizer.n_vocab)
        drawing = Drawing(sampler, tokenizer, -1, [stop], shown=shown, budget=budget)
        assert drawing.foresees == (most is not None)
        drawing.begin(())
        pieces = []
        for token in [*ids_of(tokenizer, wants), tokenizer.eos or 0]:
            logits = np.zeros(tokenizer.n_vocab, np.float32)
            logits[token] = 9
            if drawing.ended is None and (piece := drawing.draw(logits)) is not None:
                pieces.append(piece.text)
        rest = drawing.finish()
        assert drawing.result.text == says == "".join([*pieces, rest.text if rest else ""])
        assert drawing.result.stop == found


def test_texts_without_thoughts_are_searched_from_their_beginning(tokenizer: Tokenizer) -> None:
    drawing = Drawing(Sampler(SamplingParams(temp=0), tokenizer.n_vocab), tokenizer, -1, ["ink>"])
    drawing.begin(())
    for token in ids_of(tokenizer, "<think>") if len(ids_of(tokenizer, "<think>")) > 1 else ids_of(tokenizer, "ink>"):
        logits = np.zeros(tokenizer.n_vocab, np.float32)
        logits[token] = 9
        drawing.draw(logits)
    assert drawing.result.stop == "ink>"


@pytest.mark.parametrize(("name", "thinks"), [("Qwen3.5-4B", True), ("Qwen-Qwen3-0.6B", False)])
def test_rules_of_models_that_think_tell_thoughts(name: str, thinks: bool, tokenizer: Tokenizer) -> None:
    dialect = Dialect(template(name), tokenizer)
    made = dialect.prompt([{"role": "user", "content": "Hi"}], NOTHING)
    budget = dialect.rules(NOTHING, made).drawn["budget"]
    assert budget is not None and not budget.is_bounded and budget.marks.is_inside == thinks
