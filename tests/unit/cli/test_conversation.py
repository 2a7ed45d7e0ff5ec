"""What a chat processes: only what is new, whatever is taken back, edited or begun anew.

The model is a fake whose tokens are characters (and four control tokens), so that every prefill can be read.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hybrid.cli.commands.chat import Chat, joined, unfinished
from hybrid.cli.conversation import Conversation
from hybrid.infer.sampling import SamplingParams
from hybrid.quant.ggml.errors import HybridError, UsageError

CONTROL = {"<s>": 0, "</s>": 1, "<user>": 2, "<bot>": 3, "<sys>": 4}
NAMES = {i: name for name, i in CONTROL.items()}
N_VOCAB = 300


class FakeTokenizer:
    """One token per character; control tokens are taken out of the text when asked to."""

    bos, eos, eot = 0, 1, None
    kind = "gpt2"
    eog = frozenset({1})

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        ids = [0] if add_special else []
        while text:
            name = next((n for n in CONTROL if parse_special and text.startswith(n)), None)
            ids.append(CONTROL[name] if name else ord(text[0]))
            text = text[len(name or " ") :]
        return ids

    def piece(self, token: int) -> bytes:
        return NAMES.get(token, chr(token)).encode()

    def is_control(self, token: int) -> bool:
        return token in NAMES

    def is_eog(self, token: int) -> bool:
        return token == 1

    def stream(self, skip_special: bool = False, at_start: bool = False) -> Any:
        return SimpleNamespace(push=lambda t: "" if t in NAMES else chr(t), flush=lambda: "")


class FakeSequence:
    """Says the script, character by character, then </s>. Goes back to where a prompt or an answer ended."""

    def __init__(self, model: "FakeModel") -> None:
        self.model, self.tokens, self.prefills = model, [], []  # type: tuple[FakeModel, list[int], list[str]]
        self.said: list[int] = []
        self.points: set[tuple[int, ...]] = set()
        self.boundaries: list[int] = []
        self.extra: dict[str, Any] = {}

    n_past = property(lambda self: len(self.tokens))
    logits = property(lambda self: self._next())
    pending = property(lambda self: self.extra.get("pending", []))

    def prefill(self, ids: Sequence[int], progress: Any = None, boundaries: Sequence[int] = ()) -> np.ndarray:
        if self.model.interrupt_prefill:
            self.tokens += list(ids)[:2]
            raise KeyboardInterrupt
        self.points.add(tuple(self.tokens))
        self.tokens += list(ids)
        self.points.add(tuple(self.tokens))
        self.boundaries = list(boundaries)
        self.prefills.append("".join(NAMES.get(i, chr(i)) for i in ids))
        self.said = [*map(ord, self.model.script.pop(0)), 1]
        return self._next()

    def decode(self, token: int) -> np.ndarray:
        self.tokens.append(token)
        return self._next()

    def _next(self) -> np.ndarray:
        logits = np.zeros(N_VOCAB, np.float32)
        logits[self.said.pop(0) if self.said else 1] = 9.0
        return logits

    def resume(self, ids: Sequence[int]) -> int:
        self.points.add(tuple(self.tokens))
        self.tokens = list(max((p for p in self.points if list(p) == ids[: len(p)] and len(p) < len(ids)), key=len))
        return len(self.tokens)

    def clear(self) -> None:
        self.tokens = []

    def save(self, path: Path, extra: dict[str, Any], checkpoints: int = 0) -> int:
        self.model.files[path] = (list(self.tokens), json.loads(json.dumps(extra)))
        return 7


class FakeModel:
    def __init__(self, *script: str, n_ctx: int = 400) -> None:
        self.script, self.n_ctx, self.n_vocab = list(script), n_ctx, N_VOCAB
        self.tokenizer, self.files, self.interrupt_prefill = FakeTokenizer(), {}, False  # type: ignore[var-annotated]
        self.seq = FakeSequence(self)
        self.stopped = False

    def sequence(self) -> FakeSequence:
        return self.seq

    def restore(self, path: Path, seq: FakeSequence) -> FakeSequence:
        seq.tokens, seq.extra = list(self.files[path][0]), self.files[path][1]
        return seq

    def stop(self) -> None:
        self.stopped = True


class Template:
    """<s><user>question</s><bot>answer</s>..., with what `around` puts beside the answer."""

    def __init__(self, before: str = "", trim: bool = False) -> None:
        self.before, self.trim = before, trim

    def render(self, messages: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        text = "<s>"
        for m in messages:
            if m["role"] == "system":
                text += f"<sys>{m['content']}</s>"
            elif m["role"] == "user":
                text += f"<user>{m['content']}</s>"
            else:
                text += f"<bot>{self.before}{m['content'].strip() if self.trim else m['content']}</s>"
        return text + "<bot>" * add_generation_prompt


def talk(model: FakeModel, template: Template | None, **more: Any) -> Conversation:
    return Conversation(model, SamplingParams(temp=0), template, **more)  # type: ignore[arg-type]


def said(pieces: Iterator[str]) -> str:
    return "".join(pieces)


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
    """The token drawn last is not in the sequence yet; the next turn must bring it there."""
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
    assert model.seq.prefills == ["<s><user>q</s><bot>"] * 2, "the fake keeps no logits"
    assert [m["content"] for m in chat.messages] == ["q", "second"]
    with pytest.raises(UsageError, match="no answer yet"):
        said(talk(FakeModel(), Template()).regenerate())


def test_whatever_is_taken_back_costs_only_what_is_new() -> None:
    model = FakeModel("one", "two", "three", "four", "five", "six", "seven")
    chat = talk(model, Template())
    for question in "abc":
        said(chat.answer(question))
    assert chat.undo().user == "c"
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
        "> 1 a",
        "> 2   b",
        "> 3     c  [*turn-3]",
        "  4     d",
        "  5   B",
        "  6     e  [side]",
        "  7     f  [main]",
    ]
    chat.turns.switch("7")
    assert chat.turns.branch == "main"
    chat.turns.switch("3")
    assert chat.turns.branch == "turn-3"
    with pytest.raises(UsageError, match="there is no turn 4: this conversation has turns 1 to 3"):
        said(chat.edit(4, "x"))
    for _ in range(3):
        chat.undo()
    assert chat.turns.lines()[0] == "  - the beginning  [*turn-3]"
    with pytest.raises(UsageError, match="nothing to take back"):
        chat.undo()
    with pytest.raises(UsageError, match="no turn 1: this conversation has no turns yet"):
        said(chat.edit(1, "x"))


class Thinking(Template):
    """Shows thoughts of the last answer only, as templates of thinking models do."""

    def render(self, messages: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
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
    with pytest.raises(UsageError, match=r"there is no branch x\. There are: main\. /fork x makes one"):
        chat.turns.switch("x")
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
    with pytest.raises(UsageError, match=r"conversation has 34 tokens, the context 16\. Use /clear"):
        said(chat.answer("x" * 30))
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


def session(model: FakeModel, *lines: str | type[BaseException]) -> Chat:
    rest = [*lines, EOFError]

    def read() -> str:
        item = rest.pop(0)
        if not isinstance(item, str):
            raise item
        return item

    return Chat(talk(model, Template()), read)


def test_the_loop_answers_and_obeys_commands(capsys: pytest.CaptureFixture[str]) -> None:
    model = FakeModel("Hello.", "Hi.")
    chat = session(model, "hi", "", KeyboardInterrupt, "/regen", "/save", "/nonsense", "/help", "/exit", "never")
    chat.loop()
    out, err = capsys.readouterr()
    assert out == "Hello.\n\nHi.\n\n"
    assert "error: /save needs a file name" in err
    assert "error: there is no command /nonsense" in err
    assert "/regen" in err and "Ctrl-D" in err
    assert "Traceback" not in err


def test_commands_of_the_tree(capsys: pytest.CaptureFixture[str]) -> None:
    chat = session(
        FakeModel("one", "two", "three"), "a", "/undo", "/undo", "b", "/fork x", "/fork", "/edit 1 c", "/edit c",
        "/tree", "/switch main", "/switch 9", "/stats",
    )  # fmt: skip
    chat.conversation.model.memory = SimpleNamespace(bytes_state_per_seq=1, bytes_kv_per_token=1)  # type: ignore
    chat.conversation.model.cache = None
    chat.loop()
    out, err = capsys.readouterr()
    assert out.startswith("one\n\ntwo\n\nthree\n\n")
    for says in (
        "taken back: a (/switch 1 goes there again)", "error: there is nothing to take back.", "on branch x",
        "error: /fork needs a name: /fork NAME", "error: /edit needs the number of a question", "> 3 c  [*x]",
        "on branch main, after turn 2", "error: there is no branch 9", "nothing (--checkpoint-budget 0)",
    ):  # fmt: skip
        assert says in err, says


def test_ctrl_c_stops_the_answer_and_not_the_chat(capsys: pytest.CaptureFixture[str]) -> None:
    import os
    import signal

    model = FakeModel("abcdef", "next")
    chat = session(model, "one", "two")
    decode = model.seq.decode

    def interrupted(token: int) -> np.ndarray:
        if token == ord("c"):
            os.kill(os.getpid(), signal.SIGINT)
        return decode(token)

    model.seq.decode = interrupted  # type: ignore[method-assign]
    chat.loop()
    out, err = capsys.readouterr()
    assert model.stopped
    assert out.splitlines()[0].startswith("abc")
    assert out.splitlines()[0] != "abcdef"
    assert out.splitlines()[2] == "next"
    assert "stopped" in err


def test_several_lines() -> None:
    assert unfinished("a\\") and unfinished('"""a') and unfinished('"""a\nb')
    assert not unfinished("a") and not unfinished('"""a"""') and not unfinished('say """')
    assert joined("a\\\nb") == "a\nb"
    assert joined('"""\na\nb\n"""') == "a\nb"
    assert joined('""') == '""'
