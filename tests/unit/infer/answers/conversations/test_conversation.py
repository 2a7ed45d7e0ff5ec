"""A chat processes only new text, whatever is taken back, edited or begun anew."""

from pathlib import Path
from typing import Any

import pytest
from fake_chat import N_VOCAB, NAMES, FakeModel, Template, said, talk

from hybrid.quant.ggml.errors import HybridError, Remedy, UsageError


@pytest.mark.parametrize("template", [Template(), Template(before=" "), Template(trim=True)])
def test_a_turn_processes_only_what_it_adds(template: Template) -> None:
    model = FakeModel(" One.\n", " Two.", "Three.")
    chat = talk(model, template)
    assert said(chat.answer("a")) == " One.\n"
    assert said(chat.answer("b")) == " Two."
    assert said(chat.answer("c")) == "Three."
    assert model.seq.prefills == ["<s><user>a</s><bot>", "</s><user>b</s><bot>", "</s><user>c</s><bot>"]
    assert "".join(NAMES.get(t, chr(t)) for t in model.seq.tokens).startswith(
        "<s><user>a</s><bot> One.\n</s><user>b</s><bot> Two.</s>"
    )
    assert chat.stats.n_reused > 0


def test_plain_completion_joins_what_is_said() -> None:
    model = FakeModel(" two,", " four.")
    chat = talk(model, None)
    assert said(chat.answer("one,")) == " two,"
    assert said(chat.answer(" three,")) == " four."
    assert model.seq.prefills == ["<s>one,", " three,"]


def test_an_answer_cut_by_length_goes_on_from_its_last_token() -> None:
    """The last token drawn is not in the sequence yet; the next turn must add it."""
    model = FakeModel("abcdef", "x")
    chat = talk(model, Template(), max_tokens=3)
    assert said(chat.answer("q")) == "abc"
    assert model.seq.tokens[-1] == ord("b")
    said(chat.answer("r"))
    assert model.seq.prefills[1] == "c</s><user>r</s><bot>"


def test_a_stop_text_costs_the_answer_because_the_sequence_holds_more_than_was_said() -> None:
    model = FakeModel("good END bad", "x")
    chat = talk(model, Template(), stop=["END"])
    assert said(chat.answer("q")) == "good "
    said(chat.answer("r"))
    assert model.seq.prefills[1] == "good </s><user>r</s><bot>"


def test_regenerate_says_something_else_to_the_same_prompt() -> None:
    model = FakeModel("first", "second")
    chat = talk(model, Template())
    said(chat.answer("q"))
    assert said(chat.regenerate()) == "second"
    assert model.seq.prefills == ["<s><user>q</s><bot>", "<bot>"], "the fake keeps no logits"
    assert [m["content"] for m in chat.messages] == ["q", "second"]
    with pytest.raises(UsageError, match="no answer yet"):
        said(talk(FakeModel(), Template()).regenerate())


def test_whatever_is_taken_back_costs_only_what_is_new() -> None:
    model = FakeModel("one", "two", "three", "four", "five", "six", "seven")
    chat = talk(model, Template())
    for question in "abc":
        said(chat.answer(question))
    assert chat.undo().question == "c"
    said(chat.answer("d"))
    said(chat.edit(2, "B"))
    assert [m["content"] for m in chat.messages] == ["a", "one", "B", "five"]
    chat.turns.fork("side")
    said(chat.answer("e"))
    chat.turns.switch("main")
    said(chat.answer("f"))
    chat.turns.switch("3")
    assert [m["content"] for m in chat.messages] == ["a", "one", "b", "two", "c", "three"]
    assert model.seq.prefills == ["<s><user>a</s><bot>", *(f"</s><user>{q}</s><bot>" for q in "bcdBef")]
    assert chat.turns.lines() == [
        "> 1 a -> one",
        "> 2   b -> two",
        "> 3     c -> three  [*turn-3]",
        "  4     d -> four",
        "  5   B -> five",
        "  6     e -> six  [side]",
        "  7     f -> seven  [main]",
    ]
    chat.turns.switch("7")
    assert chat.turns.branch == "main"
    chat.turns.switch("3")
    assert chat.turns.branch == "turn-3"
    with pytest.raises(UsageError, match="there is no turn 8: this conversation has turns 1 to 7"):
        said(chat.edit(8, "x"))
    for _ in range(3):
        chat.undo()
    assert chat.turns.lines()[0] == "  - the beginning  [*turn-3]"
    with pytest.raises(UsageError, match="nothing to take back"):
        chat.undo()
    with pytest.raises(UsageError, match="no turn 1: this conversation has no turns yet"):
        said(talk(FakeModel(), Template()).edit(1, "x"))


