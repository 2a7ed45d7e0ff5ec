"""The connection of a command to the workers of `--cluster`.

    with connected(address, slots=8) as connection:
        connection.hold(ModelAsked.of(path, options))     # every worker has that file; later ones are checked also
        future = connection.client.submit(function, ...)  # Dask's own client: its retries, stealing, as_completed

`local:N` starts N processes on this machine's loopback interface, with a certificate that only they have: anyone who
can talk to a scheduler can run any code on its workers. They end with the connection.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

import dask
from distributed import Client, LocalCluster, Security, WorkerPlugin

from hybrid.infer.stages.worker_fit import ModelAsked, WorkerFacts, program_version
from hybrid.quant.ggml.errors import ClusterError, HybridError, shown

from .. import console
from ..options.cluster_options import ClusterAddress
from .local_workers import kept_up, loop_without_interrupts
from .plugin import TOPIC, Fits, Shares, checked, label

CONNECT_SECONDS = 20
START_SECONDS = 120  # until all processes of local:N have connected
NO_LIMIT = 1 << 53  # bytes
LOST_SECONDS = 60  # until a dead process of local:N is replaced; imports are slow on a busy machine


class ClusterConnection:
    """A connection to workers.

    client      Dask's client
    n_threads   threads of each worker's models; 0: one per task that Dask gives it at a time
    on_refused  called, in a thread of Dask, with one line if a worker that joins later does not fit
    """

    def __init__(self, client: Client, address: ClusterAddress, n_threads: int = 0) -> None:
        self.client, self.address, self.n_threads = client, address, n_threads
        self.on_refused: Callable[[str], None] = console.note
        self._name = f"hybrid-{uuid4().hex[:12]}"
        self._plugins: list[str] = []
        client.subscribe_topic(TOPIC, self._told)

    @property
    def n_workers(self) -> int:
        """Number of workers now."""
        return len(self._infos())

    @property
    def slots(self) -> dict[str, int]:
        """For each worker, by address, the number of tasks that it can run at a time."""
        return {address: info["nthreads"] for address, info in self._infos().items()}

    @property
    def memory(self) -> int:
        """Memory limit of the smallest worker, in bytes: Dask refuses tasks that need more."""
        limits = (info["memory_limit"] for info in self._infos().values())
        return min((limit for limit in limits if limit), default=NO_LIMIT)

    @property
    def n_slots(self) -> int:
        """Number of tasks that can run now."""
        return sum(self.slots.values())

    def labels(self) -> dict[str, str]:
        """For each worker, by address, its name in messages."""
        return {address: label(info["name"], address) for address, info in self._infos().items()}

    def hold(self, asked: ModelAsked | None) -> None:
        """Checks all present and future workers: the version of the program and, with `asked`, that they have the model
        file and give results with the same bits. Loads nothing: `holding.open_model` in a task does. ClusterError names
        the first worker that does not fit, and why."""
        first: WorkerFacts | None = None
        infos = self._infos()
        for worker, info in infos.items():  # in turn: each is compared with the first
            n_threads = self.n_threads or info["nthreads"]
            try:
                found = self.client.run(
                    checked, program_version(), first, asked, n_threads, workers=[worker], on_error="return"
                )
                answer = found.get(worker)
            except OSError as error:  # the worker has gone
                answer = error
            if isinstance(answer, HybridError):
                raise ClusterError(f"{label(info['name'], worker)}: {answer}.")
            if isinstance(answer, ImportError):
                raise ClusterError(
                    f"{label(info['name'], worker)} has no such hybrid ({answer}). Install the same version."
                )
            first = first or (answer if isinstance(answer, WorkerFacts) else None)
        if first is None:
            raise ClusterError(f"--cluster {shown(self.address.text)}: no worker answers. Start some, then this again.")
        self._register(Fits(program_version(), first, asked, self.n_threads), self._name)

    def share(self, value: object) -> str:
        """Sends a value to every worker, present and future; a task reads it with `HERE.shared(key)`. Returns the key,
        whose `HERE.thing(key, ...)` is closed with the connection."""
        key = f"{self._name}-{len(self._plugins)}"
        self._register(Shares(key, value), key)
        return key

    def _register(self, plugin: WorkerPlugin, name: str) -> None:
        if name in self._plugins:
            self._remove(name)
        self._plugins.append(name)
        with suppress(OSError):  # ignore workers that have gone
            self.client.register_plugin(plugin, name=name)

    def _remove(self, name: str) -> None:
        self._plugins.remove(name)
        with suppress(OSError, KeyError, ValueError):
            self.client.unregister_worker_plugin(name)

    def close(self) -> None:
        """Makes the workers drop all that they hold for this connection."""
        with suppress(Exception):  # the cluster may be broken
            self.client.unsubscribe_topic(TOPIC)
            for name in reversed(self._plugins[:]):
                if self.client.status == "running":
                    self._remove(name)

    def _infos(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = self.client.scheduler_info(n_workers=-1).get("workers", {})
        return found

    def _told(self, event: tuple[float, dict[str, str]]) -> None:
        told = event[1]
        self.on_refused(f"{told['refused']} is not used: {told['why']}.")


@contextmanager
def connected(address: ClusterAddress, *, slots: int = 1, n_threads: int = 0) -> Iterator[ClusterConnection]:
    """The workers of `address`, for the duration of the context.

    slots      tasks at a time per worker of local:N; other workers were started with their own number
    n_threads  threads of each worker's models; 0: one with local:N, otherwise as many as tasks at a time

    ClusterError: no scheduler answers, there are no workers, or one has another version of this program.
    """
    _quiet()
    try:
        with _local(address.n_workers, slots) if address.kind == "local" else _remote(address) as client:
            connection = ClusterConnection(client, address, n_threads or (1 if address.kind == "local" else 0))
            try:
                client.wait_for_workers(address.n_workers or 1, timeout=3 * CONNECT_SECONDS)
                connection.hold(None)
                yield connection
            finally:
                connection.close()
    except (TimeoutError, asyncio.CancelledError):
        raise ClusterError(
            f"--cluster {shown(address.text)}: no worker has come. Start some, then this again."
        ) from None


def _quiet() -> None:
    """Silences Dask's log: our own messages report problems in one line."""
    dask.config.set(
        {
            "distributed.scheduler.allowed-failures": 0,
            "distributed.deploy.lost-worker-timeout": LOST_SECONDS,
            "distributed.scheduler.http.routes": [],
            "distributed.worker.http.routes": [],
        }
    )
    for name in [*logging.root.manager.loggerDict]:
        if name.split(".")[0] in ("distributed", "tornado", "asyncio"):  # Dask sets a level for each
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)


