"""A stage of a model in a worker's process: it receives the leader's orders, and rows from the stage before it.

Streams are Dask's own (`distributed.comm`), encrypted if the cluster is. Messages are dictionaries; the first one
identifies the sender:

    {"who": "leader", "next": address or None}   answered with {"ready": True}; then {"n": number, "order": pickled}
    {"who": "before"}                            then {"n": number, "rows": f32 bytes, "shape": [tok, width]}

and to the leader {"n": number, "answer": pickled}, {"n": number, "error": pickled} or {"note": a line}. With
{"stay": True} the leader leaves to open the stages again: this stage's files stay. A thread carries out orders, one
after the other; Dask's thread must answer its scheduler meanwhile.
"""

import asyncio
import pickle
import threading
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
from distributed import Worker, get_worker
from distributed.comm import CommClosedError, connect, listen

from hybrid.infer.stages.orders import Opening, Order, Pass
from hybrid.infer.stages.stage import Stage
from hybrid.infer.stages.stage_files import StageFiles, sweep
from hybrid.infer.stages.worker_fit import ModelAsked
from hybrid.quant.ggml.errors import ClusterError

from .held_models import HERE

Message = dict[str, Any]
FOLDER = "hybrid-stages"  # name of the folder for kept files, beside Dask's folder of the worker
LEFT_SECONDS = 1800.0  # age after which files of a killed worker are removed
LAST_SECONDS = 2.0  # limit for sending the last message


