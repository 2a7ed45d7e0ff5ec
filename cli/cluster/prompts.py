"""A file of prompts answered by the workers of a cluster: the same bytes in the same order as from one process.

A task is one answer; `Schedule` chooses the next ones. When a worker dies, Dask does not know which of its tasks had
begun: those tasks are tried again one at a time, each alone in its process, the others as usual. A prompt that
kills a worker again is set aside: its line has "error" and no text.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from distributed import CancelledError, Event, Future, KilledWorker
from distributed.comm import CommClosedError

from hybrid.infer.answers.prompt_files.prompt_files import BatchResult, Lines, PromptBatch, PromptLine
from hybrid.infer.answers.prompt_files.prompt_groups import Group, plan
from hybrid.infer.answers.prompt_files.schedule import GroupBranch, Schedule
from hybrid.infer.stages.worker_fit import ModelAsked
from hybrid.quant.ggml.errors import ClusterError, shown

from ..options.cluster_options import ClusterAddress
from . import prompt_worker
from .connection import ClusterConnection, connected
from .fetching import Fetching
from .prompt_worker import BEGINNING, Answered, Run, begun_name

if TYPE_CHECKING:
    from hybrid.infer import LoadOptions
    from hybrid.infer.answers.chat.dialect import ChatOptions
    from hybrid.infer.answers.constraints import Grammar
    from hybrid.infer.progress import AnswerProgress

LOOK_SECONDS = 1.0  # between two checks of the number of slots
ALONE_SECONDS = 20.0  # without any worker, before a note; a dead one is replaced sooner
MOST_DEATHS = 5  # of workers that held an answer which never began: the cluster is failing
PROMPT_RATE = 100.0  # assumed tokens per second, until answers have been timed


@dataclass
class _Asked:
    """An answer in progress. parts: see `Group`; branch: its branch, at the first try; deaths: of workers it was on."""

    number: int
    parts: tuple[int, ...] = ()
    alone: bool = False
    begun: bool = False
    deaths: int = 0
    tries: int = 0
    branch: GroupBranch | None = None


@dataclass(frozen=True)
class ClusterBatch:
    """How to answer a file. key: under which the workers have the `Run`; on_note: called with a line per problem."""

    connection: ClusterConnection
    batch: PromptBatch
    key: str
    on_note: Callable[[str], None] = field(default=lambda line: None)

    def run(
        self, prompts: list[PromptLine], target: Path | TextIO, progress: "AnswerProgress | None" = None
    ) -> BatchResult:
        """Writes the answers to `target`; a file that has some answers is continued, whoever wrote them.

        OSError names the file if it cannot be written, ClusterError the problem of the cluster; the file then holds the
        answers so far.
        """
        before = self.batch.resume(prompts, target) if isinstance(target, Path) else 0
        return _Answers(self, prompts, target, before, progress).run()


@contextmanager
def batch_on(
    address: ClusterAddress,
    batch: PromptBatch,
    options: "LoadOptions",
    form: "Grammar | None",
    asked: "ChatOptions",
    on_note: Callable[[str], None],
) -> Iterator[ClusterBatch]:
    """The workers of `address`, with the model loaded with `options`, ready to answer as `batch` says. form, asked: the
    form and options of lines without their own. ClusterError: see `connected` and `ClusterConnection.hold`."""
    settings = {f.name: getattr(batch, f.name) for f in fields(batch) if f.name not in ("model", "forms")}
    model = batch.model
    loaded = replace(options, n_ctx=model.n_ctx, n_seq_max=batch.n_parallel)
    with connected(address, slots=batch.n_parallel, n_threads=options.n_threads) as connection:
        connection.on_refused = on_note
        run = Run(ModelAsked.of(model.file.path, loaded), settings, form, asked)
        connection.hold(run.model)
        yield ClusterBatch(connection, batch, connection.share(run), on_note)


class _Answers:
    def __init__(
        self,
        asked: ClusterBatch,
        prompts: list[PromptLine],
        target: Path | TextIO,
        before: int,
        progress: "AnswerProgress | None",
    ) -> None:
        self.connection, self.batch, self.key, self.on_note = asked.connection, asked.batch, asked.key, asked.on_note
        self.client = asked.connection.client
        self.prompts, self.before, self.progress = prompts, before, progress
        self.total = len(prompts) * self.batch.n_samples
        self.written = before
        self.slots: dict[str, int] = {}
        self.memory = 0
        self.began = 0.0
        self.done: dict[int, Answered] = {}
        self.waiting: dict[Future[Answered], _Asked] = {}
        self.by_number: dict[int, _Asked] = {}
        self.sums: tuple[int, ...] = (0,) * 6
        self.set_aside: list[int] = []
        self.target, self.is_file = target, isinstance(target, Path)
        self.out = Lines(target)

    def run(self) -> BatchResult:
        """Writes all answers, in the order of the prompts."""
        self.client.subscribe_topic(self.key, self._begun)
        over = threading.Event()
        threading.Thread(target=self._watch, args=(over,), name="hybrid-watch", daemon=True).start()
        try:
            self._answer_all()
        finally:
            over.set()
            self.client.unsubscribe_topic(self.key)
            self.out.close()
            if self.waiting and self.client.status == "running":
                self.client.cancel(list(self.waiting), force=True)
        return replace(BatchResult(self.total - self.before, self.before, *self.sums), set_aside=tuple(self.set_aside))

    def _watch(self, over: threading.Event) -> None:
        """Notes once if there has been no worker for a while: Dask waits for new ones."""
        n_looks = 0
        while n_looks < 2 and not over.wait(ALONE_SECONDS / 2):
            try:
                n_looks = 0 if self.connection.n_workers else n_looks + 1
            except Exception:  # the cluster is closing or gone, which is reported elsewhere
                return
        if not over.is_set():
            self.on_note("no worker is left: waiting for some to join; Ctrl-C ends this")

    def _answer_all(self) -> None:
        self.schedule = Schedule(self._groups())
        running = Fetching[Answered](self.client)
        until, self.began = 0.0, time.monotonic()
        while self.schedule.n_left or self.waiting:
            if self.schedule.n_left and time.monotonic() > until:  # asking takes a round trip to the scheduler
                self.slots, self.memory = self.connection.slots, self.connection.memory
                until = time.monotonic() + LOOK_SECONDS
            for number, parts, branch in self.schedule.next(self.slots, self._rate()):
                running.add(self._ask(_Asked(number, parts, branch=branch)))
            try:
                over = running.next(LOOK_SECONDS if self.schedule.n_left else None)
            except (CancelledError, CommClosedError):
                raise self._lost() from None
            for future, outcome in over:
                asked = self.waiting.pop(future)
                branch = asked.branch
                again = self._over(asked, outcome)
                future.release()
                self.schedule.over(branch)
                if again is not None:
                    if branch is not None:
                        self.schedule.lost(branch)
                    self.schedule.asked_again()
                    running.add(self._ask(again))

    def _groups(self) -> Iterator[Group]:
        """The groups, by numbers of answers."""
        n, first = self.batch.n_samples, self.before
        left = range(first // n, len(self.prompts))
        ids = [self.batch.ids(self.prompts[i]) for i in left]
        numbers = range(first, self.total)
        return iter(
            replace(group, members=tuple(numbers[i] for i in group.members))
            for group in plan(
                [ids[number // n - left.start] for number in numbers],
                self.batch.max_tokens if self.batch.max_tokens >= 0 else self.batch.model.n_ctx,
                self.connection.n_workers,
            )
        )

    # --- asking ---
    def _rate(self) -> float:
        """Answers per second of all workers; 0.0 until each has done some."""
        n_done = self.total - self.before - self.schedule.n_left - len(self.waiting)
        return n_done / (time.monotonic() - self.began) if n_done > sum(self.slots.values()) else 0.0

    def _beginning(self, branch: GroupBranch) -> "Future[prompt_worker.Beginning]":
        """The future of a branch's `Beginning`. It states a size so large that Dask does not move it; for the last
        branches, a
        size that takes as long to move as the beginning takes to read.
        """
        if branch.beginning is None:
            group, rate = branch.group, self._rate()
            n_bytes = self.memory * 9 // 10
            if branch.last:
                each = sum(self.slots.values()) / rate if rate else group.work / len(group.members) / PROMPT_RATE
                n_bytes = min(n_bytes, int(group.reading * each * prompt_worker.Beginning.BYTES_PER_SECOND))
            branch.beginning = self.client.submit(
                prompt_worker.begin,
                n_bytes,
                key=f"{BEGINNING}-{self.key}-{group.members[0]}",
                pure=False,
                **_there(branch),
            )
        beginning: Future[prompt_worker.Beginning] = branch.beginning
        return beginning

    def _ask(self, asked: _Asked) -> "Future[Answered]":
        number = asked.number
        asked.begun = False
        line = self.prompts[number // self.batch.n_samples].line
        # a new name per try: Dask knows the last one as finished
        name = f"hybrid-{'alone' if asked.alone else 'answer'}-{self.key}-{number}-{asked.tries}"
        asked.tries += 1
        branch = asked.branch
        future: Future[Answered] = self.client.submit(
            prompt_worker.answer,
            self.key,
            number,
            line,
            asked.alone,
            asked.parts,
            branch and self._beginning(branch),
            key=name,
            pure=False,
            priority=int(asked.alone),
            **_there(branch),
        )
        self.waiting[future] = self.by_number[number] = asked
        return future

    def _begun(self, event: tuple[float, int]) -> None:
        """Handles an event, in Dask's thread."""
        if (asked := self.by_number.get(event[1])) is not None:
            asked.begun = True

    # --- outcomes ---
    def _over(self, asked: _Asked, outcome: Answered | Exception) -> _Asked | None:
        """Handles an answer or a failure; returns an answer that must be computed again, or None."""
        if isinstance(outcome, KilledWorker):
            return self._killed(asked, outcome)
        if isinstance(outcome, CancelledError):
            if asked.tries > MOST_DEATHS:
                raise self._lost()
            asked.branch = None  # Dask may have forgotten its Beginning
            return asked
        if (
            isinstance(outcome, MemoryError) and asked.branch is not None
        ):  # from Dask: a new worker has less memory than the others
            asked.branch = None
            return asked
        if isinstance(outcome, Exception):
            raise outcome
        self._answered(asked.number, outcome)
        return None

    def _lost(self) -> ClusterError:
        address = shown(self.connection.address.text)
        goes_on = f" The same command goes on after those in {shown(self.target)}." if self.is_file else ""
        return ClusterError(
            f"--cluster {address}: its scheduler is gone, after {self.written} of {self.total} answers.{goes_on}"
        )

    def _killed(self, asked: _Asked, error: KilledWorker) -> _Asked | None:
        begun = asked.begun
        if asked.alone:
            event = Event(begun_name(self.key, asked.number), client=self.client)
            begun = event.is_set()
            event.clear()
        asked.deaths += 1
        if (asked.alone and begun) or asked.deaths > MOST_DEATHS:
            self._put_aside(asked, getattr(error.last_worker, "address", "?"))
            return None
        asked.alone = asked.alone or begun or asked.deaths > 1
        asked.branch = None
        return asked

    def _put_aside(self, asked: _Asked, worker: str) -> None:
        prompt, sample = self.prompts[asked.number // self.batch.n_samples], asked.number % self.batch.n_samples
        error = f"workers died over it {asked.deaths} times"
        values = {"index": prompt.index, "id": prompt.id, "sample": sample, "error": error}
        line = json.dumps(values | {"key": self.batch.key(prompt, sample)}, ensure_ascii=False)
        self.on_note(f"prompt {prompt.index + 1} is set aside: {error}, the last one at {shown(worker)}")
        self.set_aside.append(prompt.index)
        self._answered(asked.number, Answered(line, (0,) * len(self.sums)))

    def _answered(self, number: int, answered: Answered) -> None:
        del self.by_number[number]
        self.done[number] = answered
        while (now := self.done.pop(self.written, None)) is not None:
            self.out.write(now.line)
            self.written += 1
            self.sums = tuple(a + b for a, b in zip(self.sums, now.counted, strict=True))
            if self.progress is not None:
                self.progress(self.written, self.total)


def _there(branch: GroupBranch | None) -> dict[str, Any]:
    """Keywords for Dask: prefer the branch's worker, or any if that is gone."""
    return {"workers": [branch.worker], "allow_other_workers": True} if branch and branch.worker else {}
