"""An answer of a model, read while it is generated or when it is complete."""

import queue
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

from hybrid.infer.answers.batch.service import ClosedError, FaultError
from hybrid.infer.answers.chat.reader import AnswerPart
from hybrid.infer.answers.chat.tools import ToolCall

from .advice import advised
from .display.screen import ProgressBar
from .model_thread import ModelThread, Round
from .settings import data_of

if TYPE_CHECKING:
    from hybrid.infer.answers.drawing.drawing import TextPiece, TokenLogprobs

Finish = Literal["stop", "length", "context", "tool_calls", "stopped"]
_FINISH: dict[str, Finish] = {
    "eos": "stop",
    "stop": "stop",
    "length": "length",
    "context": "context",
    "interrupt": "stopped",
}
Rounds = Generator[Round, None, None]
CLOSED = "the model was closed. Load it again."
LONGEST_SHOWN = 200  # characters of an answer in its `repr`
Called = tuple[ToolCall, str]  # (call, result of the function)


@dataclass(frozen=True)
class Timings:
    """Costs of an answer. For an answer with tool calls, the sum of all its rounds.

    prompt_tokens   tokens of the prompt; reused_tokens: of these, from earlier prompts; prompt_seconds: for the rest
    tokens          generated tokens; seconds: for all of them after the first
    """

    prompt_tokens: int = 0
    reused_tokens: int = 0
    prompt_seconds: float = 0.0
    tokens: int = 0
    seconds: float = 0.0

    @property
    def read_tokens(self) -> int:
        """Tokens of the prompt that were not reused."""
        return self.prompt_tokens - self.reused_tokens

    @property
    def per_second(self) -> float:
        """Generated tokens per second; 0 if nothing was measured."""
        return (self.tokens - 1) / self.seconds if self.tokens > 1 and self.seconds > 0 else 0.0

    def __add__(self, other: "Timings") -> "Timings":
        return Timings(
            self.prompt_tokens + other.prompt_tokens,
            self.reused_tokens + other.reused_tokens,
            self.prompt_seconds + other.prompt_seconds,
            self.tokens + other.tokens,
            self.seconds + other.seconds,
        )


@dataclass(frozen=True)
class _Event:
    """A piece of the text, or n_read tokens of the prompt read, or, with neither, the end of the round."""

    piece: "TextPiece | None" = None
    n_read: int | None = None


