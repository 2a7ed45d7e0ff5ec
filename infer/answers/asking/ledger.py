"""Keeps sampled tokens: maps the text of an earlier answer to the tokens that the model sampled for it.

A client sends an answer back as text. Encoded again, it may give other tokens (sampled text, tool calls and constrained
text rarely have the tokens that an encoder would choose), and a recurrent state is lost at the first token that
differs. So the ledger notes (text before, answer) -> tokens of both, and encodes a text as the tokens of its longest
known prefix, followed by the encoding of the rest. It knows texts, not conversations. Texts have an owner, as in the
prompt cache (memory/prefix_tree.py): no owner's result depends on another's texts.

Two kinds of text are kept apart: text rendered by a chat template, where special tokens count, and `plain` text. The
rest after an answer must have the tokens that it has in the whole text:

- In rendered text it may begin with a control token, across which nothing merges. Whitespace around the answer may then
differ, since templates trim it or add some, and the sampled tokens stand.
- Otherwise the text must be the same, and a token of the whole text's encoding must begin where the answer ends.
"""

import re
import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from sys import getsizeof
from typing import TYPE_CHECKING, Any

from ...faults import SidePath
from ...memory.pins import OWNER_BYTES
from ...text.encode import rendered_ids
from .radix_tree import Node, RadixTree, Run

if TYPE_CHECKING:
    from ...text.tokenizer import Tokenizer
    from ..drawing.drawing import GenerationResult

LEDGER = SidePath("the ledger of drawn answers")
WRITTEN = SidePath("how the template writes an answer that comes back")

BUDGET = 64 << 20  # bytes
ENTRY_BYTES = 600  # of an entry beside its answer: its entries in dictionaries
MOST_TRIES = 64  # known prefixes that are tried, the longest first
MOST_ENCODED = 8  # of those are encoded, to see whether a token begins at their end
LONGEST_CONTROL = 256  # characters, enough to see a control token
_SPACE = re.compile(r"\s*")


@dataclass(frozen=True)
class Encoded:
    """A text as tokens: `known` for an earlier answer and all before it, `rest` for text[at:]."""

    known: list[int]
    rest: list[int]
    at: int = 0

    @property
    def ids(self) -> list[int]:
        return [*self.known, *self.rest]


@dataclass(eq=False)
class _Entry:
    """An answer.

    text          node of the text before it, without the whitespace around that
    begin, space  that whitespace: before the text, and between it and the answer
    said          the sampled answer; key: the part of it that is looked up
    tokens        node of the tokens of both
    """

    text: Node[str]
    begin: str
    space: str
    said: str
    key: str
    tokens: "Node[array[int]]"

    @property
    def nbytes(self) -> int:
        return ENTRY_BYTES + getsizeof(self.said)


