"""A prompt and its answer in a batch: the request, and its state between two steps."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hybrid.quant.ggml.errors import HybridError, Remedy, UsageError

from ...engine.applied import Applied
from ...engine.pictures import Picture
from ...faults import fault_text, is_fault, tell
from ...guessers import Track
from ...memory.branches import Kept
from ...memory.cache import LADDER
from ...memory.hybrid import MOST_PIECES
from ...memory.prefix_tree import common_beginning
from ...runner import Runner
from ...sequence import Sequence
from ..drawing.context_shift import MARGIN, make_room
from ..drawing.drawing import Drawing, EndReason, GenerationResult, TextPiece, TokenLogprobs
from ..drawing.prompt_logprobs import logprobs_of
from .guesses import AnswerText

if TYPE_CHECKING:
    from .reuse import Reuse


class PromptTooLongError(UsageError):
    """A prompt of n_prompt tokens does not fit a context of n_ctx."""

    def __init__(self, n_prompt: int, n_ctx: int) -> None:
        super().__init__(f"the prompt has {n_prompt} tokens, the context {n_ctx}.", remedy=Remedy.LARGER_CONTEXT)
        self.n_prompt, self.n_ctx = n_prompt, n_ctx


class AnswerFaultError(HybridError):
    """A fault of the program has ended an answer. The message leaves out `what`, which may quote other texts."""

    def __init__(self, fault: BaseException) -> None:
        super().__init__(
            "a fault of the program has ended this answer. Ask again; if it happens again, report what the log says."
        )
        self.what = fault_text(fault)


@dataclass(eq=False)
class Job:
    """One prompt and its answer. `result` can be read at any time; `done` is True when it is complete.

    pictures  whose tokens are in the prompt: held while the job is
    keep      tokens at the beginning that stay when the context is full and half of the others leave it (see
              context_shift.kept_tokens); None: a full context ends the answer
    use_cache  the known prefix of the prompt is not read again; it changes no bit of the answer
    remember  the answer stays in the prompt cache: a text that continues it reads nothing of it again
    speculate guess tokens where that pays: the same answer in fewer steps
    prompt_top  compute `prompt_logprobs`: for each token of the prompt its own and the prompt_top largest; the prompt
                is then not taken from the cache. None: no logprobs
    owner     whose texts it may continue, and who owns its text (memory/prefix_tree.py)
    applied   adapters that it is read with; None: the model's own when it is submitted
    text_owner  the owner in the prompt cache, which keeps adapters apart; None: not submitted yet
    client    whose job it is: the waiting jobs of the client with the fewest running ones come first
    boundaries  positions in the prompt that later texts may continue from: checkpoints are left there
    pin       True: the cache never gives up the prompt and its answer (memory/pins.py), if there is room; False: it
              may again; None: no change
    on_text   called with each piece of the answer, in the thread that steps
    on_read   called with (tokens of the prompt that are known or read, all of them) whenever the first grows
    on_end    called by a `Service` when the job has ended
    alone     the caller steps the batch, and gets every exception
    error     why the answer could not be sampled; it then ends as "interrupt"
    """

    ids: list[int]
    drawing: Drawing
    key: object = None  # the caller's own
    pictures: tuple[Picture, ...] = ()
    keep: int | None = None
    use_cache: bool = True
    remember: bool = False
    speculate: bool = False
    prompt_top: int | None = None
    owner: bytes = b""
    applied: Applied | None = None
    text_owner: bytes | None = None
    client: object = None
    boundaries: tuple[int, ...] = ()
    pin: bool | None = None
    on_text: Callable[[TextPiece], None] | None = None
    on_read: Callable[[int, int], None] | None = None
    on_end: Callable[[], None] | None = None
    alone: bool = False
    error: HybridError | None = None
    over: bool = False  # nothing more is sampled; its text is not remembered yet
    done: bool = False
    n_known: int = 0  # tokens of the prompt that were not processed
    n_drawn: int = 0  # tokens of the prompt from the ledger: up to the end of an earlier answer, as sampled
    reuse: "Reuse | None" = None  # why the others were; None: it has not joined yet
    kept: Kept | None = None  # where the prompt cache has the text, after the end
    place: int | None = None  # which of the n_parallel places it has or had; at first a wish
    began: float = 0.0  # when it joined, by time.perf_counter
    cancelled: bool = False
    paused: bool = False  # nobody reads the answer: see `Batcher.pause`
    set_aside: list[int] | None = None  # its tokens when it gave up its place
    # one per token read so far; None for the first, which follows nothing, and for tokens of pictures
    prompt_logprobs: list[TokenLogprobs | None] = field(default_factory=list)

    @cached_property
    def tokens(self) -> npt.NDArray[np.int64]:
        """`ids` for comparisons. Only after a check: a caller may pass any integer as a token."""
        return np.asarray(self.ids, np.int64)

    @property
    def result(self) -> GenerationResult:
        return self.drawing.result

    def settle(self, runner: Runner) -> bytes:
        """Sets `applied` and `text_owner` unless they are set; returns the latter."""
        if self.text_owner is None:
            self.applied = runner.applied if self.applied is None else self.applied
            self.text_owner = runner.owner_with(self.owner, self.applied)
        return self.text_owner

    def cancel(self) -> None:
        """Ends the answer at the next step, as "interrupt". `Batcher.cancel` also stops the current step."""
        self.cancelled = True

    def draw(self, logits: np.ndarray) -> None:
        """Samples the next token, unless the answer has ended, and tells the listener."""
        self.tell_text(self.drawn(logits))

    def drawn(self, logits: np.ndarray) -> TextPiece | None:
        """As `draw`, without telling the listener."""
        if self.drawing.ended is not None:
            return None
        self.result.gen_seconds = time.perf_counter() - self.began - self.result.prompt_seconds
        try:
            piece = self.drawing.draw(logits)
        except BaseException as error:
            self.fail(error)
            return None
        if self.result.ttft is None:
            self.result.ttft = time.perf_counter() - self.began
        return piece

    def fail(self, error: BaseException) -> None:
        """Ends this job with its own error; other answers go on. Raises the error if it is not for one job to end with:
        an
        interrupt, or any error of a job that runs alone.
        """
        if self.alone:
            raise error
        if is_fault(error):
            tell("a fault has ended an answer", error)
            error = AnswerFaultError(error)
        if not isinstance(error, HybridError):
            raise error
        self.error = self.error or error

    def tell_text(self, piece: TextPiece | None) -> None:
        """Calls on_text. If that fails, it is not called again, and the job ends."""
        if piece is None or self.on_text is None:
            return
        try:
            self.on_text(piece)
        except BaseException as error:
            self.on_text = None
            self.fail(error)

    def tell_read(self, n: int) -> None:
        """Calls on_read: n tokens of the prompt are known or read. If that fails, it is not called again."""
        if self.on_read is None:
            return
        try:
            self.on_read(n, len(self.ids))
        except BaseException as error:
            self.on_read = None
            if not is_fault(error):
                raise
            tell("a fault in telling how far a prompt is read: the answer goes on", error)


@dataclass(eq=False)
class RunningJob:
    """A job that has a place in a batch.

    ids    tokens that are read before one is sampled: the prompt, and the answer up to where it was set aside
    is_read  whether all of them are read
    marks  positions in its prompt at which checkpoints are left
    guess  tokens that the step verifies, after the last one that was sampled
    forced whether the answer's form leaves no choice about them
    track  of the draft model or head, which knows n_told tokens of the answer; is_helped: `guess` comes from it
    held   tokens of its sequence before the step that is under way; None: there is no such step
    before the same, and the tokens of its answer then, until the step was followed
    stays  the caller keeps the sequence afterwards
    """

    job: Job
    seq: Sequence
    marks: list[int] = field(default_factory=list)
    guess: list[int] = field(default_factory=list)
    forced: bool = False
    track: Track | None = None
    n_told: int = 0
    is_helped: bool = False
    held: int | None = None
    before: tuple[int, int] | None = None
    is_read: bool = False
    stays: bool = False

    def __post_init__(self) -> None:
        looks = self.job.speculate and self.seq.guessers.ngrams
        self.text = AnswerText(self.job.ids, self.result.ids) if looks else None
        self.ids = max(self.job.ids, self.job.set_aside or [], key=len)
        self.may_guess = self.job.speculate or self.job.drawing.foresees
        self.n_told = len(self.ids) - len(self.job.ids)

    @property
    def result(self) -> GenerationResult:
        return self.job.result

    @property
    def n_past(self) -> int:
        """Tokens whose results are known."""
        return self.seq.n_past if self.held is None else self.held

    @property
    def is_reading(self) -> bool:
        """Whether part of its text must be read before its next token can be sampled."""
        return not self.is_read

    @property
    def is_drawing(self) -> bool:
        """Whether its last token goes through the model next."""
        return self.is_read and bool(self.result.pending)

    @property
    def can_be_set_aside(self) -> bool:
        """Whether its tokens are enough to bring it back: no shift removed any, and its prompt needs no logprobs."""
        return self.held is None and self.job.remember and self.job.prompt_top is None and self.seq.is_computed

    @property
    def is_paused(self) -> bool:
        """Whether it is not continued because nobody reads it."""
        return self.job.paused and self.is_drawing and self.can_be_set_aside

    @property
    def has_gone_on(self) -> bool:
        """Whether it has more tokens than when it was set aside. If not, it keeps its place, or it might never end."""
        return self.job.set_aside is None or self.seq.n_past > len(self.job.set_aside)

    @property
    def most_guessed(self) -> int:
        """Limit on guessed tokens: all that are sampled with them fit before the answer's limit and the next shift."""
        room = self.seq.room - (MARGIN if self.job.keep is not None else 0)
        left = self.job.drawing.left
        return (room if left is None else min(room, left)) - 1

    # --- for a step ---
    def foresee(self, room: int) -> None:
        """Adds tokens that the form forces to the guess, and drops forbidden ones. room: limit on added tokens."""
        before, most = len(self.guess), max(0, min(self.most_guessed, MOST_PIECES - 1))
        self.forced = self.job.drawing.is_forced
        self.guess = self.job.drawing.foreseen(self.guess, min(most, before + max(0, room)))

    # --- after a step ---
    def follow(self, n: int, logits: np.ndarray | None) -> float:
        """Takes the results of a step that appended n tokens; returns the seconds of this that count as the step's
        cost.

        logits: f32 [n_out, n_vocab], after the last token and after each guessed one; for a prompt, after its last
        slice, or after each token if logprobs are wanted, otherwise None.
        """
        seconds = self._follow(n, logits)
        self.before = None
        return seconds

    def _follow(self, n: int, logits: np.ndarray | None) -> float:
        if self.is_read:
            assert logits is not None
            return self._draw_each(logits)
        job, seq = self.job, self.seq
        new = min(seq.n_past, len(job.ids)) - job.n_known - self.result.prompt_tokens
        if new > 0:  # else the cache gave up tokens while the job was set aside
            self.result.prompt_tokens += new
            self.result.prompt_seconds = time.perf_counter() - job.began
            job.tell_read(seq.n_past)
        start, seconds = time.perf_counter(), 0.0
        if job.prompt_top is not None:
            assert logits is not None
            self._note_logprobs(seq.n_past - n, logits, job.prompt_top)
            seconds = time.perf_counter() - start
        self.is_read = seq.n_past == len(self.ids)
        if self.is_drawing:
            return seconds  # its last token was sampled before it was set aside
        if self.is_read:
            assert logits is not None
            seq.logits = logits[-1].copy()
            seq.checkpoint()
            if job.error is None:
                job.draw(seq.logits)
        elif seq.n_past in self.marks or seq.n_past % LADDER == 0:
            seq.checkpoint(boundary=seq.n_past in self.marks)
        return seconds

    def _note_logprobs(self, begin: int, logits: np.ndarray, n_top: int) -> None:
        """Notes the logprobs of the followers of each token of a slice of the prompt that starts at `begin`."""
        job = self.job
        followers = job.ids[begin + 1 : begin + 1 + len(logits)]
        try:
            job.prompt_logprobs += [None] if begin == 0 else []
            job.prompt_logprobs += logprobs_of(followers, logits[: len(followers)], n_top)
        except BaseException as error:
            job.fail(error)

    def _draw_each(self, rows: np.ndarray) -> float:
        """Samples from the logits after the last token and after each guessed one, while the guess is right."""
        job, seq, result, guess = self.job, self.seq, self.result, self.guess
        pieces: list[TextPiece | None] = []
        n_right, seconds = 0, 0.0
        try:
            for row in rows:
                result.pending = []
                result.gen_tokens += 1
                pieces.append(job.drawn(row))
                if job.error is not None:
                    break  # its token may be incomplete: nothing after it is told
                if n_right == len(guess) or result.pending != [guess[n_right]] or job.drawing.ended is not None:
                    break
                n_right += 1
            result.passes += 1
            start = time.perf_counter()
            if guess:
                result.forced += self.forced * len(guess)
                seq.verified(rows)
                seq.take_back(len(guess) - n_right, ladder=job.remember)
                result.guessed += len(guess)
                result.accepted += n_right
                seconds = time.perf_counter() - start
            else:
                seq.logits = rows[-1] if self.stays else None
                if job.remember and seq.n_past % LADDER == 0:
                    seq.checkpoint(boundary=False)
        finally:
            for piece in pieces:
                job.tell_text(piece)
        return seconds

    def settle(self) -> None:
        """After a step that was broken off: removes tokens that were not sampled from the sequence, and puts the
        sampled ones that it lacks into `pending`.
        """
        if self.before is None or not self.is_read:
            return
        (n_past, n_ids), seq = self.before, self.seq
        drawn = self.result.ids[n_ids:]
        n_right = common_beginning(self.guess, drawn)
        if seq.n_past > n_past + 1 + n_right:
            seq.runner.settle(seq, 1 + n_right)
        if seq.n_past > n_past:
            self.result.pending = drawn[n_right:]

    def end(self) -> EndReason | None:
        """Why the answer is over; None: it goes on. To make room for a token, older ones may leave the context."""
        job, seq = self.job, self.seq
        if job.error is not None:
            return "interrupt"
        if (job.prompt_top is not None or self.stays) and self.is_reading:
            return None  # the prompt's logprobs or state are wanted, whatever the answer is to be
        if job.drawing.ended is not None or not self.result.pending:
            return job.drawing.ended
        if job.keep is not None and seq.room <= MARGIN:
            self.result.discarded += make_room(seq, 1 + MARGIN, job.keep)
        return None if seq.room else "context"
