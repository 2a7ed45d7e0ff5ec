"""Continuous batching: answers to many prompts at a time, which join and leave at any step.

A step is one pass through the model: the next token of every answer that is being sampled and, in the remaining room,
slices of the prompts that are being read; beside answers, only as much of them as keeps the step short (slices.py).
Where it pays, a step carries guesses of the next tokens (guesses.py, helped.py). The result for a prompt depends on
nothing else in the step, to the bit. A fault of the program ends the answers that it touched with an AnswerFaultError;
the others go on. If a model computes several passes at a time, in stages, as many are under way, each with its part of
the answers; a step then waits for the oldest.

    jobs = [Job(ids, Drawing(Sampler(params, model.n_vocab), model.tokenizer, 200, ())) for ids in prompts]
    results = answer_all(model, jobs, n_parallel=8)   # or a Batcher, for jobs that come and go

Common prefixes of prompts are processed once (sharing.py). Clients share the places (job_queue.py): an answer may be
set aside for another client's. Its text goes to the prompt cache, and it continues from there when its turn comes, with
the same bits as without the pause.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import cached_property, partial
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, TypeVar

from hybrid.quant.ggml.errors import HybridError, UsageError

from ...faults import SidePath, is_fault, tell
from ...memory.branches import kept
from ...model import LoadedModel
from ...program.threads import Interrupted, Stop, core_turns
from ...runner import Result, Runner, Work
from ...sequence import Sequence as TokenSequence
from ..drawing.drawing import GenerationResult
from .figures import Figures
from .job import AnswerFaultError, Job, PromptTooLongError, RunningJob
from .job_queue import Queue, gives_way
from .planning import GUESSES, Counts, Plans
from .sharing import is_being_read, look_up, marks
from .slices import STEP_SECONDS
from .under_way import UnderWay

if TYPE_CHECKING:
    from .reuse import Reasons

T = TypeVar("T")

FIGURES = SidePath("the figures of the batch")
COSTS = SidePath("the costs of steps")
SHARING = SidePath("what prompts have in common")
KEPT = SidePath("where the prompt cache has an answer")

LOOK_AHEAD = 64  # prompts of the queue that are compared with a new one


class Batcher:
    """Answers up to n_parallel jobs at a time; any number can wait.

    step_seconds: limit of a step beside answers, see slices.py. One thread steps; `cancel` may be called from any.
    n_faults: steps that have failed; on_fault: called with the exception after each.
    """

    on_fault: Callable[[BaseException], None] | None = None

    def __init__(self, runner: Runner, n_parallel: int, step_seconds: float = STEP_SECONDS) -> None:
        most = min(runner.n_seq_max, runner.n_ubatch)
        if not 1 <= n_parallel <= most:
            raise UsageError(f"{n_parallel} answers at a time: this model was loaded for 1 to {most}.")
        self.runner, self.n_parallel = runner, n_parallel
        self._queue = Queue()
        self._running: list[RunningJob] = []
        self._ended: list[Job] = []  # in the current step
        self.n_steps = self.n_faults = 0
        self.figures = Figures()
        # for each place, the last text that has ended, and its owner
        self.texts: list[tuple[bytes, list[int]]] = [(b"", []) for _ in range(n_parallel)]
        self.plans = Plans(runner, step_seconds, self._confined)
        self._under_way: deque[UnderWay] = deque()
        self._seconds = 0.0  # duration of the current step
        self._waited = 0.0  # the same since its pass was begun
        self._last = 0.0  # when the last step had its results
        self._changed = False  # whether a waiting job may go on
        self._stop = Stop()  # of the current step, or the last
        self._given_up: Stop | None = None  # the one that `cancel` has set

    @cached_property
    def reasons(self) -> "Reasons":
        """Explains why tokens of prompts are read."""
        from .reuse import Reasons

        return Reasons(self.runner.cache)

    def check(self, job: Job) -> None:
        """Raises UsageError if `submit` would refuse the job: its prompt is empty, too long, or for another model."""
        if job.pictures:
            self.runner.pictures.add(*job.pictures)
        self.check_prompt(job.ids)
        if job.prompt_top is not None and not 0 <= job.prompt_top <= self.runner.n_vocab:
            raise UsageError(
                f"prompt_top = {job.prompt_top}, expected a number of tokens from 0 to {self.runner.n_vocab}."
            )
        job.settle(self.runner)

    def check_prompt(self, ids: Sequence[int]) -> None:
        """The same check for the tokens of a prompt."""
        if not ids:
            raise UsageError("the prompt is empty. Give some text to start from.")
        if max(ids) >= self.runner.n_vocab:
            raise UsageError(f"token {max(ids)} is outside this model's vocabulary of {self.runner.n_vocab}.")
        if min(ids) < 0:
            self.runner.check_pictures([], ids)
        if len(ids) > self.runner.n_ctx:
            raise PromptTooLongError(len(ids), self.runner.n_ctx)

    def submit(self, job: Job) -> None:
        """Queues a job, which joins as soon as there is room. Raises UsageError: see `check`."""
        self.check(job)
        job.drawing.begin(job.ids)
        self._queue.add(job)
        self._changed = True

    def go_on(self, job: Job, seq: TokenSequence) -> None:
        """Gives the job a place at once, in a sequence that holds the beginning of its prompt and stays the caller's.
        Raises UsageError if the rest does not fit.
        """
        n, job.applied, job.text_owner = len(seq.tokens), seq.applied, seq.owner
        if job.pictures:
            self.runner.pictures.add(*job.pictures)
        if n < len(job.ids):
            self.runner.check([Work(seq, job.ids[n:])])
        elif seq.logits is None:
            raise UsageError("the prompt is empty and nothing came before it. Give some text to start from.")
        job.drawing.begin(job.ids[n:])
        job.began, job.n_known = time.perf_counter(), n
        answer = RunningJob(job, seq, [at for at in job.boundaries if n < at < len(job.ids)], stays=True)
        self._running.append(answer)
        self._changed = True
        if answer.ids:
            seq.checkpoint()
        self._go_on(answer)

    def pause(self, job: Job, *, paused: bool) -> None:
        """Pauses a job whose answer nobody reads, or resumes it. A paused answer is not continued, and gives up its
        place as soon as another job waits; if it cannot be set aside, it is continued. A resumed one goes on when its
        turn comes. An ended job stays ended.
        """
        waits, job.paused = self._queue.remove(job), paused
        if waits:
            self._queue.add(job, first=True)
        self._changed = True

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        draws = any(answer.job.cancelled or not answer.is_paused for answer in list(self._running))
        return draws or bool(self._queue.waiting) or any(job.cancelled for job in list(self._queue.paused))

    @property
    def n_waiting(self) -> int:
        return len(self._queue.waiting)

    @property
    def running(self) -> list[Job]:
        """The jobs that are being read or sampled. Callable from any thread."""
        return [answer.job for answer in list(self._running)]

    def run(self) -> Iterator[Job]:
        """Steps until all jobs are done or paused; yields each job that is done. More may be submitted in between."""
        while self.busy:
            yield from self.step()

    def step(self) -> list[Job]:
        """One pass; returns the jobs that ended with it. After an Interrupted, the next step repeats it."""
        self._confined(lambda: [answer.job for answer in self._running], self._step)
        self.plans.slices.is_watched = any(answer.is_drawing for answer in self._running)
        ended, self._ended = self._ended, []
        return ended

    def _step(self) -> None:
        stop = self._stop = Stop()  # before looking for cancelled jobs: a later cancel stops the pass
        for job in self.jobs:
            if job.cancelled and not job.done and not self._is_under_way(job):
                self._end(job)
        if self._changed:
            self._admit()
            self._end_those_over()
        if self._running and self._running[0].job.alone and self._running[0].is_drawing:
            self._draw_alone(self._running[0])
            return
        self._begin()
        if self._under_way:
            one = self._under_way.popleft()
            results = self._confined(lambda: one.jobs, lambda: self._results(one, stop))
            if results is None:
                return
            self.n_steps += 1
            self._follow(one, results)
        self._end_those_over()

    # --- faults ---
    def _confined(self, touched: Callable[[], list[Job]], function: Callable[[], T]) -> T | None:
        """The result of `function`. An error in it ends the jobs that it `touched`, and None is returned."""
        try:
            return function()
        except BaseException as error:
            fault = error
        if isinstance(fault, Interrupted) and fault.__cause__ is not None:
            fault = fault.__cause__  # the exception that stopped the pass
        confined = is_fault(fault) or isinstance(fault, HybridError)
        if not confined or not self.runner.recovers or any(job.alone for job in touched()):
            raise fault
        self._recover(touched(), fault)
        return None

    def _recover(self, touched: Sequence[Job], fault: BaseException) -> None:
        """Ends these jobs and drops their part of the memory; all others go on."""
        for one in self._under_way:
            one.give_up()
        self._under_way.clear()
        lost = [answer for answer in self._running if answer.job in touched]
        unsound = self.runner.recover([answer.seq for answer in lost])
        jobs = [*touched, *(answer.job for answer in self._running if answer.seq in unsound)]
        error = AnswerFaultError(fault) if is_fault(fault) else fault
        for job in jobs:
            assert isinstance(error, HybridError)
            job.error = job.error or (None if job.over else error)
            self._leave(job)
        if is_fault(fault):
            tell(f"a fault in a step has ended {len(jobs)} answer{'s' * (len(jobs) != 1)}: the others go on", fault)
            self.n_faults += 1
            if self.on_fault is not None:
                self.on_fault(fault)

    def _leave(self, job: Job) -> None:
        """Removes a job that has ended."""
        job.done = self._changed = True
        self._queue.remove(job)
        for answer in [answer for answer in self._running if answer.job is job]:
            self._vacate(answer)
        self._ended.append(job)

    def _vacate(self, answer: RunningJob) -> None:
        """Frees the answer's place."""
        self._running.remove(answer)
        if (track := answer.track) is not None:
            GUESSES.do(track.end)

    # --- the parts of a step ---
    def _begin(self) -> None:
        """Begins as many passes as the model computes at a time, each with its part of the answers."""
        drawn = [answer for answer in self._running if not answer.is_paused]
        idle, part = [answer for answer in drawn if answer.held is None], -(-len(drawn) // self.runner.depth)
        while idle and len(self._under_way) < self.runner.depth:
            works, owners = self.plans.plan(idle[:part])
            del idle[:part]
            if works:
                self._under_way.append(UnderWay(self.runner, works, owners))

    def _draw_alone(self, answer: RunningJob) -> None:
        """A step of the only answer, without the work for several: with a small model, Python's time matters."""
        job, seq = answer.job, answer.seq
        looks = answer.may_guess and not self.plans.rests(answer)
        if looks:
            self.plans.guess([answer])
        ids, accepted = [*answer.result.pending, *answer.guess], answer.result.accepted
        answer.before = seq.n_past, len(answer.result.ids)
        start = core_turns().clock()
        if answer.guess:
            rows = self.runner.eval([Work(seq, ids, "all", each=True)])[0].logits
        else:
            rows = self.runner.step(seq, ids[0])[None]
        seconds = core_turns().clock() - start
        seconds += answer.follow(len(ids), rows)
        if job.speculate and looks:
            n_right, is_helped = answer.result.accepted - accepted, answer.is_helped
            n_helped, n_helpful = (len(answer.guess), n_right) if is_helped else (0, 0)
            counts = Counts(len(ids), 1, len(answer.guess), n_right - n_helpful, n_helped, n_helpful)
            COSTS.do(lambda: self.plans.learn(counts, seconds, seconds))
        if (reason := answer.end()) is not None:
            answer.result.reason = reason
            self._end(job)

    def _follow(self, one: UnderWay, results: list[Result]) -> None:
        """Passes results on to the answers."""
        n_tokens = n_drawn = n_guesses = 0
        n_guessed, n_right = [0, 0], [0, 0]  # from texts; from a draft model or a head
        for answer, work, result in zip(one.owners, one.works, results, strict=True):
            n_tokens += len(work.ids)
            guess, is_helped, before = answer.guess, answer.is_helped, answer.result.accepted
            if answer.is_reading:
                self._changed, guess = True, []  # more of its prompt is known
            else:
                n_drawn += 1
                n_guesses += bool(guess)
            follow = partial(answer.follow, len(work.ids), result.logits)
            self._seconds += self._confined(partial(list, [answer.job]), follow) or 0.0
            if guess:
                n_guessed[is_helped] += len(guess)
                n_right[is_helped] += answer.result.accepted - before
        seconds = self._seconds
        waited = max(self._waited, seconds)
        counts = Counts(n_tokens, n_drawn, sum(n_guessed), n_right[0], n_guessed[1], n_right[1])
        COSTS.do(lambda: self.plans.learn(counts, waited, seconds))
        longest = max([work.seq.n_past for work in one.works])
        FIGURES.do(lambda: self.figures.passed(counts.n_prompt, n_drawn, len(one.works), longest, seconds, n_guesses))

    def cancel(self, job: Job) -> None:
        """Ends the answer as "interrupt". A step that reads prompts is given up for it, and repeated without it."""
        job.cancel()
        stop = self._given_up = self._stop
        stop.set()

    def _results(self, one: UnderWay, stop: Stop) -> list[Result] | None:
        """The results of a pass; None if a job was cancelled meanwhile: no sequence has changed then."""
        compiled = self.runner.engine.compile_seconds
        for answer in one.owners:
            answer.held = None
        # the caller's own Stop takes precedence
        mine = self.runner.engine.stop is None
        try:
            with self.runner.stopped_by(stop) if mine else nullcontext():
                results = one.begun.results()
        except Interrupted as error:
            # `LoadedModel.stop` may also have set it: then the caller is told
            if mine and error.__cause__ is None and self._given_up is stop:
                return None
            raise
        end = core_turns().clock()
        self._waited = end - one.start - (self.runner.engine.compile_seconds - compiled)
        # passes at a time overlap: each takes the time since the one before
        self._seconds = self._waited - max(0.0, self._last - one.start)
        self._last = end
        return results

    def _is_under_way(self, job: Job) -> bool:
        return any(answer.job is job for one in self._under_way for answer in one.owners)

    @property
    def jobs(self) -> list[Job]:
        """The running jobs, then the waiting ones."""
        return [*(answer.job for answer in self._running), *self._queue.waiting, *self._queue.paused]

    def _end_those_over(self) -> None:
        for answer in [answer for answer in self._running if answer.held is None]:
            if not answer.seq.is_open:
                continue  # a fault at another answer's end has closed it
            reason = self._confined(partial(list, [answer.job]), answer.end)
            if reason is not None:
                answer.result.reason = reason
                self._end(answer.job)

    def close(self) -> None:
        """Ends all jobs."""
        for one in self._under_way:
            one.give_up()
        self._under_way.clear()
        for job in self.jobs:
            self._end(job)
        self._ended = []
        self.plans.slices.is_watched = False

    # --- joining ---
    def _admit(self) -> None:
        """Gives places to waiting jobs, in turn, except to a job that should wait for the work of another."""
        held: list[Job] = []
        try:
            while self._queue.waiting and len(held) < LOOK_AHEAD:
                job = self._queue.next(self._running)
                leaving = None
                if len(self._running) >= self.n_parallel:
                    leaving = gives_way(self._running, job.client, for_turns=self.runner.cache is not None)
                    if leaving is None:
                        break
                n_beside = self.plans.slices.beside_answers
                is_read = partial(is_being_read, job, self._running, self.runner.cache, n_beside)
                if SHARING.run(is_read, lambda: False):
                    self._queue.waiting.remove(job)
                    held.append(job)
                    continue
                if leaving is not None:
                    self._confined(partial(list, [leaving.job]), partial(self._set_aside, leaving))
                self._confined(partial(list, [job]), partial(self._seat, job, held))
            # an answer with a pass under way, or that reads its text again, can be set aside later
            later = bool(self._under_way) or not all(answer.has_gone_on for answer in self._running)
            self._changed = later and bool(self._queue.waiting)
        finally:
            self._queue.waiting.extendleft(reversed(held))

    def _set_aside(self, answer: RunningJob) -> None:
        """Queues the job again, and puts its tokens into the prompt cache, with a checkpoint that is dropped early."""
        job, seq = answer.job, answer.seq
        job.set_aside = list(seq.tokens)
        seq.checkpoint(boundary=False)
        seq.close(remember=False)
        self._vacate(answer)
        self._queue.add(job, first=True)

    def _seat(self, job: Job, held: Sequence[Job]) -> None:
        """Gives a job a sequence. held: see _join."""
        seq = TokenSequence(self.runner)
        try:
            seq.use(self.runner.applied if job.applied is None else job.applied, job.owner)
            answer = RunningJob(job, seq)
        except BaseException:
            seq.close(remember=False)  # nobody else knows it
            raise
        self._running.append(answer)
        self._queue.waiting.remove(job)
        self._join(answer, held)

    def _join(self, answer: RunningJob, held: Sequence[Job]) -> None:
        """Looks up the known part of the job's text, and where later prompts and the `held` jobs differ from it."""
        job, seq = answer.job, answer.seq
        free = set(range(self.n_parallel)) - {other.job.place for other in self._running if other is not answer}
        job.place = job.place if job.place in free else min(free)
        if job.set_aside is None:
            look_up(job, seq, self.reasons)
        else:
            seq.resume(job.set_aside, logits=False)
        answer.marks = SHARING.run(lambda: marks(job, (*held, *islice(self._queue.waiting, LOOK_AHEAD))), list)
        self._go_on(answer)

    @staticmethod
    def _go_on(answer: RunningJob) -> None:
        """Samples a token if all of the text is known."""
        job, seq = answer.job, answer.seq
        answer.is_read = seq.n_past == len(answer.ids)
        if answer.is_read and not job.result.pending:
            assert seq.logits is not None
            job.result.prompt_seconds = time.perf_counter() - job.began
            job.draw(seq.logits)

    def _end(self, job: Job) -> None:
        """Ends the job. A fault in remembering its text does not harm the answer."""
        job.tell_text(job.drawing.finish())
        job.over = True
        FIGURES.do(lambda: self.figures.ended(job.reuse, job.result))
        for answer in self._running:
            if answer.job is job:
                self._confined(lambda: [job], partial(self._remember, answer))
                break
        if job not in self._ended:
            self._leave(job)

    def _remember(self, answer: RunningJob) -> None:
        """Gives the sequence back. Its text stays in the prompt cache if the job says so."""
        job = answer.job
        if answer.stays:
            answer.settle()
            return
        if job.place is not None and answer.seq.is_computed:
            self.texts[job.place] = job.settle(self.runner), list(answer.seq.tokens)
        answer.seq.close(remember=job.remember)
        if (cache := self.runner.cache) is not None:
            pin = None if job.cancelled else job.pin
            job.kept = KEPT.run(
                lambda: kept(cache, answer.seq.tokens, len(job.ids), pin, answer.seq.owner), lambda: None
            )


def answer_all(model: LoadedModel, jobs: Sequence[Job], n_parallel: int) -> list[GenerationResult]:
    """The answers to all jobs, in their order. Raises the HybridError of the first job that failed."""
    batcher = Batcher(model.runner, n_parallel, step_seconds=inf)
    try:
        for job in jobs:
            batcher.submit(job)
        for job in batcher.run():
            if job.error is not None:
                raise job.error
    finally:
        batcher.close()
    return [job.result for job in jobs]


__all__ = ["Batcher", "Job", "answer_all"]