class Answer:
    """The model's answer, as `complete`, `say` and `reply` return it.

    With `stream=True` it is returned at once, and iterating it yields pieces of text while they are generated;
    otherwise it is complete. `str(answer)` is the text so far. It can be iterated again, in any thread, and in `async
    for`.

    finish  "stop": the model ended it, or a stop text did; "length": the limit on tokens; "context": the context is
            full; "tool_calls": it waits for results; "stopped": by `stop`; None: it is still being generated
    called  tool calls that were carried out, with the results of the functions
    """

    def __init__(self, answering: ModelThread, rounds: Rounds, *, stream: bool) -> None:
        self._answering, self._rounds = answering, rounds
        self._lock = threading.RLock()  # held while events are handled
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._parts: list[AnswerPart] = []
        self._before = Timings()  # of finished rounds
        self._is_running = self._stopped = False
        self._bar: ProgressBar | None = None
        self.called: list[Called] = []
        self.finish: Finish | None = None
        with advised():
            self._round = next(rounds)  # the current or last round
            self._begin()
        if not stream:
            self.wait()

    # --- the answer's content ---
    @property
    def text(self) -> str:
        """The text so far. If tools were called, the text after the last call."""
        return self._told("text") if self.finish is None else self._round.told.text

    @property
    def thoughts(self) -> str:
        """The model's thoughts before the text."""
        return self._told("thought") if self.finish is None else self._round.told.thoughts

    @property
    def data(self) -> Any:
        """The value of an answer with a schema: JSON, or an object of the class; None if the answer was cut off."""
        return None if self.finish is None else data_of(self.text, self._round.checked)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """Tool calls that were not carried out."""
        return self._round.told.calls if self.finish == "tool_calls" else ()

    @property
    def tokens(self) -> list[int]:
        """Ids of the generated tokens."""
        return list(self._round.job.result.ids)

    @property
    def logprobs(self) -> "list[TokenLogprobs]":
        """Log-probabilities of the tokens, if requested."""
        return list(self._logprobs)

    @property
    def timings(self) -> Timings:
        """Costs so far."""
        return self._before + _timings(self._round) if self._is_running else self._before

    @property
    def seed(self) -> int:
        """The seed of the random numbers: the same seed gives the same answer."""
        return self._round.job.drawing.sampler.seed

    @property
    def done(self) -> bool:
        """Whether the answer is complete."""
        return self.finish is not None

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= LONGEST_SHOWN else self.text[:LONGEST_SHOWN] + "..."
        return f"<Answer {text!r}, {self.timings.tokens} tokens, {self.finish or 'being written'}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """For IPython and notebooks: the whole text, and how it ended."""
        printer.text(f"{self.text}\n[{self.timings.tokens} tokens, {self.finish or 'being written'}]")

    def _told(self, kind: str) -> str:
        return "".join(part.text for part in self._parts[self._n_before :] if part.kind == kind)

    # --- reading it ---
    def parts(self) -> Iterator[AnswerPart]:
        """The parts as they become certain; `kind` is "text", "thought", "call" (a name) or "arguments"."""
        n = 0
        while n < len(self._parts) or self._pull():
            while n < len(self._parts):
                yield self._parts[n]
                n += 1

    def __iter__(self) -> Iterator[str]:
        return (part.text for part in self.parts() if part.kind == "text")

    async def parts_async(self) -> AsyncIterator[AnswerPart]:
        """`parts` for an event loop. Leaving the `async for` early stops the answer."""
        import asyncio

        n = 0
        try:
            while n < len(self._parts) or await asyncio.to_thread(self._pull):
                while n < len(self._parts):
                    yield self._parts[n]
                    n += 1
        finally:
            self.stop()

    async def __aiter__(self) -> AsyncIterator[str]:
        async for part in self.parts_async():
            if part.kind == "text":
                yield part.text

    def wait(self) -> Self:
        """Waits until the answer is complete, and returns it. HybridError: it failed. Ctrl-C stops it."""
        while self._pull():
            pass
        return self

    def stop(self) -> None:
        """Stops the answer, from any thread; the model is free for others at once."""
        self._stopped = True
        if not self.done:
            self._answering.service.cancel(self._round.job)

    def __del__(self) -> None:
        if getattr(self, "_is_running", False):  # collected: nobody can read it
            self._answering.service.cancel(self._round.job)

    # --- its rounds ---
    def _begin(self) -> None:
        """Submits the round to the model."""
        job, events = self._round.job, self._events
        before = job.on_end
        job.on_text = lambda piece: events.put(_Event(piece))
        job.on_read = lambda n, _: events.put(_Event(n_read=n))
        job.on_end = partial(_end, events, before)
        self._n_before = len(self._parts)
        self._logprobs: list[TokenLogprobs] = []
        self._spoken = self._round.exchange is None  # keep whitespace before the first word
        self._bar = ProgressBar("reading", "tokens")
        if not self._answering.service.is_open and self._answering.service.fault is None:
            raise ClosedError(CLOSED)
        self._answering.service.submit(job)
        self._is_running = True
        if self._stopped:  # stopped between two rounds
            self._answering.service.cancel(job)

    def _pull(self) -> bool:
        """Waits for an event and handles it; False: the answer has ended."""
        with self._lock, advised():
            if self.done:
                return False
            try:
                self._take(self._events.get())
            except KeyboardInterrupt:
                self.stop()
                while not self.done:
                    self._take(self._events.get())
                raise
            return True

    def _take(self, event: _Event) -> None:
        if event.n_read is not None:
            if self._bar is not None:
                self._bar.step(event.n_read, len(self._round.job.ids))
            return
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        if event.piece is None:
            self._end_round()
            return
        self._add(self._round.reading.push(event.piece))
        if event.piece.logprobs is not None:
            self._logprobs.append(event.piece.logprobs)

    def _add(self, parts: list[AnswerPart]) -> None:
        for part in parts:
            if part.kind == "text" and not self._spoken:
                part = replace(part, text=part.text.lstrip())
                self._spoken = bool(part.text)
            if part.text:
                self._parts.append(part)

    def _end_round(self) -> None:
        self._add(self._round.reading.finish())
        self._before, self._is_running = self.timings, False
        job, service = self._round.job, self._answering.service
        job.on_text = job.on_read = job.on_end = None  # they hold references back to the job
        finish: Finish = _FINISH[job.result.reason]
        if self._round.told.calls and finish == "stop":
            finish = "tool_calls"
        try:
            self._answering.note(self._round)
            if job.error is not None:
                raise job.error
            if finish == "stopped" and not self._stopped:
                raise FaultError(service.fault) if service.fault is not None else ClosedError(CLOSED)
            if self._stopped:
                self._rounds.close()
            else:
                self._round = next(self._rounds)
                self._begin()
                return
        except StopIteration:
            pass
        except BaseException:
            finish = "stopped"
            raise
        finally:
            if not self._is_running:
                self.finish = finish


def _end(events: "queue.SimpleQueue[_Event]", before: Callable[[], None] | None) -> None:
    """Called in the service's thread when the job has ended."""
    if before is not None:
        before()
    events.put(_Event())


def _timings(made: Round) -> Timings:
    job, result = made.job, made.job.result
    return Timings(len(job.ids), job.n_known, result.prompt_seconds, len(result.ids), result.gen_seconds)
