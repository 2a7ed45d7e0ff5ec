"""One thread that owns a model and answers jobs from any thread: the basis of a server.

    service = Service(model, n_parallel=8)
    service.submit(job)            # job.on_text, job.on_read and job.on_end are called in the service's thread
    service.cancel(job)            # frees the engine within one op of the model, even in the middle of a prompt
    size = service.call(lambda: seq.save(path)).result()   # other work with the model, between two steps
    service.close()

Nobody else may use the model while the service runs. A fault of the program costs the answers that it touched. Only
MOST_FAULTS of them within FAULT_SECONDS end the service, but not the process: everybody who waits is told, and `fault`
has the last one.
"""

import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from hybrid.quant.ggml.errors import HybridError, UsageError

from ...faults import SidePath, fault_text, is_fault, tell
from ...memory.cache_store import WORTH_FETCHING, CacheStore, Fetch
from ...memory.prefix_tree import Node, Tokens, common_beginning
from ...model import LoadedModel
from .batcher import Batcher, Job
from .slices import STEP_SECONDS

T = TypeVar("T")

STORED = SidePath("texts that are kept on disk")
MOST_FAULTS, FAULT_SECONDS = 3, 60.0  # in steps; after these, the next steps would hardly do better


class BusyError(HybridError):
    """The queue is full."""


class ClosedError(HybridError):
    """The service was closed, or its thread has failed."""


class FaultError(HybridError):
    """The fault that has ended a service's thread, and where it happened."""

    def __init__(self, fault: BaseException) -> None:
        what = str(fault) if isinstance(fault, HybridError) else fault_text(fault)
        super().__init__(f"the model has failed, and nothing more can be answered: {what}. Start the program again.")


@dataclass(frozen=True)
class _Call:
    """A function to run in the service's thread, and a future for its result."""

    function: Callable[[], Any]
    future: "Future[Any] | None" = None

    def run(self) -> None:
        if self.future is None:
            self.function()
        elif self.future.set_running_or_notify_cancel():
            try:
                self.future.set_result(self.function())
            except BaseException as error:
                self.future.set_exception(error)

    def refuse(self, error: BaseException) -> None:
        """Tells whoever waits that nobody runs it, or that a fault has ended it."""
        if self.future is not None and not self.future.done():
            with suppress(InvalidStateError):  # cancelled meanwhile
                self.future.set_exception(error)


_NOTHING = _Call(lambda: None)


