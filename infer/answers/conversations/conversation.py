"""A chat that never processes a prompt twice, whatever is taken back, edited or started again.

Every turn knows the tokens of the conversation up to it, the answers' as the model drew them. For the next answer the
whole conversation is rendered by the model's template. If that continues what an earlier turn stands for (see
ledger.py), its tokens and the rest are the prompt (a template that rewrites history, say without the thoughts of the
last answer, costs only the tail); otherwise the rendering is encoded as a whole. The sequence then resumes at the
longest beginning of the prompt that is known from this or any other branch.

An answer may be calls of tools: their results are then what the model is told next.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybrid.quant.ggml.errors import Remedy, StateError, UsageError

from ...progress import TokenProgress
from ...text.encode import rendered_ids
from ..asking.asker import Asker
from ..asking.ledger import Encoded
from ..asking.reading import Reading, SaidAnswer
from ..chat.dialect import NOTHING, AnswerRules, ChatOptions, Exchange
from ..chat.prompting import AUTO, ChatPrompt, message_of
from ..chat.reader import AnswerPart
from ..chat.tools import ToolCall
from .chat_file import SAVED_CHECKPOINTS, SavedChat, know_turns
from .turns import Question, Turn, Turns, asking

if TYPE_CHECKING:
    from ... import LoadedModel
    from ...text.chat_template import ChatTemplate
    from ..constraints import Constraint
    from ..drawing.drawing import GenerationResult
    from ..sampling import SamplingParams

Message = dict[str, Any]
MOST_BOUNDARIES = 32  # messages that get a checkpoint when a whole conversation is encoded: the first, and the last


@dataclass
class Stats:
    """What the conversation cost so far, in tokens and seconds."""

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

    template  None: plain completion, messages are simply joined
    system    what the model is told before the first message
    speculate guess tokens from the text so far: the same answers in fewer passes
    keep      tokens of the system message that stay when the context is full (see context_shift.kept_tokens) and older
              ones leave it; None: the conversation ends there
    form      of every answer, behind its thoughts; of those that are no calls
    asked     the tools that it may call, and whether it is to think. Another may be set between answers

    Behind a shift the sequence holds less than the conversation. `held` is then the turn it stands for, but for the
    tokens `unseen` at its end; another branch that has outgrown the context is processed again as far as it fits.
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
    held: Turn | None = None
    unseen: list[int] = field(default_factory=list)
    turns: Turns = field(default_factory=Turns)
    stats: Stats = field(default_factory=Stats)
    result: "GenerationResult | None" = None
    reading: Reading | None = None  # of the answer that is or was generated last

    def __post_init__(self) -> None:
        from ..sampling import Sampler

        self.seq = self.model.sequence()
        self.sampler = Sampler(self.params, self.model.n_vocab, self.model.tokenizer)
        self.asker = Asker(self.model.tokenizer, self.template, self.model.n_vocab)
        self.ledger = self.asker.ledger
        self.dialect = None if self.template is None else self.asker.dialect
        self.ask(self.asked)

    def ask(self, asked: ChatOptions) -> None:
        """Sets `asked`. UsageError: the model cannot do that."""
        if self.dialect is not None:
            self.dialect.check(asked)
        elif asked != NOTHING:
            raise UsageError("tools and thoughts are written by a chat template, and there is none.")
        self.asked = asked

    def draw_by(self, params: "SamplingParams") -> None:
        """Sets `params`. What was drawn so far still counts, and so does its generator, unless the seed is another.
        UsageError: they name a token that the model does not have."""
        from ..sampling import Sampler

        sampler = Sampler(params, self.model.n_vocab, self.model.tokenizer)
        state, own = self.sampler.state(), sampler.state()
        if params.seed != self.params.seed:
            state |= {key: own[key] for key in ("seed", "state", "inc")}
        sampler.set_state(state)
        self.params, self.sampler = params, sampler

    @property
    def messages(self) -> list[Message]:
        """The current branch, as OpenAI writes it."""
        return self._messages(self.turns.head)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """What the last answer calls: `answer_calls` takes the results."""
        head = self.turns.head
        return head.answer.calls if head else ()

    def _messages(self, head: Turn | None) -> list[Message]:
        messages = [{"role": "system", "content": self.system}] if self.system else []
        for turn in head.path() if head else []:
            messages += [*turn.asking, message_of(turn.answer)]
        return messages

    # --- text and tokens ---
    def render(self, messages: list[Message]) -> str:
        """Messages as the text that the next answer continues."""
        if self.dialect is None:
            # an answer that another model gave may be nothing but calls
            return "".join(m["content"] or "" for m in messages)
        return self.dialect.prompt(messages, self.asked).text

    def prompt(self, head: Turn | None, text: str) -> tuple[Turn | None, Encoded]:
        """The tokens of `text`, and the turn up to `head` that they begin with, if it is one of those."""
        encoded = self.ledger.find(text, plain=self.template is None)
        turns = reversed(head.path() if head and encoded.known else [])
        return next((turn for turn in turns if turn.ids == encoded.known), None), encoded

    def boundaries(self, prompt: ChatPrompt | None, encoded: Encoded) -> list[int]:
        """Where in the encoded conversation its messages end."""
        if self.dialect is None or prompt is None:
            return []
        return self.asker.ends(prompt, encoded, MOST_BOUNDARIES)

    @property
    def _rewrites(self) -> bool:
        """Whether an answer may come back as something else than what its prompt begins: without thoughts."""
        return self.dialect is not None and self.dialect.format.thoughts is not None

    # --- talking ---
    def answer(self, text: str, progress: TokenProgress | None = None) -> Iterator[AnswerPart]:
        """Adds the user's `text` and yields the answer as it is generated: at least one part for every token, which may
        be empty. After an error nothing stays."""
        yield from self._generate(self.turns.head, text, progress)

    def answer_calls(self, results: Sequence[str], progress: TokenProgress | None = None) -> Iterator[AnswerPart]:
        """The same, to the results of the last answer's calls, in their order."""
        if not results or len(results) != len(self.calls):
            raise UsageError(f"there are {len(results)} results of {len(self.calls)} calls.")
        yield from self._generate(self.turns.head, tuple(results), progress)

    def regenerate(self, progress: TokenProgress | None = None) -> Iterator[AnswerPart]:
        """Yields another answer to the last question."""
        last = self.turns.head
        if last is None:
            raise UsageError("there is no answer yet. Write something first.")
        yield from self._generate(last.parent, last.question, progress)

    def edit(self, n: int, text: str, progress: TokenProgress | None = None) -> Iterator[AnswerPart]:
        """Asks `text` instead of the n-th question, or takes it for the result of the call that this one answers, and
        yields the answer; what followed stays a branch of the tree."""
        turn = self.turns.nth(n)
        if len(turn.results) > 1:
            raise UsageError(f"turn {n} has the results of {len(turn.results)} calls: there is no one text to replace.")
        yield from self._generate(turn.parent, (text,) if turn.results else text, progress)

    def undo(self) -> Turn:
        """Takes the last turn back and returns it."""
        last = self.turns.head
        if last is None:
            raise UsageError("there is nothing to take back.")
        self.turns.head = last.parent
        return last

    def _generate(
        self, parent: Turn | None, question: Question, progress: TokenProgress | None
    ) -> Generator[AnswerPart, None, None]:
        """Answers `question` after `parent`."""
        from ..batch.generate import generate

        exchange = self._exchange(parent, question)
        text = exchange.prompt.text
        base, encoded = self.prompt(parent, text)
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
                turn = self.turns.add(parent, question, self._noted(result, reading, reused))
                turn.base, turn.added = base, [*added, *result.ids]
                # a stop text is among the tokens but not part of the answer
                turn.asked, turn.said = (text if result.stop is None else ""), result.text
                self.ledger.note_answer(text, whole, result, plain=self.template is None)
                if self.dialect is not None:
                    turn.written = self.asker.note_written(
                        exchange.prompt, exchange.messages, exchange.asked, turn.answer, whole, result
                    )  # fmt: skip
                if shorter or result.discarded:
                    self.held, self.unseen = turn, list(result.pending)

    def _exchange(self, parent: Turn | None, question: Question) -> Exchange:
        """What is asked, and how the answer is drawn and read."""
        messages = [*self._messages(parent), *asking(parent, question)]
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
        """The tokens of the system message, and of what else the template writes there."""
        tokenizer, first = self.model.tokenizer, prompt.messages[:1]
        first = first if first and first[0]["role"] == "system" else []
        if self.dialect is None:
            return tokenizer.encode("".join(m["content"] for m in first))
        return rendered_ids(tokenizer, self.dialect.rendered(prompt, first))

    def _resumed(self, base: Turn | None, added: list[int], whole: list[int], kept: int | None) -> list[int]:
        """Let the sequence hold as much of `whole` as is known; returns what is left to be processed.

        base, added  the turn that `whole` begins with, if there is one, and what follows it
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
        """The answer; the figures count it."""
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
        """Writes the conversation with the state of the model: going on from it processes nothing again."""
        asked = self.asked
        chat = SavedChat(self.turns, self.system, asked.tools, asked.think, self.held, tuple(self.unseen))
        return self.seq.save(path, {"chat": chat.to_json(), "sampler": self.sampler.state()}, checkpoints=checkpoints)

    def load(self, path: Path) -> None:
        """Replaces the conversation by a saved one. StateError when it is another model's, or not a chat."""
        self.seq = self.model.restore(path, self.seq)
        extra = self.seq.extra
        try:
            chat = SavedChat.read(extra.get("chat"), self.model.n_vocab, path)
            if "sampler" in extra:
                self.sampler.set_state(extra["sampler"])
        except StateError:
            self.clear()
            raise
        self.turns, self.system, self.held, self.unseen = chat.turns, chat.system, chat.held, list(chat.unseen)
        self.asked = self._asked_in(chat)
        self.ledger.clear()
        know_turns(self.ledger, self.turns, plain=self.template is None)

    def _asked_in(self, chat: SavedChat) -> ChatOptions:
        """`asked` as it was when the chat was saved, as far as the template knows it."""
        if self.dialect is None:  # a chat that goes on without a template
            return self.asked
        think = None if self.dialect.format.thoughts is None else chat.think
        named = self.asked.choice.name is None or any(tool.name == self.asked.choice.name for tool in chat.tools)
        choice = self.asked.choice if chat.tools and named else AUTO
        return replace(self.asked, tools=chat.tools, think=think, choice=choice)