class Ledger:
    """At most `budget` bytes of texts and tokens, each prefix once; the least recently used entries are dropped first.

    Thread-safe.
    """

    def __init__(self, tokenizer: "Tokenizer", budget: int = BUDGET) -> None:
        self.tokenizer, self.budget = tokenizer, budget
        self._lock = threading.Lock()
        self.n_noted = 0  # answers so far: whether there is something to save
        self.clear()

    def clear(self) -> None:
        """Forgets everything."""
        with self._lock:
            self._texts: RadixTree[str] = RadixTree("")
            self._tokens: RadixTree[array[int]] = RadixTree(array("i"))
            self._answers: dict[Node[str], dict[str, _Entry]] = {}  # by the text before, then by key
            self._used: OrderedDict[_Entry, None] = OrderedDict()  # least recently used first
            self._n_said = 0

    def __len__(self) -> int:
        return len(self._used)

    @property
    def nbytes(self) -> int:
        return self._texts.nbytes + self._tokens.nbytes + self._n_said

    # --- from texts to tokens ---
    def encode(self, text: str, *, plain: bool = False) -> list[int]:
        """The tokens of a whole text."""
        return self.find(text, plain=plain).ids

    def find(self, text: str, *, plain: bool = False, peek: bool = False, owner: bytes = b"") -> Encoded:
        """A text as tokens: its longest known prefix, and the encoded rest; everything is encoded if no prefix fits.

        peek: the prefix does not count as used; owner: at most 16 bytes.
        """
        found = LEDGER.run(lambda: self._find(text, plain, peek, owner), lambda: None)
        return self.anew(text, plain=plain) if found is None else found

    def anew(self, text: str, *, plain: bool = False) -> Encoded:
        """A text as tokens, without known prefixes."""
        return Encoded([], self._encode(text, plain))

    def _find(self, text: str, plain: bool, peek: bool, owner: bytes) -> Encoded:
        with self._lock:
            found = sorted(self._beginnings(text, plain, owner), key=lambda beginning: -beginning[0])
        whole: list[int] | None = None
        n_encoded = 0
        for at, exact, entry in found[:MOST_TRIES]:
            rest = None if plain else self._apart(text, at)
            if rest is None and exact is not None and n_encoded < MOST_ENCODED:
                at = exact
                if at == len(text):
                    rest = self._encode(text, plain, at)
                else:
                    whole = whole or self._encode(text, plain)
                    rest = self._within(text, at, plain, whole)
                    n_encoded += 1
            known = self._ids(entry, peek) if rest is not None else None
            if rest is not None and known is not None:
                return Encoded(known, rest, at)
        return Encoded([], whole or self._encode(text, plain))

    def _encode(self, text: str, plain: bool, at: int = 0) -> list[int]:
        """The tokens of text[at:]; a token begins there."""
        if plain:
            return self.tokenizer.encode(text[at:], continues=at > 0)
        return rendered_ids(self.tokenizer, text, at)

    def _beginnings(self, text: str, plain: bool, owner: bytes) -> Iterator[tuple[int, int | None, _Entry]]:
        """The known answers that a text continues, each as: where the rest begins, after whitespace; where the answer
        ends if all text up to there is the same, else None; the entry.
        """
        kind = _kind(plain, owner)
        begin = 0 if plain else _space(text, 0)
        for node, n in self._texts.path(kind + text[begin:]):
            end = begin + n - len(kind)
            answers = self._answers.get(node)
            if answers is None:
                continue
            at = end if plain else _space(text, end)
            for key, entry in answers.items():
                if text.startswith(key, at):
                    after = at + len(key) if plain else _space(text, at + len(key))
                    drawn = entry.space + entry.said
                    same = entry.begin == text[:begin] and text.startswith(drawn, end)
                    yield after, end + len(drawn) if same else None, entry

    def _apart(self, text: str, at: int) -> list[int] | None:
        """The tokens of text[at:] if it begins with a control token, else None."""
        tok = self.tokenizer
        first = tok.encode(text[at : at + LONGEST_CONTROL], add_special=False, parse_special=True, continues=True)
        if not first or not tok.is_control(first[0]):
            return None
        # the unknown token may also be a control token, but its name is not what the text has there
        if not text.startswith(tok.piece(first[0]).decode("utf-8", "replace"), at):
            return None
        return self._encode(text, False, at)

    def _within(self, text: str, at: int, plain: bool, whole: list[int]) -> list[int] | None:
        """The tokens of the whole text from text[at:] on; None if no token begins there."""
        before = self._encode(text[:at], plain)
        n = len(before) - len(self._encode(text, plain, len(text)))  # without EOS, which ends every text in some models
        return whole[n:] if whole[:n] == before[:n] else None

    def _ids(self, entry: _Entry, peek: bool) -> list[int] | None:
        """The entry's tokens; None if it was dropped meanwhile."""
        with self._lock:
            if entry not in self._used:
                return None
            if not peek:
                self._used.move_to_end(entry)
            return entry.tokens.whole().tolist()

    # --- noting ---
    def note_answer(
        self,
        before: str,
        ids: Sequence[int],
        result: "GenerationResult",
        *,
        plain: bool = False,
        owner: bytes = b"",
    ) -> None:
        """Notes an answer, ended for whatever reason, to the text `before` with the tokens `ids`."""
        LEDGER.run(lambda: self._note_answer(before, ids, result, plain, owner), self.clear)

    def _note_answer(
        self, before: str, ids: Sequence[int], result: "GenerationResult", plain: bool, owner: bytes
    ) -> None:
        if result.stop is not None:
            return  # there are more tokens than text
        self.note(before, result.text, [*ids, *result.ids], plain=plain, owner=owner)
        if any(map(self.tokenizer.is_control, result.ids)):  # the text lacks them; a template may write them again
            stream = self.tokenizer.stream()
            whole = "".join(map(stream.push, result.ids)) + stream.flush()
            self.note(before, whole, [*ids, *result.ids], plain=plain, owner=owner)

    def note_rendered(
        self, before: str, rendered: str, ids: Sequence[int], result: "GenerationResult", owner: bytes = b""
    ) -> str:
        """Notes an answer that the model has ended and that has calls or thoughts, with its text as the template will
        render it in later prompts; the sampled tokens stand for that text.

        before, ids  the rendered prompt, and its tokens
        rendered     the conversation with the answer as its last message, by the same template

        Returns the text noted as the answer; "" if it cannot be found: the template changes `before`, as templates do
        that leave thoughts out, or writes no token that ends an answer.
        """
        return LEDGER.run(lambda: self._note_rendered(before, rendered, ids, result, owner), self._forget_all)

    def _forget_all(self) -> str:
        """Clears the ledger after a fault, which may have left the trees half changed."""
        self.clear()
        return ""

    def _note_rendered(
        self, before: str, rendered: str, ids: Sequence[int], result: "GenerationResult", owner: bytes
    ) -> str:
        written = _behind(self.tokenizer, before, rendered)
        if result.reason != "eos" or result.repeated or not written.strip() or written.strip() == result.text.strip():
            return ""  # the template ends an answer that was cut off and leaves a repeated call out, the tokens do not
        self.note(before, written, [*ids, *result.ids], owner=owner)
        return written

    def note(self, before: str, said: str, ids: Sequence[int], *, plain: bool = False, owner: bytes = b"") -> None:
        """Notes that `ids` stand for the text `before` and the answer `said`. Tokens for the same texts are replaced.

        An answer without text is not noted, whatever tokens it has: they would be found for `before` alone.
        """
        if not said:
            return
        text = before if plain else before.strip()
        if text or plain:
            begin, _, space = before.partition(text) if text else ("", "", "")
            with self._lock:
                node, ends = self._texts.add(_kind(plain, owner) + text), self._tokens.add(array("i", ids))
                self._enter(_Entry(node, begin, space, said, said if plain else said.strip(), ends))
                self._trim()
                self.n_noted += 1

    def _enter(self, entry: _Entry) -> None:
        """Adds an entry, which becomes an owner of its nodes in the caller's place."""
        answers = self._answers.setdefault(entry.text, {})
        if (old := answers.get(entry.key)) is not None:
            self._forget(old)
            answers = self._answers.setdefault(entry.text, {})
        answers[entry.key] = entry
        self._used[entry] = None
        self._n_said += entry.nbytes

    def _forget(self, entry: _Entry) -> None:
        del self._used[entry]
        answers = self._answers[entry.text]
        del answers[entry.key]
        if not answers:
            del self._answers[entry.text]
        self._n_said -= entry.nbytes
        self._texts.drop(entry.text)
        self._tokens.drop(entry.tokens)

    def _trim(self) -> None:
        while self.nbytes > self.budget and self._used:
            self._forget(next(iter(self._used)))

    # --- keeping ---
    def entries(self) -> dict[str, Any]:
        """Everything, as JSON for `load`: nodes of both trees as [number of the parent, run], 0 the root; answers as
        [node of the text before, whitespace around that, answer, node of the tokens].
        """
        with self._lock:  # runs never change: they become lists after the lock is released
            texts, text_of = _numbered(self._texts)
            tokens, token_of = _numbered(self._tokens)
            answers = [[text_of[e.text], [e.begin, e.space], e.said, token_of[e.tokens]] for e in self._used]
        runs = [[parent, run.tolist()] for parent, run in tokens]
        return {"texts": [[parent, run] for parent, run in texts], "tokens": runs, "answers": answers}

    def load(self, entries: Any) -> None:
        """Replaces the contents by the `entries` of another ledger for the same vocabulary. Raises ValueError for
        anything else, and changes nothing then.
        """
        other = Ledger(self.tokenizer, self.budget)
        try:
            other._read(entries)
        except (KeyError, TypeError, IndexError, OverflowError) as error:
            raise ValueError(f"no entries of a ledger: {error!r}") from None
        with self._lock:
            self._texts, self._tokens, self._answers = other._texts, other._tokens, other._answers
            self._used, self._n_said = other._used, other._n_said

    def _read(self, entries: Any) -> None:
        n_vocab = self.tokenizer.n_vocab

        def is_token(value: object) -> bool:
            return type(value) is int and -(1 << 31) <= value < n_vocab  # below 0: of pictures

        texts, tokens, kinds = [self._texts.root], [self._tokens.root], [""]
        for parent, run in entries["texts"]:
            if not isinstance(run, str) or not run:
                raise ValueError("a text")
            kinds.append(kinds[_index(parent, texts)] or run[0])
            texts.append(self._texts.add(run, texts[parent]))
        for parent, run in entries["tokens"]:
            if not isinstance(run, list) or not run or not all(map(is_token, run)):
                raise ValueError("tokens")
            tokens.append(self._tokens.add(array("i", run), tokens[_index(parent, tokens)]))
        for text, (begin, space), said, ids in entries["answers"]:
            if not all(isinstance(part, str) for part in (begin, space, said)) or (begin + space).strip():
                raise ValueError("an answer")
            if kinds[_index(text, texts)] not in _KINDS or not _index(ids, tokens):
                raise ValueError("an answer to nothing")
            node, ends = self._texts.add("", texts[text]), self._tokens.add(array("i"), tokens[ids])
            key = said if kinds[text] in _PLAIN else said.strip()
            self._enter(_Entry(node, begin, space, said, key, ends))
        for node in texts[1:]:
            self._texts.drop(node)
        for ids_node in tokens[1:]:
            self._tokens.drop(ids_node)
        self._trim()


