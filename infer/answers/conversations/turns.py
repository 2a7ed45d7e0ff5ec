"""The turns of a conversation, as a tree: answers may be generated again, questions edited, branches begun.

Nothing is ever removed: a turn that was taken back can still be reached by its number.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hybrid.quant.ggml.errors import Remedy, UsageError

from ..asking.reading import SaidAnswer
from ..chat.picture_parts import joined, part_of
from ..chat.tools import ToolCall
from .saved_pictures import read_pictures, saved_pictures

if TYPE_CHECKING:
    from ..asking.eyes import PictureReader, SeenPicture

MAIN = "main"
_ARROW = " -> "
Question = str | Sequence[str]  # the user's; or the results of the previous turn's calls, in their order


@dataclass(eq=False)
class Turn:
    """A question and its answer. base: the turn whose tokens these begin with, normally the parent. pictures: that the
    question is about."""

    number: int
    parent: "Turn | None"
    question: Question
    answer: SaidAnswer
    base: "Turn | None" = None
    added: list[int] = field(default_factory=list)  # tokens after the tokens of `base`, the answer's included
    asked: str = ""  # the rendering that the answer continues; "" if the tokens are for another text
    said: str = ""  # the answer as the model wrote it
    written: str = ""  # as the template writes it (Ledger.note_rendered); "" if unknown
    pictures: "tuple[SeenPicture, ...]" = ()

    @property
    def asking(self) -> list[dict[str, Any]]:
        """The question as messages."""
        return asking(self.parent, self.question, self.pictures)

    @property
    def results(self) -> list[tuple[ToolCall, str]]:
        """The calls that the question answers, with their results; empty if the question is the user's."""
        return _results(self.parent, self.question)

    @property
    def title(self) -> str:
        """The question on one line."""
        told = ", ".join(f"{call.name}: {result}" for call, result in self.results)
        shown_pictures = [f"[{picture.title}]" for picture in self.pictures]
        return " ".join([*shown_pictures, *(self.question if isinstance(self.question, str) else told).split()])

    @property
    def answer_title(self) -> str:
        """The answer's text and the names of its calls on one line."""
        return " ".join([*self.answer.text.split(), *(f"{call.name}(...)" for call in self.answer.calls)])

    @property
    def ids(self) -> list[int]:
        """Tokens of the whole conversation up to here."""
        parts: list[list[int]] = []
        turn: Turn | None = self
        while turn is not None:
            parts.append(turn.added)
            turn = turn.base
        return [i for part in reversed(parts) for i in part]

    def path(self) -> list["Turn"]:
        """The turns from the first to this one."""
        turns: list[Turn] = []
        turn: Turn | None = self
        while turn is not None:
            turns.append(turn)
            turn = turn.parent
        return turns[::-1]


