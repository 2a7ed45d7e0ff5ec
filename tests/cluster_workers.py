"""Clusters for tests: worker processes on this machine that follow orders, such as killing themselves.

At certain points a worker looks for orders, which are files in a folder. An order to die once is removed before the
worker dies.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask
from distributed import Client, Nanny, Scheduler, SpecCluster, Status
from distributed.deploy.cluster import Cluster

PRELOAD = """
import os, signal, time
from pathlib import Path

from hybrid.cli.cluster import held_models, ordered, plugin, prompt_worker
from hybrid.infer.stages import worker_fit
from hybrid.infer.answers.batch.batcher import Batcher
from hybrid.infer.stages.stage import Stage
from hybrid.quant.ggml.file_ranges import Filling

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


def note(name, text):
    with (ORDERS / name).open("a") as file:
        file.write(text + "\\n")


def looking(client, first, asked, n_threads):
    if asked is not None:
        die_once("connecting")
        time.sleep(float(os.environ.get("SECONDS_TO_LOOK", 0)))
    return check(client, first, asked, n_threads)


def loading(asked):
    die_once("loading")
    return load(asked)


def opening(*args):
    die_once("opening")
    note("opened", str(os.getpid()))
    return open_stage(*args)


def obeying(self, *args):
    if (ORDERS / "hold").exists():
        note("held", str(os.getpid()))
    while (ORDERS / "hold").exists():
        time.sleep(0.02)
    return obey(self, *args)


def doing(function, part):
    if isinstance(part, Path):  # the first one of a measurement asks for facts of the model
        return do(function, part)
    die_once("part")
    note("taken", str(os.getpid()))
    note("doing", function.func.__name__)
    while (ORDERS / "hold").exists():
        time.sleep(0.02)
    done = do(function, part)
    die_once("done")
    return done


def writing(self, data):
    if (ORDERS / "writing").exists():
        half = memoryview(data).cast("B")
        os.pwrite(self._fd, half[: half.nbytes // 2], self._place.start + self.done)
        die_once("writing")
    write(self, data)


def reading(self):
    if self.running and self.n_steps < 2:
        die_once("reading")
    return drawing(self)


def drawing(self):
    if self.n_steps > 3 and len(self.running) > 1:  # beside others: not on a prompt that is tried alone
        die_once("drawing")
    return step(self)


def answering_one(self, number, line, parts=()):
    try:
        if (ORDERS / "poison").read_text() in line:
            note("poisoned", line)
            die()
    except FileNotFoundError:
        pass
    try:
        time.sleep(float((ORDERS / "slow").read_text()))
    except FileNotFoundError:
        pass
    note("taken", str(os.getpid()))
    while (ORDERS / "hold").exists():
        time.sleep(0.02)
    done = answer(self, number, line, parts)
    if self._service.n_jobs:
        die_once("between")
    note("answered", f"{{number}} {{os.getpid()}}")
    return done


if not hasattr(prompt_worker, "obeys"):  # Dask runs this once for a worker and once for its process
    prompt_worker.obeys = True
    answer, load, step = prompt_worker.PromptWorker.answer, prompt_worker.open_model, Batcher.step
    prompt_worker.open_model, prompt_worker.PromptWorker.answer, Batcher.step = loading, answering_one, reading
    check, do, write = plugin.checked, ordered._done, Filling.write
    open_stage, obey, Stage.open, Stage.obey = Stage.open, Stage.obey, opening, obeying
    held_models.open_model, plugin.checked, ordered._done, Filling.write = loading, looking, doing, writing
    here = worker_fit.WorkerFacts.here()
    version = "0.0.9" if "OTHER_VERSION" in os.environ else here.version
    if "OTHER_PATH" in os.environ:
        here = worker_fit.WorkerFacts("old-node", here.version, "avx2", not here.bf16)
    if "NO_SHARED_FOLDER" in os.environ:
        places = worker_fit._places
        worker_fit._places = lambda asked, folders: (path for path in places(asked, folders) if path != asked.path)
    facts = worker_fit.WorkerFacts(here.host, version, here.path, here.bf16)
    worker_fit.WorkerFacts.here = classmethod(lambda cls: facts)
"""


@dataclass
class Workers:
    """A cluster of worker processes; `address` is its scheduler's."""

    cluster: SpecCluster
    orders: Path
    client: Client = field(init=False)

    def __post_init__(self) -> None:
        self.client = Client(self.cluster, set_as_default=False)

    @property
    def address(self) -> str:
        return str(self.cluster.scheduler_address)

    @property
    def slots(self) -> dict[str, int]:
        """Threads of each present worker, by address."""
        return {worker: info["nthreads"] for worker, info in self.client.scheduler_info(-1)["workers"].items()}

    def order(self, name: str, text: str = "") -> None:
        (self.orders / name).write_text(text)

    def done(self, name: str) -> bool:
        return (self.orders / f"{name}.done").exists()

    def read(self, name: str) -> list[str]:
        path = self.orders / name
        return path.read_text().splitlines() if path.exists() else []

    def clear(self) -> None:
        for path in self.orders.iterdir():
            path.unlink(missing_ok=True)

    def all_there(self, patience: float) -> None:
        """Wait until dead workers have been restarted, also workers that Dask gives up because they died while
        starting."""
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
        """Add one worker within the context."""
        spec = _spec(self.orders, name, env or {})
        self.cluster.worker_spec[name] = spec
        self.cluster.sync(self.cluster._correct_state)
        try:
            yield
        finally:
            self.cluster.worker_spec.pop(name, None)
            self.cluster.sync(self.cluster._correct_state)


class _Cluster(SpecCluster):
    """Dask's cluster without the check some seconds after each death, which removes a missing worker for good. In these
    tests a worker may have died a second time by then, and would never come back."""

    def _update_worker_status(self, op: str, msg: Any) -> None:
        Cluster._update_worker_status(self, op, msg)


def preload_file(orders: Path) -> Path:
    """Write the module that makes a worker follow orders."""
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
        "local_directory": str(orders.parent / "dask"),  # not shared with other clusters' workers
    }
    return {
        "cls": Nanny,
        "options": options | {"preload": [str(preload_file(orders))], "name": name, "memory_limit": 0},
    }


@contextmanager
def meanwhile(made: Workers, act: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run `act` in a thread while a command runs in this one. `act` gets an event that is set when the command has
    ended. Its exception is raised here; before that, `made.clear()` releases held workers so that the command can end.
    """
    ended = threading.Event()

    def acting() -> None:
        try:
            act(ended)
        except BaseException:
            made.clear()
            raise

    with ThreadPoolExecutor(1) as pool:
        doing = pool.submit(acting)
        try:
            yield
        finally:
            ended.set()
            doing.result()


@contextmanager
def workers(orders: Path, envs: Sequence[dict[str, str]] = ({}, {})) -> Iterator[Workers]:
    """Start a scheduler in this process and one worker process for each environment."""
    orders.mkdir()
    specs = {str(i): _spec(orders, str(i), env) for i, env in enumerate(envs)}
    scheduler = {
        "cls": Scheduler,
        "options": {"host": "127.0.0.1", "dashboard": False, "dashboard_address": "127.0.0.1:0"},
    }
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0, "distributed.comm.timeouts.connect": 120}),
        _Cluster(workers=specs, scheduler=scheduler, silence_logs=50) as cluster,
    ):
        made = Workers(cluster, orders)
        with made.client:
            made.client.wait_for_workers(len(specs), timeout=60)
            yield made
