"""Clusters for tests: worker processes of this machine that do as they are told, to the point of killing themselves.

A worker looks for orders, files in a folder, at certain points; what dies once removes its order first.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask
from distributed import Client, Nanny, Scheduler, SpecCluster, Status

PRELOAD = """
import os, signal, time
from pathlib import Path

from hybrid.cli.cluster import answering, fit
from hybrid.infer.answers.batches.batching import Batcher

ORDERS = Path({orders!r})


def die():
    time.sleep(0.05)  # what this worker has said is under way
    os.kill(os.getpid(), signal.SIGKILL)


def die_once(order):
    try:
        (ORDERS / order).unlink()
    except FileNotFoundError:
        return
    (ORDERS / (order + ".done")).touch()
    die()


def loading(asked):
    die_once("loading")
    return load(asked)


def drawing(self):
    if self.n_steps > 3 and len(self.running) > 1:  # beside others: not on a prompt that is tried alone
        die_once("drawing")
    return step(self)


def answering_one(self, number, line, parts=()):
    try:
        if (ORDERS / "poison").read_text() in line:
            with (ORDERS / "poisoned").open("a") as file:
                file.write(line + "\\n")
            die()
    except FileNotFoundError:
        pass
    try:
        time.sleep(float((ORDERS / "slow").read_text()))
    except FileNotFoundError:
        pass
    with (ORDERS / "taken").open("a") as file:
        file.write(str(os.getpid()) + "\\n")
    while (ORDERS / "hold").exists():
        time.sleep(0.02)
    done = answer(self, number, line, parts)
    if self._service.n_jobs:
        die_once("between")
    with (ORDERS / "answered").open("a") as file:
        file.write(str(number) + " " + str(os.getpid()) + "\\n")
    return done


if not hasattr(answering, "obeys"):  # Dask runs this once for a worker and once for its process
    answering.obeys = True
    answer, load, step = answering.Answering.answer, answering.open_model, Batcher.step
    answering.open_model, answering.Answering.answer, Batcher.step = loading, answering_one, drawing
    here = fit.Facts.here()
    version = "0.0.9" if "OTHER_VERSION" in os.environ else here.version
    if "OTHER_PATH" in os.environ:
        here = fit.Facts("old-node", here.version, "avx2", not here.bf16)
    facts = fit.Facts(here.host, version, here.path, here.bf16)
    fit.Facts.here = classmethod(lambda cls: facts)
"""


@dataclass
class Workers:
    """address: of their scheduler."""

    cluster: SpecCluster
    orders: Path
    client: Client = field(init=False)

    def __post_init__(self) -> None:
        self.client = Client(self.cluster, set_as_default=False)

    @property
    def address(self) -> str:
        return str(self.cluster.scheduler_address)

    def order(self, name: str, text: str = "") -> None:
        (self.orders / name).write_text(text)

    def done(self, name: str) -> bool:
        return (self.orders / f"{name}.done").exists()

    def read(self, name: str) -> list[str]:
        path = self.orders / name
        return path.read_text().splitlines() if path.exists() else []

    def clear(self) -> None:
        for path in self.orders.iterdir():
            path.unlink()

    def all_there(self, patience: float) -> None:
        """Those that died are there again: Dask gives up a process that dies while it starts, or is long in it."""
        end = time.monotonic() + patience
        while True:
            try:
                return self.client.wait_for_workers(len(self.cluster.worker_spec), timeout=2)
            except TimeoutError:
                if time.monotonic() > end:
                    raise
            for name, worker in [*self.cluster.workers.items()]:
                if worker.status in (Status.closed, Status.failed):
                    self.cluster.workers.pop(name, None)
            self.cluster.sync(self.cluster._correct_state)

    @contextmanager
    def late(self, name: str, env: dict[str, str] | None = None) -> Iterator[None]:
        """One more worker joins within."""
        spec = _spec(self.orders, name, env or {})
        self.cluster.worker_spec[name] = spec
        self.cluster.sync(self.cluster._correct_state)
        try:
            yield
        finally:
            self.cluster.worker_spec.pop(name, None)
            self.cluster.sync(self.cluster._correct_state)


def preload_file(orders: Path) -> Path:
    """The module that makes a worker obey."""
    path = orders.parent / f"{orders.name}_preload.py"
    path.write_text(PRELOAD.format(orders=str(orders)))
    return path


def _spec(orders: Path, name: str, env: dict[str, str], nthreads: int = 4) -> dict[str, Any]:
    options = {
        "nthreads": nthreads,
        "host": "127.0.0.1",
        "dashboard": False,
        "dashboard_address": "127.0.0.1:0",
        "env": env,
        "local_directory": str(orders.parent / "dask"),  # of these workers alone
    }
    return {
        "cls": Nanny,
        "options": options | {"preload": [str(preload_file(orders))], "name": name, "memory_limit": 0},
    }


@contextmanager
def workers(orders: Path, envs: Sequence[dict[str, str]] = ({}, {})) -> Iterator[Workers]:
    """Worker processes, one for each environment, and their scheduler in this process."""
    orders.mkdir()
    specs = {str(i): _spec(orders, str(i), env) for i, env in enumerate(envs)}
    scheduler = {
        "cls": Scheduler,
        "options": {"host": "127.0.0.1", "dashboard": False, "dashboard_address": "127.0.0.1:0"},
    }
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0, "distributed.comm.timeouts.connect": 120}),
        SpecCluster(workers=specs, scheduler=scheduler, silence_logs=50) as cluster,
    ):
        made = Workers(cluster, orders)
        with made.client:
            made.client.wait_for_workers(len(specs), timeout=60)
            yield made