class Sender:
    """A queue of messages for a stream; `send` may be called from any thread."""

    def __init__(self, comm: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.comm, self._loop = comm, loop
        self._queue: asyncio.Queue[Message | None] = asyncio.Queue()
        self._task = loop.create_task(self._write())

    def send(self, message: Message) -> None:
        """Queues a message; does not wait."""
        self._loop.call_soon_threadsafe(self._queue.put_nowait, message)

    async def _write(self) -> None:
        try:
            while (message := await self._queue.get()) is not None:
                await self.comm.write(message)
            await self.comm.close()
        except (CommClosedError, OSError):
            pass  # the reader notices

    def finish(self, message: Message) -> None:
        """Queues the last message. Call it in the loop's thread."""
        self._queue.put_nowait(message)
        self._queue.put_nowait(None)
        self._loop.call_later(LAST_SECONDS, self.close)

    def close(self) -> None:
        """Stops sending. Call it in the loop's thread."""
        self._task.cancel()
        self.comm.abort()


def loop_of(one: Any) -> asyncio.AbstractEventLoop:
    """The event loop of a worker or client."""
    loop: asyncio.AbstractEventLoop = one.loop.asyncio_loop
    return loop


class Station:
    """A stage on a worker: see the top of this file. key: under which the worker holds it; stays: another station takes
    its place and needs its files."""

    def __init__(self, worker: Worker, stage: Stage, key: str) -> None:
        self.stage, self.key, self._worker, self.stays = stage, key, worker, False
        self._closed, self._noted = False, False
        self._loop = loop_of(worker)
        self._orders: SimpleQueue[tuple[int, bytes] | None] = SimpleQueue()
        self._rows: SimpleQueue[np.ndarray | None] = SimpleQueue()
        self._leader: Sender | None = None
        self._next: Sender | None = None
        self._comms: list[Any] = []
        self._thread = threading.Thread(target=self._work, name=f"hybrid-{key}", daemon=True)
        self._thread.start()
        self.address: str = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()

    # --- in Dask's loop ---
    async def _listen(self) -> str:
        scheme, _, place = self._worker.address.partition("://")
        host = place.rpartition(":")[0]
        arguments = self._worker.security.get_listen_args("worker")
        self._listener = await listen(f"{scheme}://{host}:0", self._meet, **arguments)
        address: str = self._listener.contact_address
        return address

    async def _meet(self, comm: Any) -> None:
        self._comms.append(comm)
        try:
            hello = await comm.read()
            if hello["who"] == "leader":
                await self._obey_leader(comm, hello["next"])
            else:
                while True:
                    message = await comm.read()
                    self._rows.put(np.frombuffer(message["rows"], np.float32).reshape(message["shape"]))
        except (CommClosedError, OSError):
            pass
        if comm is getattr(self._leader, "comm", None):  # the leader has gone
            threading.Thread(target=HERE.forget, args=(self.key,), daemon=True).start()

    async def _obey_leader(self, comm: Any, after: str | None) -> None:
        self._leader = Sender(comm, self._loop)
        if after is not None:
            arguments = self._worker.security.get_connection_args("worker")
            self._next = Sender(await connect(after, **arguments), self._loop)
            self._next.send({"who": "before"})
        self._leader.send({"ready": True})
        while True:
            message = await comm.read()
            if "stay" in message:
                self.stays = True
            else:
                self._orders.put((message["n"], message["order"]))

    # --- in the thread that computes ---
    def _work(self) -> None:
        while (item := self._orders.get()) is not None:
            n, order = item
            if self._closed:  # no one waits for the answer
                continue
            try:
                message = self._obeyed(pickle.loads(order))
            except BaseException as error:
                message = {"error": _pickled(error)}
            leader, after = self._leader, self._next
            if leader is not None and self.stage.files.trouble and not self._noted:
                leader.send({"note": self.stage.files.trouble})
                self._noted = True
            if message is None or leader is None:
                continue
            sender = after if "rows" in message and after is not None else leader
            sender.send({"n": n, **message})

    def _obeyed(self, order: Order) -> Message | None:
        """Carries out an order; returns the message to send, or None."""
        if not isinstance(order.what, Pass):
            answer = self.stage.obey(order)
            return {"answer": pickle.dumps(answer, 5)} if order.is_answered else None
        entering = None
        if self.stage.blocks.start:
            entering = self._rows.get()
            if entering is None:  # the stream closes
                return None
        leaving = self.stage.obey(order, entering)
        if self._next is None:
            return {"answer": pickle.dumps(leaving, 5)}
        assert isinstance(leaving, np.ndarray)
        return {"rows": leaving.tobytes(), "shape": list(leaving.shape)}

    def close(self) -> None:
        """Ends the thread, after its current order, and the streams."""
        self._closed = True
        self._orders.put(None)
        self._rows.put(None)
        self._thread.join()
        self.stage.close(remove=not self.stays)
        self._loop.call_soon_threadsafe(self._close)

    def leave_files(self) -> None:
        """Keeps the files when it is closed: another station takes its place."""
        self.stays = True

    def _close(self) -> None:
        self._listener.stop()
        for sender in (self._leader, self._next):
            if sender is not None:
                sender.close()
        for comm in self._comms:
            comm.abort()


def _pickled(error: BaseException) -> bytes:
    try:
        data = pickle.dumps(error, 5)
        pickle.loads(data)
    except Exception:
        return pickle.dumps(ClusterError(f"{type(error).__name__}: {error}"), 5)
    return data


def open_station(asked: ModelAsked, opening: Opening, key: str, before: str, run: str) -> str:
    """A task: opens a station on this worker and returns its address. before: key of an older one to close; run: name
    of the folder for the files of one leader."""
    worker = get_worker()
    HERE.change(before, Station.leave_files)
    HERE.forget(before)
    path, options = asked.found()
    own = replace(
        opening,
        adapters=tuple((str(file), scale) for file, scale in options.lora),
        n_threads=opening.n_threads or HERE.n_threads,
    )
    folder = Path(worker.local_directory).parent / FOLDER
    sweep(folder, LEFT_SECONDS)

    def made() -> Station:
        files = StageFiles(folder / run, opening.blocks)
        try:
            return Station(worker, Stage.open(path, own, files), key)
        except BaseException:
            files.close(remove=True)
            raise

    return HERE.thing(key, made).address


async def close_station(key: str) -> None:
    """Removes a station and all that it holds from a worker, at the end of the run."""
    await asyncio.to_thread(HERE.forget, key)