def asking(parent: Turn | None, question: Question, pictures: "Sequence[SeenPicture]" = ()) -> list[dict[str, Any]]:
    """A question after `parent`, as OpenAI messages; its pictures come before its text."""
    if isinstance(question, str):
        return [{"role": "user", "content": joined([*map(part_of, pictures)], question)}]
    return [
        {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": result}
        for call, result in _results(parent, question)
    ]


def _results(parent: Turn | None, question: Question) -> list[tuple[ToolCall, str]]:
    if isinstance(question, str) or parent is None:
        return []
    return list(zip(parent.answer.calls, question, strict=True))


class Turns:
    """All turns, the named branches, and the current branch. A branch is stored as its last turn."""

    def __init__(self) -> None:
        self.all: list[Turn] = []
        self.branches: dict[str, Turn | None] = {MAIN: None}
        self.branch = MAIN

    @property
    def head(self) -> Turn | None:
        """The last turn of the current branch."""
        return self.branches[self.branch]

    @head.setter
    def head(self, turn: Turn | None) -> None:
        self.branches[self.branch] = turn

    @property
    def path(self) -> list[Turn]:
        return self.head.path() if self.head else []

    def add(
        self,
        parent: Turn | None,
        question: Question,
        answer: SaidAnswer,
        pictures: "Sequence[SeenPicture]" = (),
    ) -> Turn:
        """Adds a turn, which becomes the head."""
        turn = Turn(len(self.all) + 1, parent, question, answer, pictures=tuple(pictures))
        self.all.append(turn)
        self.head = turn
        return turn

    def nth(self, n: int) -> Turn:
        """The turn with this number, on any branch."""
        if not 1 <= n <= len(self.all):
            there = f"turns 1 to {len(self.all)}" if self.all else "no turns yet"
            raise UsageError(f"there is no turn {n}: this conversation has {there}.", remedy=Remedy.LIST_TURNS)
        return self.all[n - 1]

    def fork(self, name: str) -> None:
        """Begins a branch at the head and switches to it."""
        if name in self.branches:
            raise UsageError(f"there is a branch {name} already.", remedy=Remedy.SWITCH_BRANCH, value=name)
        if not name.isprintable() or any(c.isspace() for c in name) or name.isdigit():
            raise UsageError(f"a branch cannot be called {name!r}: use one word that is not a number.")
        self.branches[name] = self.head
        self.branch = name

    def switch(self, name: str) -> None:
        """Switches to a branch. A number: to that turn, on the branch that ends there or on a new one."""
        if name in self.branches:
            self.branch = name
        elif name.isdecimal() and 1 <= int(name) <= len(self.all):
            turn = self.nth(int(name))
            ending = (branch for branch, head in self.branches.items() if head is turn)
            own = f"turn-{turn.number}"
            self.branch = next(ending, own if own not in self.branches else f"{own}.{len(self.branches)}")
            self.head = turn
        else:
            known = ", ".join(self.branches)
            raise UsageError(f"there is no branch {name}. There are: {known}.", remedy=Remedy.FORK_BRANCH, value=name)

    def lines(self, width: int = 80) -> list[str]:
        """The tree as text, one line per turn: number, beginnings of question and answer, branches that end there.

        width: characters per line, at most; more where branches need them.
        """
        children: dict[int, list[Turn]] = {}
        for turn in self.all:
            children.setdefault(turn.parent.number if turn.parent else 0, []).append(turn)
        shown: list[str] = []
        on_path = {turn.number for turn in self.path}

        def ends(turn: Turn | None) -> str:
            here = (name for name, head in self.branches.items() if head is turn)
            names = ["*" * (name == self.branch) + name for name in here]
            return f"  [{', '.join(names)}]" if names else ""

        waiting = [(turn, 0) for turn in reversed(children.get(0, []))]
        digits = len(str(len(self.all)))
        while waiting:
            turn, depth = waiting.pop()
            mark = ">" if turn.number in on_path else " "
            start, end = f"{mark} {turn.number:{digits}} {'  ' * depth}", ends(turn)
            room = max(24, width - len(start) - len(end) - len(_ARROW))
            question = _cut(turn.title, max(room // 2, room - len(turn.answer_title)))
            answer = _cut(turn.answer_title, room - len(question))
            shown.append(f"{start}{question}{_ARROW if answer else ''}{answer}{end}")
            below = children.get(turn.number, [])
            deeper = depth + (len(below) > 1)
            waiting += [(child, deeper) for child in reversed(below)]
        if ends(None):
            shown.insert(0, f"  {'-':>{digits}} {'the beginning' if shown else 'no turns yet'}{ends(None)}")
        return shown

    # --- as JSON ---
    def to_json(self) -> dict[str, Any]:
        """The turns for `from_json`. Raises StateError if their pictures are too large for a file."""
        values = {
            "turns": [_turn_json(turn) for turn in self.all],
            "branches": {name: head.number if head else 0 for name, head in self.branches.items()},
            "branch": self.branch,
        }
        pictures = saved_pictures(self.all)
        return {**values, "pictures": pictures} if pictures else values

    @classmethod
    def from_json(cls, values: Any, n_vocab: int, reader: "PictureReader | None" = None) -> "Turns":
        """reader: reads the turns' pictures.

        Raises KeyError, TypeError or ValueError if these are not the turns of a conversation, and StateError if the
        model cannot read a picture.
        """
        turns = cls()
        pictures = read_pictures(values.get("pictures", {}), reader)
        for turn in _read_turns(values["turns"], turns.all, n_vocab, pictures):
            turns.all.append(turn)
        branches = dict(values["branches"])
        if not branches or not all(type(n) is int and 0 <= n <= len(turns.all) for n in branches.values()):
            raise ValueError("branches")
        turns.branches = {str(name): turns.all[n - 1] if n else None for name, n in branches.items()}
        turns.branch = str(values["branch"])
        if turns.branch not in turns.branches:
            raise ValueError("branch")
        return turns


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 3] + "..."


def _turn_json(turn: Turn) -> dict[str, Any]:
    # every rendering begins with the one before: only the new part is written
    base = turn.base.asked if turn.base else ""
    differ = (i for i, (a, b) in enumerate(zip(base, turn.asked, strict=False)) if a != b)
    same = next(differ, min(len(base), len(turn.asked)))
    answer = turn.answer
    values = {
        "parent": turn.parent.number if turn.parent else 0,
        "base": turn.base.number if turn.base else 0,
        "user": turn.question if isinstance(turn.question, str) else "",
        "answer": answer.text,
        "added": turn.added,
        "asked": [same, turn.asked[same:]],
        "said": turn.said,
    }
    # fields of few turns
    more = {
        "results": None if isinstance(turn.question, str) else [*turn.question],
        "thoughts": [answer.thoughts, answer.n_thought] if answer.thoughts else None,
        "calls": [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in answer.calls],
        "written": turn.written,
        "pictures": [picture.name.hex() for picture in turn.pictures],
    }
    return values | {name: value for name, value in more.items() if value}


def _read_turns(
    values: Iterable[Any], before: list[Turn], n_vocab: int, read: "Mapping[str, SeenPicture]"
) -> Iterator[Turn]:
    """Turns refer to earlier ones only, so nothing can be its own ancestor."""
    for number, item in enumerate(values, 1):
        parent, base, added = item["parent"], item["base"], item["added"]
        if not all(type(n) is int and 0 <= n < number for n in (parent, base)):
            raise ValueError("parent")
        if not isinstance(added, list) or not all(is_token(t, n_vocab) for t in added):
            raise ValueError("added")
        said, rest, written = _texts(item["said"], item["asked"][1], item.get("written", ""))
        root, above = before[base - 1] if base else None, before[parent - 1] if parent else None
        asked = (root.asked if root else "")[: int(item["asked"][0])] + rest
        pictures = tuple(read[name] for name in item.get("pictures", []))
        question, answer = _read_question(item, above), _read_answer(item)
        yield Turn(number, above, question, answer, root, added, asked, said, written, pictures)


def _read_question(item: Any, parent: Turn | None) -> Question:
    results = item.get("results")
    if results is None:
        return _texts(item["user"])[0]
    if not isinstance(results, list) or not results or parent is None or len(results) != len(parent.answer.calls):
        raise ValueError("results")
    return _texts(*results)


def _read_answer(item: Any) -> SaidAnswer:
    thoughts, n_thought = item.get("thoughts", ("", 0))
    if type(n_thought) is not int or n_thought < 0:
        raise ValueError("thoughts")
    calls = (ToolCall(*_texts(call["id"], call["name"], call["arguments"])) for call in item.get("calls", ()))
    text, thoughts = _texts(item["answer"], thoughts)
    return SaidAnswer(text, thoughts, tuple(calls), n_thought)


def _texts(*values: Any) -> tuple[str, ...]:
    """The values. Raises TypeError if one is not a string."""
    if not all(isinstance(value, str) for value in values):
        raise TypeError("text")
    return values


def is_token(value: Any, n_vocab: int) -> bool:
    """Whether a value is a token of the vocabulary or, below 0, of a picture."""
    return type(value) is int and -(1 << 31) <= value < n_vocab