def test_a_turn_is_edited_by_its_number_in_the_tree() -> None:
    chat = talk(FakeModel("one", "two", "three", "four"), Template())
    said(chat.answer("a"))
    said(chat.regenerate())
    said(chat.answer("b"))
    said(chat.edit(3, "c"))
    assert [m["content"] for m in chat.messages] == ["a", "two", "c", "four"], "turn 3 is the second of its branch"


def test_lines_of_the_tree_fit_the_terminal() -> None:
    chat = talk(FakeModel("o" * 90, "t" * 90), Template())
    said(chat.answer("a" * 90))
    said(chat.answer("b" * 10))
    first, second = chat.turns.lines(80)
    assert first == "> 1 " + "a" * 33 + "... -> " + "o" * 33 + "..."
    assert second == "> 2 " + "b" * 10 + " -> " + "t" * 50 + "...  [*main]" and len(second) == 80


class Thinking(Template):
    """A template that shows the thoughts of the last answer only, like templates of thinking models."""

    def render(self, messages: list[dict[str, Any]], add_generation_prompt: bool = True, **more: Any) -> str:
        kept = [
            m if m["role"] == "user" or i == len(messages) - 1 else {**m, "content": m["content"].rpartition("|")[2]}
            for i, m in enumerate(messages)
        ]
        return super().render(kept, add_generation_prompt)


def test_a_template_that_rewrites_history_costs_the_tail() -> None:
    model = FakeModel("hm|one", "so|two", "well|three", "four")
    chat = talk(model, Thinking())
    for question in "abcd":
        said(chat.answer(question))
    assert model.seq.prefills == [
        "<s><user>a</s><bot>",
        "one</s><user>b</s><bot>",
        "two</s><user>c</s><bot>",
        "three</s><user>d</s><bot>",
    ]


def test_the_ends_of_messages_are_boundaries() -> None:
    model = FakeModel("one", "two")
    chat = talk(model, Template(), system="S")
    said(chat.answer("a"))
    assert model.seq.boundaries == [1, 4], "BOS, system prompt"
    said(chat.answer("b"))
    assert model.seq.boundaries == [], "what continues a turn has been there already"


@pytest.mark.parametrize(
    ("name", "says"), [("main", "branch main already"), ("a b", "one word"), ("7", "not a number")]
)
def test_names_of_branches(name: str, says: str) -> None:
    chat = talk(FakeModel(), Template())
    with pytest.raises(UsageError, match=says):
        chat.turns.fork(name)
    with pytest.raises(UsageError, match=r"there is no branch x\. There are: main\.$") as refused:
        chat.turns.switch("x")
    assert (refused.value.remedy, refused.value.value) == (Remedy.FORK_BRANCH, "x")
    assert chat.turns.lines() == ["  - no turns yet  [*main]"]


def test_interrupted_prompt_takes_the_question_back() -> None:
    model = FakeModel("one", "two")
    chat = talk(model, Template())
    said(chat.answer("a"))
    model.interrupt_prefill = True
    assert said(chat.answer("b")) == ""
    assert [m["content"] for m in chat.messages] == ["a", "one"]
    model.interrupt_prefill = False
    assert said(chat.answer("c")) == "two"
    assert model.seq.prefills[-1] == "c</s><bot>", "what the interrupted prompt has in common need not be done again"
    text = "".join(NAMES.get(t, chr(t)) for t in model.seq.tokens)
    assert text.startswith("<s><user>a</s><bot>one</s><user>c</s><bot>two"), text


def test_a_conversation_that_is_too_long_is_an_error_and_the_question_is_taken_back() -> None:
    chat = talk(FakeModel("one", n_ctx=16), Template())
    with pytest.raises(UsageError, match=r"conversation has 34 tokens, the context 16\.$") as refused:
        said(chat.answer("x" * 30))
    assert refused.value.remedy is Remedy.CONTEXT_SHIFT
    assert chat.messages == []
    assert said(chat.answer("y")) == "one"


