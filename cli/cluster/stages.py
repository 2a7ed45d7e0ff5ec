"""A model in stages on the workers of a cluster: the leader's side of infer/stages.

Dask starts a station (stage_worker.py) in each of n workers and notices lost workers. Orders and answers use separate
streams, and rows go directly from one station to the next.
"""

import asyncio
import pickle
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack
from uuid import uuid4

from distributed import CancelledError, Future, KilledWorker
from distributed.comm import CommClosedError, connect

from hybrid.infer import LoadedModel, LoadOptions, Stop
from hybrid.infer.loading.options import LoadFields, merged
from hybrid.infer.stages.line import Answer, Ticket
from hybrid.infer.stages.loading import load_staged
from hybrid.infer.stages.orders import Opening, Order, Pass
from hybrid.infer.stages.worker_fit import ModelAsked
from hybrid.quant.ggml.errors import ClusterError, LostStageError, UsageError
from hybrid.quant.ggml.machine_memory import MachineMemory, machine_memory, memory_place

from ..options.cluster_options import ClusterAddress
from .connection import ClusterConnection, connected
from .stage_worker import Sender, close_station, loop_of, open_station

BACK_SECONDS = 600.0  # waiting time for a lost worker
LOOK_SECONDS = 0.05  # between two checks of `stop`
ANSWER_SECONDS = 1.0  # waiting time for answers, before their workers are checked
CLOSE_SECONDS = 30.0  # for stations to finish their orders


class _Ticket:
    """An order in progress, and the answers it has received."""

    def __init__(self, n: int) -> None:
        self.answers: list[Answer] = [None] * n
        self.missing = n
        self.error: BaseException | None = None
        self._done = threading.Event()

    def answer(self, i: int, value: Answer) -> None:
        self.answers[i] = value
        self.missing -= 1
        if not self.missing:
            self._done.set()

    def fail(self, error: BaseException) -> None:
        self.error = self.error or error
        self._done.set()

    def wait(self, stop: Stop | None) -> Sequence[Answer]:
        while not self._done.wait(LOOK_SECONDS):
            if stop is not None:
                stop.check()
        if self.error is not None:
            raise self.error
        return self.answers


def _memory_here() -> tuple[str, MachineMemory]:
    """On a worker: the name of its memory's machine, and the size."""
    return memory_place(), machine_memory()


