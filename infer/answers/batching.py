"""Continuous batching: answers to many prompts at a time, which join and leave at any step.

A step is one pass through the model: the next token of every answer that is being drawn, and with the room that is
left a slice of the prompts that are being read, first come first served, and beside answers no more than keeps the step
short (slices.py). What comes out for a prompt depends on nothing else in the step, to the bit.

    jobs = [Job(ids, Drawing(Sampler(params, model.n_vocab), model.tokenizer, 200, ())) for ids in prompts]
    results = answer_all(model, jobs, n_parallel=8)   # or a Batcher, for jobs that come and go

What prompts have in common is processed once: a prompt waits while another one is read that will make more of its
beginning known, and prompts get checkpoints where later ones in the queue differ from them.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import islice
from math import inf

import numpy as np

from hybrid.quant.ggml.errors import HybridError, Remedy, UsageError

from ..memory.branches import Kept, kept
from ..memory.cache import LADDER
from ..model import Interrupted, Model, Result, Stop, Work
from ..sequence import Sequence as TokenSequence
from ..sequence import common_beginning
from .context_shift import MARGIN, make_room
from .drawing import Drawing, GenerationResult, TextPiece
from .figures import Figures
from .reuse import Reasons, Reuse
from .slices import STEP_SECONDS, Slices

WORTH_SHARING = 16  # tokens in common that are worth waiting for, or a checkpoint
LOOK_AHEAD = 64  # prompts of the queue that are compared with a new one
MOST_MARKS = 4  # checkpoints that a prompt gets for those behind it


@dataclass(eq=False)
class Job:
    """One prompt and its answer. `result` can be read at any time; `done` is True when it is complete.

    keep      tokens at the beginning that stay when the context is full and half of the others leave it (see
              context_shift.kept_tokens); None: a full context ends the answer
    remember  the answer stays in the prompt cache: a text that goes on from it reads nothing of it again
    client    whose it is: of jobs that wait, those of whoever has the fewest running come first
    boundaries  positions in the prompt that later texts may continue from: checkpoints are left there
    on_text   called with each piece of the answer as it is drawn, in the thread that steps
    on_read   called with (tokens of the prompt that are known or read, all of them) whenever there are more
    on_end    called when it has ended, by a `Service`
    pin       the prompt and its answer are never given up (memory/pins.py), as far as there is room for that; False:
              they may be again; None: as they were
    error     why nothing could be drawn; the answer then ends as "interrupt"
    """

    ids: list[int]
    drawing: Drawing
    key: object = None  # the caller's own
    keep: int | None = None
    remember: bool = False
    client: object = None
    boundaries: tuple[int, ...] = ()
    pin: bool | None = None
    on_text: Callable[[TextPiece], None] | None = None
    on_read: Callable[[int, int], None] | None = None
    on_end: Callable[[], None] | None = None
    error: HybridError | None = None
    done: bool = False
    n_known: int = 0  # tokens of the prompt that did not have to be processed
    reuse: Reuse | None = None  # why the others had to be; None: it has not joined yet
    kept: Kept | None = None  # where the prompt cache has the text of a job that has ended
    cancelled: bool = False

    def __post_init__(self) -> None:
        self.tokens = np.asarray(self.ids, np.int64)  # `ids`, for comparisons

    @property
    def result(self) -> GenerationResult:
        return self.drawing.result

    def cancel(self) -> None:
        """The answer ends at the next step, as "interrupt". `Batcher.cancel` also ends the step that runs."""
        self.cancelled = True


@dataclass(eq=False)
class _Answer:
    """A job that has joined. marks: positions in its prompt where checkpoints are to be left."""

    job: Job
    seq: TokenSequence
    marks: list[int] = field(default_factory=list)

    @property
    def ids(self) -> list[int]:
        return self.job.ids

    @property
    def result(self) -> GenerationResult:
        return self.job.result


class Batcher:
    """Answers up to n_parallel jobs at a time; any number can wait.

    step_seconds: how long a step beside answers should take at most, see slices.py. One thread steps; `cancel` may be
    called from any.
    """

    def __init__(self, model: Model, n_parallel: int, step_seconds: float = STEP_SECONDS) -> None:
        most = min(model.n_seq_max, model.n_ubatch)
        if not 1 <= n_parallel <= most:
            raise UsageError(f"{n_parallel} answers at a time: this model was loaded for 1 to {most}.")
        self.model, self.n_parallel = model, n_parallel
        self._waiting: deque[Job] = deque()
        self._running: list[_Answer] = []
        self.n_steps = 0
        self.figures, self.reasons = Figures(), Reasons(model)
        self.slices = Slices(model.n_ubatch, step_seconds)
        self._changed = False  # whether a job that had to wait may go on
        self._stop = Stop()  # of the step that runs, or the last
        self._given_up: Stop | None = None  # the one that `cancel` has set

    def check(self, job: Job) -> None:
        """UsageError when `submit` would refuse the job: its prompt is empty, does not fit, or is of another model."""
        if not job.ids:
            raise UsageError("the prompt is empty. Give some text to start from.")
        if not 0 <= min(job.ids) <= max(job.ids) < self.model.n_vocab:
            wrong = next(i for i in job.ids if not 0 <= i < self.model.n_vocab)
            raise UsageError(f"token {wrong} is not of this model's vocabulary of {self.model.n_vocab}.")
        if len(job.ids) > self.model.n_ctx:
            raise UsageError(
                f"the prompt has {len(job.ids)} tokens, the context {self.model.n_ctx}.",
                remedy=Remedy.LARGER_CONTEXT,
            )

    def submit(self, job: Job) -> None:
        """The job joins as soon as there is room. UsageError: see `check`."""
        self.check(job)
        job.drawing.begin(job.ids)
        self._waiting.append(job)
        self._changed = True

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._running)

    @property
    def n_waiting(self) -> int:
        return len(self._waiting)

    def run(self) -> Iterator[Job]:
        """Steps until nothing is left to do; yields jobs as they are done. Jobs may be submitted in between."""
        while self.busy:
            yield from self.step()

    def step(self) -> list[Job]:
        """One pass; returns the jobs that are done with it. After an Interrupted the next step does it again."""
        stop = self._stop = Stop()  # before the look at who was cancelled: whoever is from now on ends the pass
        ended = [job for job in self._jobs() if job.cancelled]
        for job in ended:
            self._end(job)
        if self._changed:
            self._admit()
            ended += self._end_those_over()
        works, owners = self._plan()
        if works:
            results = self._pass(works, sum(bool(answer.result.pending) for answer in owners), stop)
            if results is None:
                return ended
            self.n_steps += 1
            for answer, work, result in zip(owners, works, results, strict=True):
                self._after(answer, work, None if result.logits is None else result.logits[-1])
        return ended + self._end_those_over()

    def cancel(self, job: Job) -> None:
        """The answer ends as "interrupt". A step that reads prompts is given up for it, and done again without it."""
        job.cancel()
        stop = self._given_up = self._stop
        stop.set()

    def _pass(self, works: list[Work], n_answers: int, stop: Stop) -> list[Result] | None:
        """The results of a step; None when somebody was cancelled meanwhile: no sequence has changed then."""
        begin, compiled = time.perf_counter(), self.model.compile_seconds
        # a Stop of the caller's goes before
        mine = self.model.engine.stop is None
        try:
            with self.model.stopped_by(stop) if mine else nullcontext():
                results = self.model.eval(works)
        except Interrupted as error:
            # `Model.stop` may have set it, too: whoever steps is told then
            if mine and error.__cause__ is None and self._given_up is stop:
                return None
            raise
        seconds = time.perf_counter() - begin - (self.model.compile_seconds - compiled)
        n_prompt = sum(len(work.ids) for work in works) - n_answers
        self.slices.timed(n_prompt, n_answers, seconds)
        self.figures.passed(n_prompt, n_answers, len(works), max(work.seq.n_past for work in works), seconds)
        return results

    def _jobs(self) -> list[Job]:
        return [*(answer.job for answer in self._running), *self._waiting]

    def _end_those_over(self) -> list[Job]:
        over = []
        for answer in list(self._running):
            reason = answer.job.drawing.ended if answer.job.error is None else "interrupt"
            if reason is None and answer.result.pending:
                self._make_room(answer)
                reason = "context" if not answer.seq.room else None
            if reason is not None:
                answer.result.reason = reason
                self._end(answer.job)
                over.append(answer.job)
        return over

    def _make_room(self, answer: _Answer) -> None:
        """For another token of an answer, where older ones may leave the context: at the same places as `generate`."""
        if answer.job.keep is not None and answer.seq.room <= MARGIN:
            answer.result.discarded += make_room(answer.seq, 1 + MARGIN, answer.job.keep)

    def close(self) -> None:
        """Give up all jobs."""
        for job in self._jobs():
            self._end(job)

    # --- joining ---
    def _admit(self) -> None:
        """Waiting jobs get sequences, in order, except those that should wait for work of another job."""
        held: list[Job] = []
        try:
            while self._waiting and len(self._running) < self.n_parallel and len(held) < LOOK_AHEAD:
                job = self._next()
                if self._is_being_read(job):
                    self._waiting.remove(job)
                    held.append(job)
                    continue
                answer = _Answer(job, self.model.sequence())
                self._running.append(answer)
                self._waiting.remove(job)
                self._join(answer, held)
            self._changed = False
        finally:
            self._waiting.extendleft(reversed(held))

    def _next(self) -> Job:
        """Of the jobs that wait longest the first of whoever has the fewest running: one client's hundred hold up
        nobody else's one."""
        running = Counter(answer.job.client for answer in self._running)
        return min(islice(self._waiting, LOOK_AHEAD), key=lambda job: running[job.client])

    def _join(self, answer: _Answer, held: Sequence[Job]) -> None:
        """What is known of the prompt, and where those behind it, and the jobs that are held, part from it."""
        job, seq = answer.job, answer.seq
        job.reuse = self.reasons.resume(seq, job.ids, job.tokens, job.drawing.tokenizer)
        job.n_known = job.reuse.n_reused
        _tell_read(job, job.n_known)
        others = (*held, *islice(self._waiting, LOOK_AHEAD))
        parts = Counter(common_beginning(job.tokens, other.tokens) for other in others)
        least = max(job.n_known + 1, WORTH_SHARING)
        answer.marks = [n for n, _ in parts.most_common() if least <= n < len(job.ids)][:MOST_MARKS]
        answer.marks += [n for n in job.boundaries if least <= n < len(job.ids)]
        if job.n_known == len(job.ids):
            assert seq.logits is not None
            self._draw(job, seq.logits)

    def _is_being_read(self, job: Job) -> bool:
        """Whether a running job reads tokens that this one could share, if it waits."""
        if self.model.cache is None:
            return False
        beginning = self.model.cache.find(job.ids)
        known = beginning.position if beginning else 0
        for other in self._running:
            past = other.seq.n_past
            # a shift may have left fewer tokens than the prompt had
            if other.result.ids or past >= len(other.ids):
                continue
            n = common_beginning(job.tokens, other.job.tokens)
            # where it will leave a checkpoint yet that this job can go on from
            points = [m for m in other.marks if m > past] + [n // LADDER * LADDER]
            if n == len(other.ids) or not self.model.memory.is_recurrent:
                points.append(n)
            ahead = max((p for p in points if past < p <= n), default=0)
            # a few tokens are worth a step, not many
            if ahead - known >= (WORTH_SHARING if ahead - past > self.slices.beside_answers else 1):
                return True
        return False

    # --- a pass ---
    def _plan(self) -> tuple[list[Work], list[_Answer]]:
        works: list[Work] = []
        owners: list[_Answer] = []
        room = self.model.n_ubatch
        for answer in self._running:
            if answer.result.pending:  # being drawn: its last token goes through the model
                works.append(Work(answer.seq, list(answer.result.pending)))
                owners.append(answer)
                room -= 1
        if works:
            room = min(room, self.slices.beside_answers)
        for answer in self._running:
            seq, ids = answer.seq, answer.ids
            if answer.result.ids or room <= 0 or seq.n_past >= len(ids):
                continue
            past = seq.n_past
            stops = [len(ids), past + room]
            if self.model.cache is not None:
                stops += [(past // LADDER + 1) * LADDER, *(m for m in answer.marks if m > past)]
            end = min(stops)
            works.append(Work(seq, ids[past:end], "last" if end == len(ids) else "none"))
            owners.append(answer)
            room -= end - past
        return works, owners

    def _after(self, answer: _Answer, work: Work, logits: np.ndarray | None) -> None:
        job, seq, result = answer.job, answer.seq, answer.result
        if result.pending:
            result.pending = []
            result.gen_tokens += 1
            result.passes += 1
            assert logits is not None
            self._draw(job, logits)
            return
        result.prompt_tokens += len(work.ids)
        _tell_read(job, seq.n_past)
        self._changed = True
        if logits is not None:
            seq.logits = logits
            seq.checkpoint()
            self._draw(job, logits)
        elif seq.n_past in answer.marks or seq.n_past % LADDER == 0:
            seq.checkpoint(boundary=seq.n_past in answer.marks)

    def _draw(self, job: Job, logits: np.ndarray) -> None:
        if job.drawing.ended is None:
            try:
                piece = job.drawing.draw(logits)
            except HybridError as error:  # this job's alone: nobody else's logits are to blame
                job.error = error
            else:
                _tell_text(job, piece)

    def _end(self, job: Job) -> None:
        _tell_text(job, job.drawing.finish())
        job.done = self._changed = True
        self.figures.ended(job.reuse, job.result)
        if job in self._waiting:
            self._waiting.remove(job)
        for answer in self._running:
            if answer.job is job:
                self._running.remove(answer)
                answer.seq.close(remember=job.remember)
                if self.model.cache is not None:
                    pin = None if job.cancelled else job.pin
                    job.kept = kept(self.model.cache, answer.seq.tokens, len(job.ids), pin)
                break


def _tell_text(job: Job, piece: TextPiece | None) -> None:
    if piece is not None and job.on_text is not None:
        job.on_text(piece)


def _tell_read(job: Job, n: int) -> None:
    if job.on_read is not None:
        job.on_read(n, len(job.ids))


def answer_all(model: Model, jobs: Sequence[Job], n_parallel: int) -> list[GenerationResult]:
    """The answers to all jobs, in their order. HybridError: the first that could not be drawn."""
    batcher = Batcher(model, n_parallel, step_seconds=inf)
    try:
        for job in jobs:
            batcher.submit(job)
        for job in batcher.run():
            if job.error is not None:
                raise job.error
    finally:
        batcher.close()
    return [job.result for job in jobs]