def test_save_and_load_process_nothing_again() -> None:
    model = FakeModel("one", "two")
    chat = talk(model, Template())
    said(chat.answer("a"))
    assert chat.save(Path("f")) == 7
    said(chat.answer("b"))
    chat.clear()
    assert chat.messages == []
    chat.load(Path("f"))
    assert [m["content"] for m in chat.messages] == ["a", "one"]
    model.script = ["three"]
    assert said(chat.answer("c")) == "three"
    assert model.seq.prefills[-1] == "</s><user>c</s><bot>"


def test_a_completion_is_no_chat() -> None:
    model = FakeModel()
    model.files[Path("f")] = ([5], {})
    with pytest.raises(HybridError, match="f holds a completion, not a chat"):
        talk(model, Template()).load(Path("f"))


TURN = {"parent": 0, "base": 0, "user": "a", "answer": "b", "added": [5], "asked": [0, "a"], "said": "b"}
GOOD = {"turns": [TURN], "branches": {"main": 1}, "branch": "main", "system": ""}


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"chat": {}}, "its chat has no turns"),
        ({"chat": {**GOOD, "turns": 5}}, "its chat has no turns"),
        ({"chat": {**GOOD, "turns": ["a"]}}, "its chat has no turns"),
        ({"chat": {**GOOD, "turns": [{**TURN, "parent": 1}]}}, "its chat has no turns"),
        ({"chat": {**GOOD, "turns": [{**TURN, "base": -1}]}}, "its chat has no turns"),
        ({"chat": {**GOOD, "turns": [{**TURN, "added": [N_VOCAB]}]}}, "its chat has no turns"),
        ({"chat": {**GOOD, "turns": [{**TURN, "asked": []}]}}, "its chat has no turns"),
        ({"chat": {**GOOD, "turns": [{**TURN, "user": 1}]}}, "its chat has no turns"),
        ({"chat": {**GOOD, "branches": {"main": 2}}}, "its chat has no turns"),
        ({"chat": {**GOOD, "branches": {}}}, "its chat has no turns"),
        ({"chat": {**GOOD, "branch": "x"}}, "its chat has no turns"),
        ({"chat": GOOD, "sampler": {"generator": "PCG64", "state": float("inf"), "inc": 1}}, "sampler state"),
    ],
)
def test_a_damaged_chat_leaves_an_empty_one(extra: dict[str, Any], says: str) -> None:
    model = FakeModel("one")
    model.files[Path("f")] = ([5], extra)
    chat = talk(model, Template())
    with pytest.raises(HybridError, match=says):
        chat.load(Path("f"))
    assert chat.messages == [] and model.seq.tokens == []
    assert said(chat.answer("y")) == "one"


def test_an_answer_that_nobody_waits_for_keeps_the_text_of_its_tokens() -> None:
    """Text held back for a stop string belongs to the answer."""
    model = FakeModel("go END", "x")
    chat = talk(model, Template(), stop=["END"])
    pieces = chat.answer("q")
    assert [next(pieces).text for _ in range(4)] == ["g", "o", " ", ""]
    pieces.close()  # type: ignore[attr-defined]
    assert [m["content"] for m in chat.messages] == ["q", "go E"]
    said(chat.answer("r"))
    assert model.seq.prefills[1] == "E</s><user>r</s><bot>"


def test_what_was_drawn_stays_what_was_drawn_behind_a_file() -> None:
    """An answer keeps its drawn tokens, which may differ from its text's: here it spells <user> letter by letter."""
    model = FakeModel("a <user> says", "so", "x", "y")
    chat = talk(model, Template())
    said(chat.answer("a"))
    drawn = chat.turns.all[0].ids
    said(chat.answer("b"))
    assert chat.turns.all[1].ids[: len(drawn)] == drawn
    chat.save(Path("f"))
    other = talk(model, Template())
    other.load(Path("f"))
    said(other.answer("c"))
    assert other.turns.all[2].base is other.turns.all[1] and other.turns.all[2].ids[: len(drawn)] == drawn
    other.clear()
    said(other.answer("a"))
    assert other.turns.all[0].base is None and len(other.ledger) == 1