@contextmanager
def _local(n: int, slots: int) -> Iterator[Client]:
    with loop_without_interrupts() as loop, dask.config.set({"distributed.comm.timeouts.connect": START_SECONDS}):
        try:
            cluster = LocalCluster(
                loop=loop,
                n_workers=n,
                threads_per_worker=slots,
                processes=True,
                host="127.0.0.1",
                protocol="tls://",
                security=Security.temporary(),
                dashboard_address="127.0.0.1:0",
                memory_limit=0,
                silence_logs=logging.CRITICAL,
                scheduler_kwargs={"dashboard": False},
            )
        except RuntimeError as error:
            reason = shown(str(error.__cause__ or error).splitlines()[0])
            raise ClusterError(
                f"--cluster local:{n}: its processes did not start ({reason}). Try fewer, or when less runs here."
            ) from None
        with (
            cluster,
            kept_up(cluster, n),
            _closed(Client(cluster, timeout=CONNECT_SECONDS, set_as_default=False)) as client,
        ):
            yield client


@contextmanager
def _remote(address: ClusterAddress) -> Iterator[Client]:
    where: dict[str, Any] = {"scheduler_file": address.value} if address.kind == "file" else {"address": address.value}
    client = Client.__new__(Client)
    try:
        Client.__init__(client, **where, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError, TypeError, KeyError) as error:
        client.status = "closed"  # otherwise its destructor waits for a connection that was never made, and complains
        raise ClusterError(f"--cluster {shown(address.text)}: {_reason(error)}") from None
    with _closed(client):
        yield client


@contextmanager
def _closed(client: Client) -> Iterator[Client]:
    """Closes the client afterwards. Errors of a connection that is gone already are ignored, so that they hide no other
    error."""
    try:
        yield client
    finally:
        with suppress(OSError, RuntimeError, TimeoutError):
            client.close()


def _reason(error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    if "TLS" in text or "ssl" in text.lower() or "certificate" in text:
        return f"{shown(text)}. Name the certificates, as docs/cluster.md shows."
    if isinstance(error, OSError):
        return "no scheduler answers there. Start one, or see whether its address is right."
    return f"it is no scheduler's file ({shown(text)})."