class Service:
    """Answers up to n_parallel jobs at a time, while up to `most_waiting` more wait (with several clients: see
    `_is_full`).

    store: a job waits while its text is read from there, if the store has more of it than the memory; other jobs go on.
    """

    def __init__(
        self,
        model: LoadedModel,
        n_parallel: int,
        *,
        most_waiting: int = 64,
        step_seconds: float = STEP_SECONDS,
        store: CacheStore | None = None,
    ) -> None:
        if most_waiting < 0:
            raise UsageError(f"most_waiting = {most_waiting}, expected 0 or more.")
        self.model, self.most_waiting = model, most_waiting
        self.fault: BaseException | None = None
        self.on_closed: Callable[[], None] | None = None  # called in the service's thread when it ends, fault or not
        self.batcher = Batcher(model.runner, n_parallel, step_seconds)
        self.batcher.on_fault = self._count_fault
        self._faults: deque[float] = deque(maxlen=MOST_FAULTS)  # times, by `clock`
        self.clock: Callable[[], float] = time.monotonic
        self._calls: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        self._call = _NOTHING  # the current call, or the last
        self._jobs: set[Job] = set()  # submitted and not ended
        self._untaken: set[Job] = set()  # submitted jobs that the thread has not seen yet
        self._lock = threading.Lock()  # of _jobs, _untaken and _open
        self._open = True
        self._store = store
        self._reading: dict[Fetch, list[Job]] = {}  # jobs that wait for each read
        self._reader = ThreadPoolExecutor(1, "hybrid-reader")  # has no thread until there is something to read
        self._thread = threading.Thread(target=self._run, name="hybrid-service", daemon=True)
        self._thread.start()

    # --- from any thread ---
    @property
    def is_open(self) -> bool:
        """Whether jobs are accepted."""
        return self._open

    @property
    def n_jobs(self) -> int:
        """Jobs that run or wait."""
        return len(self._jobs)

    @property
    def busy(self) -> bool:
        """See `Batcher.busy`."""
        return self.batcher.busy

    @property
    def running(self) -> list[Job]:
        """The jobs that do not wait."""
        return self.batcher.running

    def submit(self, job: Job) -> None:
        """Answers a job as soon as there is room. Raises BusyError if the queue is full; see also `Batcher.check`."""
        self.batcher.check(job)
        with self._lock:
            self._check_open()
            if self._is_full(job.client):
                raise BusyError(
                    f"{len(self._jobs)} requests are being answered or wait, which is the limit. Try again later."
                )
            self._jobs.add(job)
            self._untaken.add(job)
            self._calls.put(_Call(lambda: self._take(job)))

    def _is_full(self, client: object) -> bool:
        """Whether this client may not submit more jobs. A client that has fewer than the average may submit until twice
        as many wait. Jobs whose answers nobody reads do not count.
        """
        counts = Counter(job.client for job in self._jobs if not job.paused)
        n, most = counts.total(), self.batcher.n_parallel + self.most_waiting
        has_its_part = counts[client] * len({*counts, client}) >= n
        return n >= most and (has_its_part or n >= most + self.most_waiting)

    def cancel(self, job: Job) -> None:
        """Ends the job as "interrupt", now. Does nothing if it has ended."""
        if job in self._jobs:
            self.batcher.cancel(job)
            self._calls.put(_NOTHING)  # wakes a thread that waits for work

    def pause(self, job: Job, *, paused: bool) -> None:
        """See `Batcher.pause`."""
        self._calls.put(_Call(lambda: self.batcher.pause(job, paused=paused)))

    def call(self, function: Callable[[], T]) -> "Future[T]":
        """Runs `function` in the service's thread between two steps, for all other work with the model."""
        future: Future[T] = Future()
        with self._lock:
            self._check_open()
            self._calls.put(_Call(function, future))
        return future

    def close(self) -> None:
        """Accepts no more jobs, ends all jobs as "interrupt", and ends the thread. The model stays open."""
        with self._lock:
            self._open = False
        for job in list(self._jobs):
            self.batcher.cancel(job)
        self._calls.put(_NOTHING)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _check_open(self) -> None:
        if not self._open:
            raise self._closed()

    def _closed(self) -> ClosedError:
        why = f": {self.fault}" if self.fault is not None else ""
        return ClosedError(f"the model no longer answers{why}. Start the program again.")

    # --- the service's thread ---
    def known(self, ids: Tokens, owner: bytes = b"") -> int:
        """For `call`: how many tokens of this owner's prompt would be reused if it came now, alone. Changes nothing.

        ids: i32 [n_tok]
        """
        if (cache := self.model.cache) is None or not len(ids):
            return 0
        if self._store is not None and (way := self._store.way(ids, owner)) is not None:
            # keys and values alone lack the logits after the last token
            return way.position if cache.memory.is_recurrent else min(way.position, len(ids) - 1)
        known = cache.find(ids, owner)
        return known.position if known is not None else 0

    def forget(self, ids: Sequence[int], owner: bytes = b"") -> None:
        """For `call`: forgets a text in memory and on disk, except the tokens shared with other texts of its owner."""
        if (cache := self.model.cache) is not None:
            node, n = cache.tree.match(np.asarray(ids, np.int32), owner)
            if node.parent is not None and not node.children and n == node.end:
                while (above := node.parent) is not None and above.parent is not None and len(above.children) == 1:
                    node = above
                cache.forget(node)
        if self._store is not None:
            self._store.files.forget(np.asarray(ids, np.int32), owner=owner)

    def forget_onward(self, node: Node) -> None:
        """For `call`: forgets the texts in memory from this node on, and on disk from the end of the node's text on."""
        cache = self.model.cache
        assert cache is not None
        end = node
        while len(end.children) == 1:
            (end,) = end.children.values()
        ids, owner = cache.tree.text(end, end.end), end.root.owner
        cache.forget(node)
        if self._store is not None:
            self._store.files.forget(ids, onward=True, owner=owner)

    def _run(self) -> None:
        try:
            while self.fault is None and (self._open or self._jobs):
                try:
                    self._turn()
                except BaseException as error:
                    if not is_fault(error) or not self.model.runner.recovers:
                        raise
                    self._recover(error)
        except BaseException as error:
            self.fault = error
        finally:
            with self._lock:
                self._open = False
            try:
                self._give_up()
                self._reader.shutdown()
            finally:
                if self.on_closed is not None:
                    self.on_closed()

    def _turn(self) -> None:
        """Runs the calls of other threads, then a step."""
        self._take_calls(wait=not self.batcher.busy)
        if self.batcher.busy:
            self._end(self.batcher.step())

    def _recover(self, error: BaseException) -> None:
        """After a fault outside a step: tells whoever waited for the call or the answer that it has ended."""
        tell("a fault between two steps", error)
        self._count_fault(error)
        self._call.refuse(error)
        with self._lock:
            for job in self._untaken:
                self._calls.put(_Call(partial(self._take, job)))
            elsewhere = {*self._untaken, *self.batcher.jobs, *chain.from_iterable(self._reading.values())}
            lost = [job for job in self._jobs if job not in elsewhere]
        for job in lost:
            if not job.done:
                job.fail(error)
                job.done = True
        self._end(lost)

    def _count_fault(self, error: BaseException) -> None:
        """Too many faults in a short time end the service."""
        self._faults.append(self.clock())
        if len(self._faults) == MOST_FAULTS and self._faults[-1] - self._faults[0] < FAULT_SECONDS:
            self.fault = error

    def _take_calls(self, *, wait: bool) -> None:
        """Runs the calls of other threads; `wait` until there is a call."""
        if wait and (self._open or self._jobs):  # jobs without work: their texts are being read
            self._call = self._calls.get()
            self._call.run()
        while True:
            try:
                self._call = self._calls.get_nowait()
            except queue.Empty:
                return
            self._call.run()

    def _take(self, job: Job) -> None:
        """Passes a job to the batcher, after its text was read from disk."""
        with self._lock:
            if job not in self._untaken:
                return  # it was queued again after a fault, but was taken already
            self._untaken.discard(job)
        self._begin(job)

    def _begin(self, job: Job) -> None:
        at_once = self._store is None or job.cancelled or job.prompt_top is not None
        if at_once or not STORED.run(lambda: self._waits_for_its_text(job), lambda: False):
            self._start(job)

    def _start(self, job: Job) -> None:
        try:
            self.batcher.submit(job)
        except BaseException as error:
            job.fail(error)
            job.done = True
            self._end([job])

    def _waits_for_its_text(self, job: Job) -> bool:
        """Whether its text is being read from disk now: the job is taken after that."""
        assert self._store is not None
        for running, others in self._reading.items():
            if running.owner == job.text_owner and common_beginning(running.ids, job.tokens) >= WORTH_FETCHING:
                others.append(job)  # it may have all of it, or most
                return True
        fetch = self._store.begin(job.ids, job.settle(self.model.runner))
        if fetch is None and job.applied is not None and (start := job.applied.start):
            fetch = self._store.begin(job.ids[:start], job.owner)
        if fetch is None:
            return False
        read = self._reader.submit(self._store.fetch, fetch)
        read.add_done_callback(lambda read: self._calls.put(_Call(lambda: self._has_read(fetch, read))))
        self._reading[fetch] = [job]
        return True

    def _has_read(self, fetch: Fetch, read: "Future[None]") -> None:
        first, *others = self._reading.pop(fetch)
        if STORED.run(lambda: self._is_read(fetch, read), lambda: True):
            self._start(first)
        else:
            self._begin(first)  # by other stored text, or without any
        for job in others:
            self._begin(job)

    def _is_read(self, fetch: Fetch, read: "Future[None]") -> bool:
        """Whether the text is in memory now. Returns False if it is damaged on disk."""
        assert self._store is not None
        if (fault := read.exception()) is not None:
            fetch.failed = True
        try:
            self._store.end(fetch)
        finally:
            self.model.memory.end_loan(fetch)  # whatever has failed
        if fault is not None:
            raise fault
        return not fetch.failed

    def _end(self, jobs: list[Job]) -> None:
        for job in jobs:
            with self._lock:
                self._jobs.discard(job)
            if job.on_end is not None:
                try:
                    job.on_end()
                except BaseException as error:
                    if not is_fault(error):
                        raise
                    tell("a fault in telling an answer's end", error)

    def _give_up(self) -> None:
        """Tells everybody who still waits that nothing more comes."""
        try:
            self.batcher.close()
        except BaseException as error:  # after a fault nothing is sure to work; whoever waits is told all the same
            self.fault = self.fault or error
        left = list(self._jobs)
        for job in left:
            job.done = True
        self._end(left)
        while not self._calls.empty():
            self._calls.get_nowait().refuse(self._closed())