def _part(memory: MachineMemory, n: int) -> MachineMemory:
    """The share of memory of each of n workers on one machine."""
    return MachineMemory(memory.total // n, memory.available // n, memory.mappable)


class ClusterLine:
    """n stages, each on its own worker; n = AUTO: as many as are opened.

    said: called with a line if a worker cannot keep checkpoints; back_seconds: how long to wait for a lost worker
    """

    def __init__(
        self,
        connection: ClusterConnection,
        asked: ModelAsked,
        n: int,
        said: Callable[[str], None],
        back_seconds: float = BACK_SECONDS,
    ) -> None:
        self.connection, self.asked, self.n, self.back_seconds = connection, asked, n, back_seconds
        self.said, self._run = said, uuid4().hex
        self._client = connection.client
        self._loop = loop_of(self._client)
        self._key = ""
        self._last = ""  # key of the newest stations
        self._workers: list[str] = []
        self._order: list[str] = []
        self._gone: set[str] = set()
        self._senders: list[Sender] = []
        self._openings: Sequence[Opening] = ()
        self._tickets: dict[int, tuple[_Ticket, int]] = {}  # ticket, and the stage of its first answer
        self._count = 0
        self._failure: BaseException | None = None

    def machines(self) -> list[MachineMemory]:
        """Memory of each worker, the largest first."""
        self._found(wait=False)
        answers = self._client.run(_memory_here, on_error="return")
        found = {worker: answer for worker, answer in answers.items() if isinstance(answer, tuple)}
        if len(found) < max(1, self.n):  # a worker has gone
            raise self._too_few(len(found))
        sharing = Counter(place for place, _ in found.values())
        parts = {worker: _part(memory, sharing[place]) for worker, (place, memory) in found.items()}
        self._order = sorted(parts, key=lambda worker: -parts[worker].available)
        return [parts[worker] for worker in self._order[: self.n or None]]

    def _found(self, *, wait: bool, stop: Stop | None = None) -> list[str]:
        """n workers; workers that already have a stage come first."""
        begin = time.monotonic()
        while True:
            self._check_scheduler()
            there = [worker for worker in self.connection.labels() if worker not in self._gone]
            if len(there) >= max(1, self.n):
                order = self._workers or self._order
                return sorted(there, key=lambda w: order.index(w) if w in order else len(there))[: self.n or None]
            if not wait:
                raise self._too_few(len(there))
            if time.monotonic() - begin > self.back_seconds:
                raise ClusterError(
                    f"{self.n} stages need as many workers, there are {len(there)}: no other has joined "
                    f"within {self.back_seconds:.0f} seconds. Start one, then this again."
                )
            if stop is not None:
                stop.check()
            time.sleep(LOOK_SECONDS)

    def _too_few(self, n: int) -> UsageError:
        return UsageError(f"{max(1, self.n)} stages need as many workers, there are {n}. Start more of them.")

    def _check_scheduler(self) -> None:
        if self._client.status != "running":
            raise ClusterError("the scheduler has gone: start it again, then this.")

    def open(self, openings: Sequence[Opening], stop: Stop | None = None) -> None:
        """As `Line.open`. ClusterError: no replacement has come for a lost worker."""
        again = bool(self._workers)
        self.n = len(openings)
        while True:
            self._hang_up(stay=True)
            found = self._found(wait=again, stop=stop)
            before, self._key = self._last, f"stage-{uuid4().hex[:12]}"
            self._last = self._key
            if again:  # workers that stay keep their blocks, whose tensors are in their memory
                old = [worker if worker in found else None for worker in self._workers]
                new = iter(worker for worker in found if worker not in self._workers)
                found = [worker or next(new) for worker in old]
            self._workers, self._openings = found, openings
            tasks = [
                self._client.submit(
                    open_station,
                    self.asked,
                    opening,
                    self._key,
                    before,
                    self._run,
                    workers=[worker],
                    pure=False,
                    retries=0,
                )
                for worker, opening in zip(found, openings, strict=True)
            ]
            try:
                self._client.sync(self._connect, self._opened(tasks))
                return
            except (KilledWorker, CancelledError, CommClosedError, OSError) as error:
                self._check_scheduler()
                if not again:
                    raise ClusterError(
                        f"a worker was lost while its stage was opened ({type(error).__name__}). See whether it and "
                        "its scheduler are there, then start this again."
                    ) from None
                if stop is not None:
                    stop.check()
                time.sleep(LOOK_SECONDS)

    def _opened(self, tasks: Sequence["Future[str]"]) -> list[str]:
        """Addresses of the stations. CommClosedError: a worker has gone while its station was opened, or before its
        answer was here; Dask would wait for it."""
        while True:
            self._check_scheduler()
            if not set(self._workers) <= set(self.connection.labels()):
                raise CommClosedError("a worker has gone")
            if not all(task.done() for task in tasks):
                time.sleep(LOOK_SECONDS)
                continue
            with suppress(TimeoutError):
                addresses: list[str] = self._client.sync(self._answers, tasks)
                return addresses

    async def _answers(self, tasks: Sequence["Future[str]"]) -> list[str]:
        """The results of tasks. TimeoutError: not complete within ANSWER_SECONDS."""
        gathered: list[str] = await asyncio.wait_for(
            self._client.gather(list(tasks), asynchronous=True), ANSWER_SECONDS
        )
        return gathered

    async def _connect(self, addresses: Sequence[str]) -> None:
        arguments = self._client.security.get_connection_args("client")
        comms = [await connect(address, **arguments) for address in addresses]
        for comm, after in zip(comms, [*addresses[1:], None], strict=True):
            await comm.write({"who": "leader", "next": after})
        for comm in comms:
            await comm.read()
        self._senders, self._failure = [Sender(comm, self._loop) for comm in comms], None
        for i, comm in enumerate(comms):
            self._loop.create_task(self._listen(i, comm, self._key))

    async def _listen(self, i: int, comm: Any, key: str) -> None:
        try:
            while True:
                message = await comm.read()
                if "note" in message:
                    self.said(f"{self._workers[i]}: {message['note']}")
                    continue
                ticket, first = self._tickets.get(message["n"], (None, 0))
                if "error" in message:
                    self._fail(pickle.loads(message["error"]), key)
                elif ticket is not None:
                    ticket.answer(i - first, pickle.loads(message["answer"]))
                    if not ticket.missing:
                        del self._tickets[message["n"]]
        except (CommClosedError, OSError):
            if key == self._key:
                blocks = self._openings[i].blocks
                self._gone.add(self._workers[i])
                gone = LostStageError(f"the worker with blocks {blocks.start} to {blocks.stop - 1} has gone.")
                self._fail(gone, key)

    def _fail(self, error: BaseException, key: str) -> None:
        """Fails all orders in progress and all later ones."""
        if key != self._key or self._failure is not None:
            return
        self._failure = error
        tickets, self._tickets = self._tickets, {}
        for ticket, _ in tickets.values():
            ticket.fail(error)

    def put(self, order: Order) -> Ticket:
        """As `Line.put`."""
        is_pass = isinstance(order.what, Pass)
        ticket = _Ticket(1 if is_pass else self.n if order.is_answered else 0)
        if self._failure is not None:
            ticket.fail(self._failure)
            return ticket
        self._count = n = self._count + 1
        data = (
            [pickle.dumps(order, 5)] * self.n
            if is_pass
            else [pickle.dumps(order.to(opening.blocks), 5) for opening in self._openings]
        )
        self._loop.call_soon_threadsafe(self._send, n, ticket, self.n - 1 if is_pass else 0, data)
        return ticket

    def _send(self, n: int, ticket: _Ticket, first: int, data: Sequence[bytes]) -> None:
        if self._failure is not None:
            ticket.fail(self._failure)
            return
        if ticket.missing:
            self._tickets[n] = ticket, first
        for sender, order in zip(self._senders, data, strict=True):
            sender.send({"n": n, "order": order})

    def _hang_up(self, *, stay: bool) -> None:
        """Makes the stations drop everything when no one uses them. stay: except their files, for their successors."""
        self._key = ""
        senders, self._senders = self._senders, []

        def close() -> None:
            for sender in senders:
                if stay:
                    sender.finish({"stay": True})
                else:
                    sender.close()

        if senders and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(close)

    def close(self) -> None:
        there = [worker for worker in self._workers if worker in self.connection.labels()]
        if there and self._client.status == "running":
            with suppress(OSError, RuntimeError):  # a worker that has gone or does not answer closes its station itself
                self._client.sync(self._end, there)
        self._hang_up(stay=False)

    async def _end(self, workers: list[str]) -> None:
        ended = self._client.run(close_station, self._last, workers=workers, on_error="ignore")
        await asyncio.wait_for(ended, CLOSE_SECONDS)


@contextmanager
def loader(
    path: Path, options: LoadOptions, address: ClusterAddress, n: int, said: Callable[[str], None]
) -> Iterator[Callable[..., LoadedModel]]:
    """A function that loads the model at `path` in n stages, or AUTO, on workers of a cluster; its keywords replace
    fields of `options`. said: called with a line if a worker is lost or too small.

    ClusterError, UsageError: too few workers, workers that do not fit, or a model that cannot be cut there.
    """
    with connected(address, n_threads=options.n_threads) as connection:
        asked = ModelAsked.of(path, replace(options, n_ctx=options.n_ctx or 1))
        connection.on_refused = said
        connection.hold(asked)

        def load(**fields: Unpack[LoadFields]) -> LoadedModel:
            line = ClusterLine(connection, asked, n, said)
            return load_staged(path, merged(options, fields), n, lambda _: line, said)

        yield load


@contextmanager
def staged(
    path: Path, options: LoadOptions, address: ClusterAddress, n: int, said: Callable[[str], None]
) -> Iterator[LoadedModel]:
    """The model that `loader` loads."""
    with loader(path, options, address, n, said) as load, load() as model:
        yield model
