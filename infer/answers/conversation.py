"""A chat that never processes a prompt twice, whatever is taken back, edited or started again.

Every turn knows the tokens of the conversation up to it, the answers' as the model drew them. For the next answer the
whole conversation is rendered by the model's template. If that continues what an earlier turn stands for (see
ledger.py), its tokens and the rest are the prompt (a template that rewrites history, say without the thoughts of the
last answer, costs only the tail); otherwise the rendering is encoded as a whole. The sequence then resumes at the
longest beginning of the prompt that is known from this or any other branch.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybrid.quant.ggml.errors import Remedy, StateError, UsageError

from ..progress import TokenProgress
from ..text.encode import rendered_ids
from .ledger import Encoded, Ledger
from .message_ends import message_ends
from .turns import Turn, Turns

if TYPE_CHECKING:
    from .. import Model
    from ..text.chat_template import ChatTemplate
    from .constraints import Constraint
    from .generate import GenerationResult
    from .sampling import SamplingParams

Message = dict[str, str]
SAVED_CHECKPOINTS = 256 << 20  # bytes of checkpoints and other branches in a saved chat, at most
MOST_BOUNDARIES = 32  # messages that get a checkpoint when a whole conversation is encoded: the first, and the last


@dataclass
class Stats:
    """What the conversation cost so far, in tokens and seconds."""

    n_prompt: int = 0
    n_reused: int = 0
    n_generated: int = 0
    prompt_seconds: float = 0.0
    gen_seconds: float = 0.0


@dataclass
class Conversation:
    """A tree of turns, and the sequence that holds one of its branches.

    template  None: plain completion, messages are simply joined
    system    what the model is told before the first message
    speculate guess tokens from the text so far: the same answers in fewer passes
    keep      tokens of the system message that stay when the context is full (see context_shift.kept_tokens) and older
              ones leave it; None: the conversation ends there
    form      of every answer

    Behind a shift the sequence holds less than the conversation. `held` is then the turn it stands for, but for the
    tokens `unseen` at its end; another branch that has outgrown the context is processed again as far as it fits.
    """

    model: "Model"
    params: "SamplingParams"
    template: "ChatTemplate | None" = None
    max_tokens: int = -1
    stop: list[str] = field(default_factory=list)
    system: str = ""
    speculate: bool = False
    keep: int | None = None
    form: "Constraint | None" = None
    held: Turn | None = None
    unseen: list[int] = field(default_factory=list)
    turns: Turns = field(default_factory=Turns)
    stats: Stats = field(default_factory=Stats)
    result: "GenerationResult | None" = None

    def __post_init__(self) -> None:
        from .sampling import Sampler

        self.seq = self.model.sequence()
        self.sampler = Sampler(self.params, self.model.n_vocab, self.model.tokenizer)
        self.ledger = Ledger(self.model.tokenizer)

    @property
    def messages(self) -> list[Message]:
        """The current branch, as templates want it."""
        return self._messages(self.turns.head)

    def _messages(self, head: Turn | None) -> list[Message]:
        messages = [{"role": "system", "content": self.system}] if self.system else []
        for turn in head.path() if head else []:
            messages += [{"role": "user", "content": turn.user}, {"role": "assistant", "content": turn.answer}]
        return messages

    # --- text and tokens ---
    def render(self, messages: list[Message], add_generation_prompt: bool = True) -> str:
        """Messages as the text that the next answer continues."""
        if self.template is None:
            return "".join(m["content"] for m in messages)
        return self.template.render(messages, add_generation_prompt=add_generation_prompt)

    def encode(self, text: str) -> list[int]:
        """Token ids of a whole rendering; a BOS that the template writes itself is not added again."""
        tok = self.model.tokenizer
        return tok.encode(text) if self.template is None else rendered_ids(tok, text)

    def prompt(self, head: Turn | None, text: str) -> tuple[Turn | None, Encoded]:
        """The tokens of `text`, and the turn up to `head` that they begin with, if it is one of those."""
        encoded = self.ledger.find(text, plain=self.template is None)
        turns = reversed(head.path() if head and encoded.known else [])
        return next((turn for turn in turns if turn.ids == encoded.known), None), encoded

    def boundaries(self, messages: list[Message], text: str, encoded: Encoded) -> list[int]:
        """Where in the encoded conversation its messages end."""
        if self.template is None:
            return []
        return message_ends(
            self.model.tokenizer,
            lambda some: self.render(list(some), add_generation_prompt=False),
            messages,
            text,
            encoded,
            MOST_BOUNDARIES,
        )

    # --- talking ---
    def answer(self, text: str, progress: TokenProgress | None = None) -> Iterator[str]:
        """Adds the user's `text` and yields the answer as it is generated; after an error nothing stays."""
        yield from self._generate(self.turns.head, text, progress)

    def regenerate(self, progress: TokenProgress | None = None) -> Iterator[str]:
        """Yields another answer to the last question."""
        last = self.turns.head
        if last is None:
            raise UsageError("there is no answer yet. Write something first.")
        yield from self._generate(last.parent, last.user, progress)

    def edit(self, n: int, text: str, progress: TokenProgress | None = None) -> Iterator[str]:
        """Asks `text` instead of the n-th question and yields the answer; what followed stays a branch of the tree."""
        yield from self._generate(self.turns.nth(n).parent, text, progress)

    def undo(self) -> Turn:
        """Takes the last turn back and returns it."""
        last = self.turns.head
        if last is None:
            raise UsageError("there is nothing to take back.")
        self.turns.head = last.parent
        return last

    def _generate(self, parent: Turn | None, question: str, progress: TokenProgress | None) -> Iterator[str]:
        """Answers `question` after `parent`."""
        from .generate import generate

        messages = [*self._messages(parent), {"role": "user", "content": question}]
        text = self.render(messages)
        base, encoded = self.prompt(parent, text)
        whole = encoded.ids
        added = encoded.rest if base else whole
        kept = self._kept(messages, whole)
        prompt = self._resumed(base, added, whole, kept)
        reused = len(self.seq.tokens)
        shorter = reused + len(prompt) < len(whole)
        self.held = None
        run = generate(
            self.seq,
            prompt,
            self.sampler,
            max_tokens=self.max_tokens,
            stop=self.stop,
            progress=progress,
            boundaries=[] if base or shorter else self.boundaries(messages, text, encoded),
            speculate=self.speculate,
            keep=kept,
            constraint=None if self.form is None else self.form.copy(),
        )
        try:
            for piece in run:
                yield piece.text
        finally:
            run.close()
            result = run.result
            if not prompt or result.prompt_tokens:  # otherwise the prompt was interrupted: no answer
                self._note(parent, question, result, reused)
                turn = self.turns.head
                assert turn is not None
                turn.base, turn.added = base, [*added, *result.ids]
                # a stop text is among the tokens but not part of the answer
                turn.asked, turn.said = (text if result.stop is None else ""), result.text
                self.ledger.note_answer(text, whole, result, plain=self.template is None)
                if shorter or result.discarded:
                    self.held, self.unseen = turn, list(result.pending)

    def _kept(self, messages: list[Message], ids: list[int]) -> int | None:
        """How many tokens at the beginning of `ids`, the encoded conversation, never leave the context."""
        if self.keep is None:
            return None
        from ..memory.prefix_tree import common_beginning
        from .context_shift import kept_tokens

        told = self.encode(self.render(messages[: bool(self.system)], add_generation_prompt=False))
        return kept_tokens(self.model, ids[: common_beginning(told, ids)], self.keep)

    def _resumed(self, base: Turn | None, added: list[int], whole: list[int], kept: int | None) -> list[int]:
        """Let the sequence hold as much of `whole` as is known; returns what is left to be processed.

        base, added  the turn that `whole` begins with, if there is one, and what follows it
        """
        if base is not None and base is self.held:
            return [*self.unseen, *added]
        n_ctx = self.model.n_ctx
        if len(whole) >= n_ctx:
            from .context_shift import shortened

            left = shortened(whole, kept, n_ctx) if kept is not None else []
            if len(left) < (kept or 0) + (len(added) if base else 1):
                raise UsageError(
                    f"the conversation has {len(whole)} tokens, the context {n_ctx}.",
                    remedy=Remedy.CONTEXT_SHIFT if self.keep is None else Remedy.SHORTER_CONVERSATION,
                )
            whole = left
        return whole[self.seq.resume(whole) :]

    def _note(self, parent: Turn | None, question: str, result: "GenerationResult", reused: int) -> None:
        # sentencepiece writes a space before the first word, and so do templates
        answer = result.text if self.template is None else result.text.lstrip()
        self.turns.add(parent, question, answer)
        self.result = result
        self.stats.n_reused += reused
        self.stats.n_prompt += result.prompt_tokens
        self.stats.n_generated += len(result.ids)
        self.stats.prompt_seconds += result.prompt_seconds
        self.stats.gen_seconds += result.gen_seconds

    # --- keeping ---
    def clear(self) -> None:
        """Forgets everything."""
        self.turns, self.held = Turns(), None
        self.ledger.clear()
        self.seq.clear()

    def save(self, path: Path, checkpoints: int = SAVED_CHECKPOINTS) -> int:
        """Writes the conversation with the state of the model: going on from it processes nothing again."""
        chat = {**self.turns.to_json(), "system": self.system}
        if self.held is not None:
            chat |= {"held": self.held.number, "unseen": self.unseen}
        return self.seq.save(path, {"chat": chat, "sampler": self.sampler.state()}, checkpoints=checkpoints)

    def load(self, path: Path) -> None:
        """Replaces the conversation by a saved one. StateError when it is another model's, or not a chat."""
        self.seq = self.model.restore(path, self.seq)
        extra = self.seq.extra
        chat = extra.get("chat")
        if not isinstance(chat, dict):
            self.clear()
            raise StateError(f"{path} holds a completion, not a chat.", remedy=Remedy.STATE_IS_COMPLETION, value=path)
        try:
            self.turns = Turns.from_json(chat, self.model.n_vocab)
            self.system = str(chat["system"])
            self.held, self.unseen = self._read_held(chat)
            self._know_turns()
            if "sampler" in extra:
                self.sampler.set_state(extra["sampler"])
        except (KeyError, TypeError, ValueError, IndexError):
            self.clear()
            raise StateError(f"{path} is damaged: its chat has no turns. Start a new one.") from None
        except StateError:
            self.clear()
            raise

    def _know_turns(self) -> None:
        self.ledger.clear()
        for turn in self.turns.all:
            if turn.asked:
                self.ledger.note(turn.asked, turn.said, turn.ids, plain=self.template is None)

    def _read_held(self, chat: dict[str, Any]) -> tuple[Turn | None, list[int]]:
        """`held` and `unseen` of a saved chat; ValueError when they are not valid."""
        number, unseen = chat.get("held", 0), chat.get("unseen", [])
        if type(number) is not int or not 0 <= number <= len(self.turns.all):
            raise ValueError("held")
        if not isinstance(unseen, list) or not all(type(t) is int and 0 <= t < self.model.n_vocab for t in unseen):
            raise ValueError("unseen")
        return (self.turns.all[number - 1] if number else None), unseen
