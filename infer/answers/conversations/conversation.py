"""A chat that never processes a prompt twice, whatever is taken back, edited or started again.

Every turn knows the tokens of the conversation up to it, with the answers' as the model sampled them. For the next
answer, the model's template renders the whole conversation. If the rendering continues the text of an earlier turn (see
ledger.py), that turn's tokens and the encoded rest are the prompt; a template that rewrites history, say without the
thoughts of the last answer, costs only the tail. Otherwise the whole rendering is encoded. The sequence then resumes at
the longest prefix of the prompt that is known from this or any other branch.

An answer may be tool calls: their results are then the next question.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybrid.quant.ggml.errors import Remedy, StateError, UsageError

from ...progress import PictureProgress, TokenProgress
from ...text.encode import rendered_ids
from ..asking.asker import Asker, pictures_of
from ..asking.ledger import Encoded
from ..asking.reading import Reading, SaidAnswer
from ..chat.dialect import NOTHING, AnswerRules, ChatOptions, Exchange
from ..chat.picture_parts import plain_content
from ..chat.prompting import AUTO, ChatPrompt, message_of
from ..chat.reader import AnswerPart
from ..chat.tools import ToolCall
from .chat_file import SAVED_CHECKPOINTS, SavedChat, know_turns
from .turns import Question, Turn, Turns, asking

if TYPE_CHECKING:
    from ... import LoadedModel
    from ...text.chat_template import ChatTemplate
    from ..asking.eyes import PictureReader, SeenPicture
    from ..constraints import Constraint
    from ..drawing.drawing import GenerationResult
    from ..sampling import SamplingParams

Message = dict[str, Any]
MOST_BOUNDARIES = 32  # messages that get a checkpoint when a whole conversation is encoded: the first, and the last


@dataclass
class Stats:
    """Costs of the conversation so far, in tokens and seconds."""

    n_prompt: int = 0
    n_reused: int = 0
    n_generated: int = 0
    n_thought: int = 0  # of those generated
    n_calls: int = 0
    prompt_seconds: float = 0.0
    gen_seconds: float = 0.0


@dataclass
class Conversation:
    """A tree of turns, and the sequence that holds one of its branches.

    template  None: plain completion, messages are concatenated
    system    text of the system message
    speculate guess tokens: the same answers in fewer passes
    keep      tokens of the system message that stay when the context is full (see context_shift.kept_tokens) and older
              ones leave it; None: the conversation ends there
    form      of every answer's text, after its thoughts; calls have none
    eyes      reads the pictures of its questions; None: it has none
    asked     options of its answers: the tools that they may call, thoughts. May change between answers
    looking   called while the tower reads a picture of a question, with 0 patches before it begins
    settings  what the user has set since the beginning, as typed, by name: it is saved with the chat

    After a context shift the sequence holds less than the conversation. `held` is then the turn that it stands for,
    except the tokens `unseen` at its end; another branch that has outgrown the context is processed again as far as it
    fits.
    """

    model: "LoadedModel"
    params: "SamplingParams"
    template: "ChatTemplate | None" = None
    max_tokens: int = -1
    stop: list[str] = field(default_factory=list)
    system: str = ""
    speculate: bool = False
    keep: int | None = None
    form: "Constraint | None" = None
    asked: ChatOptions = NOTHING
    settings: dict[str, str] = field(default_factory=dict)
    eyes: "PictureReader | None" = None
    looking: PictureProgress | None = None
    held: Turn | None = None
    unseen: list[int] = field(default_factory=list)
    turns: Turns = field(default_factory=Turns)
    stats: Stats = field(default_factory=Stats)
    result: "GenerationResult | None" = None
    reading: Reading | None = None  # of the current or last answer

    def __post_init__(self) -> None:
        from ..sampling import Sampler

        self.seq = self.model.sequence()
        self.sampler = Sampler(self.params, self.model.n_vocab, self.model.tokenizer)
        self.asker = Asker(self.model.tokenizer, self.template, self.model.n_vocab)
        self.ledger = self.asker.ledger
        self.dialect = None if self.template is None else self.asker.dialect
        self.ask(self.asked)

    def ask(self, asked: ChatOptions) -> None:
        """Sets `asked`. Raises UsageError if the model cannot do that."""
        if self.dialect is not None:
            self.dialect.check(asked)
        elif asked != NOTHING:
            raise UsageError("tools and thoughts need a chat template, and the model has none.")
        self.asked = asked

    def draw_by(self, params: "SamplingParams") -> None:
        """Sets `params`. Earlier tokens still count, and the random generator continues, unless the seed is another.
        Raises UsageError if they name a token that the model does not have.
        """
        from ..sampling import Sampler

        sampler = Sampler(params, self.model.n_vocab, self.model.tokenizer)
        state, own = self.sampler.state(), sampler.state()
        if params.seed != self.params.seed:
            state |= {key: own[key] for key in ("seed", "state", "inc")}
        sampler.set_state(state)
        self.params, self.sampler = params, sampler

    @property
    def messages(self) -> list[Message]:
        """The current branch, as OpenAI messages."""
        return self._messages(self.turns.head)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls of the last answer: `answer_calls` takes their results."""
        head = self.turns.head
        return head.answer.calls if head else ()

    def _messages(self, head: Turn | None) -> list[Message]:
        messages = [{"role": "system", "content": self.system}] if self.system else []
        for turn in head.path() if head else []:
            messages += [*turn.asking, message_of(turn.answer)]
        return messages

    # --- text and tokens ---
    def render(self, messages: list[Message]) -> str:
        """The text of the messages, which the next answer continues."""
        if self.dialect is None:
            # an answer of another model may be nothing but calls
            return "".join(plain_content(m["content"]) for m in messages)
        return self.dialect.prompt(messages, self.asked).text

    def prompt(self, head: Turn | None, text: str, seen: "Sequence[SeenPicture]" = ()) -> tuple[Turn | None, Encoded]:
        """The tokens of `text`, and the turn up to `head` whose tokens they begin with, if there is one. seen: the
        pictures in the text."""
        encoded = self.asker.encoded(text, seen=seen)
        turns = reversed(head.path() if head and encoded.known else [])
        return next((turn for turn in turns if turn.ids == encoded.known), None), encoded

    def boundaries(self, prompt: ChatPrompt | None, encoded: Encoded) -> list[int]:
        """Positions in the encoded conversation at which its messages end."""
        if self.dialect is None or prompt is None:
            return []
        return self.asker.ends(prompt, encoded, MOST_BOUNDARIES)

    @property
    def _rewrites(self) -> bool:
        """Whether the template may render an answer without its thoughts, so that the answer no longer continues its
        prompt."""
        return self.dialect is not None and self.dialect.format.thoughts is not None

    # --- talking ---
    def answer(
        self, text: str, progress: TokenProgress | None = None, pictures: "Sequence[SeenPicture]" = ()
    ) -> Iterator[AnswerPart]:
        """Adds the user's `text` and yields the answer while it is generated: at least one part per token, which may be
        empty. An error before the prompt was read leaves no turn. pictures: come before the text.
        """
        yield from self._generate(self.turns.head, text, progress, pictures)

    def answer_calls(self, results: Sequence[str], progress: TokenProgress | None = None) -> Iterator[AnswerPart]:
        """The same for the results of the last answer's calls, in their order."""
        if not results or len(results) != len(self.calls):
            raise UsageError(f"{len(results)} results for {len(self.calls)} calls: expected one per call.")
        yield from self._generate(self.turns.head, tuple(results), progress)

    def regenerate(self, progress: TokenProgress | None = None) -> Iterator[AnswerPart]:
        """Yields another answer to the last question."""
        last = self.turns.head
        if last is None:
            raise UsageError("there is no answer yet. Write something first.")
        yield from self._generate(last.parent, last.question, progress, last.pictures)

    def edit(self, n: int, text: str, progress: TokenProgress | None = None) -> Iterator[AnswerPart]:
        """Replaces the question of turn n by `text`, or the result if it answers a call, and yields the answer. The
        later turns stay in the tree.
        """
        turn = self.turns.nth(n)
        if len(turn.results) > 1:
            raise UsageError(f"turn {n} has the results of {len(turn.results)} calls: there is no one text to replace.")
        yield from self._generate(turn.parent, (text,) if turn.results else text, progress, turn.pictures)

    def undo(self) -> Turn:
        """Takes back the last turn and returns it."""
        last = self.turns.head
        if last is None:
            raise UsageError("there is nothing to take back.")
        self.turns.head = last.parent
        return last

    def _look_at(self, pictures: "Sequence[SeenPicture]") -> None:
        """Lets the tower read the pictures that are not at hand. Raises Interrupted when stopped."""
        for picture in pictures:
            progress = None if self.looking is None else partial(self.looking, picture.title)
            if progress is not None:
                progress(0, 0)
            picture.runs(progress, self.model.engine.stop)

    def _generate(
        self,
        parent: Turn | None,
        question: Question,
        progress: TokenProgress | None,
        pictures: "Sequence[SeenPicture]" = (),
    ) -> Generator[AnswerPart, None, None]:
        """Answers `question` after `parent`."""
        from ..batch.generate import generate

        exchange = self._exchange(parent, question, pictures)
        text = exchange.prompt.text
        try:
            self._look_at(exchange.prompt.pictures)
        except KeyboardInterrupt:
            self.result = None
            return
        base, encoded = self.prompt(parent, text, exchange.prompt.pictures)
        if shown := pictures_of(encoded):
            self.model.runner.pictures.add(*shown)  # they are held while this generates
        whole = encoded.ids
        added = encoded.rest if base else whole
        kept = self._kept(exchange.prompt, whole)
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
            boundaries=[] if shorter or (base and not self._rewrites) else self.boundaries(exchange.prompt, encoded),
            speculate=self.speculate,
            keep=kept,
            **exchange.rules.drawn,
        )
        reading = self.reading = self._reading(exchange)
        try:
            for piece in run:
                yield from reading.push(piece)
            yield from reading.finish()
        finally:
            run.close()
            result = run.result
            if run.is_read:  # otherwise the prompt was interrupted: no answer
                turn = self.turns.add(parent, question, self._noted(result, reading, reused), pictures)
                turn.base, turn.added = base, [*added, *result.ids]
                # a stop string is among the tokens but not part of the answer
                turn.asked, turn.said = (text if result.stop is None else ""), result.text
                self.ledger.note_answer(text, whole, result)
                if self.dialect is not None:
                    turn.written = self.asker.note_written(
                        exchange.prompt, exchange.messages, exchange.asked, turn.answer, whole, result
                    )  # fmt: skip
                if shorter or result.discarded:
                    self.held, self.unseen = turn, list(result.pending)

    def _exchange(self, parent: Turn | None, question: Question, pictures: "Sequence[SeenPicture]") -> Exchange:
        """The prompt, and how the answer is sampled and read."""
        messages = [*self._messages(parent), *asking(parent, question, pictures)]
        if self.dialect is None:
            prompt = ChatPrompt(self.render(messages), messages, {}, False, "")
            return Exchange(messages, self.asked, prompt, AnswerRules(self.form))
        asked = self.asked if isinstance(question, str) else self.asked.relaxed
        return self.dialect.exchange(messages, asked, self.form)

    def _reading(self, exchange: Exchange) -> Reading:
        thoughts = self.dialect.format.thoughts if self.dialect is not None else None
        return Reading(exchange.reader, thoughts.closing if thoughts else "", exchange.prompt.thinks)

    def _kept(self, prompt: ChatPrompt, ids: list[int]) -> int | None:
        """How many tokens at the beginning of `ids`, the encoded conversation, never leave the context."""
        if self.keep is None:
            return None
        from ...memory.prefix_tree import common_beginning
        from ..drawing.context_shift import kept_tokens

        told = self._told(prompt)
        return kept_tokens(self.model, ids[: common_beginning(told, ids)], self.keep)

    def _told(self, prompt: ChatPrompt) -> list[int]:
        """The tokens of the system message, and of the template's text around it."""
        tokenizer, first = self.model.tokenizer, prompt.messages[:1]
        first = first if first and first[0]["role"] == "system" else []
        if self.dialect is None:
            return rendered_ids(tokenizer, "".join(m["content"] for m in first))
        return rendered_ids(tokenizer, self.dialect.rendered(prompt, first))

    def _resumed(self, base: Turn | None, added: list[int], whole: list[int], kept: int | None) -> list[int]:
        """Makes the sequence hold as much of `whole` as is known; returns the rest, which must be processed.

        base, added  the turn whose tokens `whole` begins with, if there is one, and the tokens after it
        """
        if base is not None and base is self.held:
            return [*self.unseen, *added]
        n_ctx = self.model.n_ctx
        if len(whole) >= n_ctx:
            from ..drawing.context_shift import shortened

            left = shortened(whole, kept, n_ctx) if kept is not None else []
            if len(left) < (kept or 0) + (len(added) if base else 1):
                raise UsageError(
                    f"the conversation has {len(whole)} tokens, the context {n_ctx}.",
                    remedy=Remedy.CONTEXT_SHIFT if self.keep is None else Remedy.SHORTER_CONVERSATION,
                )
            whole = left
        return whole[self.seq.resume(whole) :]

    def _noted(self, result: "GenerationResult", reading: Reading, reused: int) -> SaidAnswer:
        """The answer, which is also counted in `stats`."""
        answer = reading.answer(result).without_cut()
        self.result = result
        self.stats.n_reused += reused
        self.stats.n_prompt += result.prompt_tokens
        self.stats.n_generated += len(result.ids)
        self.stats.n_thought += answer.n_thought
        self.stats.n_calls += len(answer.calls)
        self.stats.prompt_seconds += result.prompt_seconds
        self.stats.gen_seconds += result.gen_seconds
        return answer

    # --- keeping ---
    def clear(self) -> None:
        """Forgets everything."""
        self.turns, self.held = Turns(), None
        self.ledger.clear()
        self.seq.clear()

    def save(self, path: Path, checkpoints: int = SAVED_CHECKPOINTS) -> int:
        """Writes the conversation with the model's state: continuing it processes nothing again."""
        asked = self.asked
        chat = SavedChat(
            self.turns, self.system, asked.tools, asked.think, self.held, tuple(self.unseen), self.settings
        )
        return self.seq.save(path, {"chat": chat.to_json(), "sampler": self.sampler.state()}, checkpoints=checkpoints)

    def load(self, path: Path) -> None:
        """Replaces the conversation by a saved one; its `settings` are noted, not applied. Raises StateError if that is
        another model's, or not a chat."""
        self.seq = self.model.restore(path, self.seq)
        extra = self.seq.extra
        try:
            chat = SavedChat.read(extra.get("chat"), self.model.n_vocab, path, self.eyes)
            if "sampler" in extra:
                self.sampler.set_state(extra["sampler"])
        except StateError:
            self.clear()
            raise
        self.turns, self.system, self.held, self.unseen = chat.turns, chat.system, chat.held, list(chat.unseen)
        self.asked = self._asked_in(chat)
        self.settings |= chat.settings
        self.ledger.clear()
        know_turns(self.ledger, self.turns)

    def _asked_in(self, chat: SavedChat) -> ChatOptions:
        """The saved `asked`, as far as the template supports it."""
        if self.dialect is None:  # a chat that goes on without a template
            return self.asked
        think = None if self.dialect.format.thoughts is None else chat.think
        named = self.asked.choice.name is None or any(tool.name == self.asked.choice.name for tool in chat.tools)
        choice = self.asked.choice if chat.tools and named else AUTO
        return replace(self.asked, tools=chat.tools, think=think, choice=choice)