def _behind(tokenizer: "Tokenizer", before: str, rendered: str) -> str:
    """The part of `rendered` after `before`, whose trailing whitespace may be missing, without the token that ends an
    answer; "" if `rendered` does not begin with `before`, or has no such token at its end.
    """
    text = before.rstrip()
    if not text or not rendered.startswith(text):
        return ""
    written = rendered[len(before) if rendered.startswith(before) else len(text) :].rstrip()
    ids = tokenizer.encode(written[-LONGEST_CONTROL:], add_special=False, parse_special=True, continues=True)
    if not ids or not tokenizer.is_eog(ids[-1]):
        return ""  # the answer's tokens do not have another ending
    return written.removesuffix(tokenizer.piece(ids[-1]).decode("utf-8", "replace"))


# first characters of texts in the tree, which keep the kinds apart: rendered, plain, and both with an owner
_KINDS = ("r", "p", "R", "P")
_PLAIN = ("p", "P")


def _kind(plain: bool, owner: bytes) -> str:
    """The first characters of such texts; the same number for owners of any length."""
    return _KINDS[2 + plain] + owner.ljust(OWNER_BYTES, b"\0").hex() if owner else _KINDS[plain]


def _space(text: str, at: int) -> int:
    """Index after the whitespace that begins at `at`."""
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def _numbered(tree: "RadixTree[Run]") -> "tuple[list[tuple[int, Run]], dict[Node[Run], int]]":
    """(number of the parent, run) of each node but the root, and their numbers, from 1; the root is 0."""
    numbers, nodes = {tree.root: 0}, []
    for number, node in enumerate(tree, 1):
        assert node.parent is not None
        nodes.append((numbers[node.parent], node.run))
        numbers[node] = number
    return nodes, numbers


def _index(value: Any, items: Sequence[object]) -> int:
    """`value`, an index into the items. Raises ValueError if it is not."""
    if type(value) is not int or not 0 <= value < len(items):
        raise ValueError("a number of a node")
    return value
