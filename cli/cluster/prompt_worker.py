"""The worker's side of a file of prompts: computes the answers it is sent, as many at a time as it has slots.

A task is a thread that waits; one more thread steps the model for all tasks (`Service`), so they form one batch, which
answers join and leave at any step.
"""

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distributed import Event, get_worker

from hybrid.infer.stages.worker_fit import ModelAsked
from hybrid.quant.ggml.errors import ClusterError

from .held_models import HERE, open_model

if TYPE_CHECKING:
    from hybrid.infer.answers.chat.dialect import ChatOptions
    from hybrid.infer.answers.constraints import Grammar
    from hybrid.infer.answers.drawing.drawing import TextPiece

MOST_WAITING = 1 << 16  # no limit of ours: Dask's threads limit it


@dataclass(frozen=True)
class Run:
    """How the prompts of a file are answered, the same on all workers. form, asked: the form and options of lines
    without their own.

    settings: fields of `PromptBatch` except the model and objects compiled for it
    """

    model: ModelAsked
    settings: dict[str, Any]
    form: "Grammar | None"
    asked: "ChatOptions"


@dataclass(frozen=True)
class Answered:
    """An answer. line: of the output, without its line end; counted: see `prompt_files.counted`."""

    line: str
    counted: tuple[int, ...]


class SharedOrAlone:
    """A lock for any number of threads at a time, or for one alone, which blocks new ones."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = self._alone_waiting = 0
        self._alone = False

    @contextmanager
    def turn(self, alone: bool) -> Iterator[None]:
        """Holds the lock."""
        with self._changed:
            self._alone_waiting += alone
            self._changed.wait_for(lambda: not (self._alone or (self._running if alone else self._alone_waiting)))
            self._alone_waiting -= alone
            self._alone = alone
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._alone = False
                self._changed.notify_all()


class PromptWorker:
    """A worker's model, answering the prompts of one run."""

    def __init__(self, run: Run) -> None:
        from hybrid.infer.answers.batch.service import Service
        from hybrid.infer.answers.constraints.forms import Forms
        from hybrid.infer.answers.prompt_files.prompt_files import PromptBatch, PromptReader

        model = open_model(run.model)
        self.turns = SharedOrAlone()
        self._forms = Forms(model.tokenizer)
        self._batch = PromptBatch(model, forms=self._forms, **run.settings)
        self._reader = PromptReader(model, run.form, self._forms, run.asked)
        self._reading = threading.Lock()  # one thread at a time renders the template
        self._service = Service(
            model, self._batch.n_parallel, most_waiting=MOST_WAITING, step_seconds=math.inf
        )  # nobody watches these answers: a pass may be filled with prompts

    def answer(self, number: int, line: str, parts: tuple[int, ...] = ()) -> Answered:
        """Answer `number` to a line of the file. parts: token counts after which other prompts differ from this one.
        HybridError: it cannot be computed."""
        from hybrid.infer.answers.prompt_files.prompt_files import counted

        index, sample = divmod(number, self._batch.n_samples)
        with self._reading:
            asked = self._batch.prepared(self._reader.read(line, index, f"prompt {index + 1}"))
            job = self._batch.job(asked, sample)
        job.boundaries = parts
        pieces: list[TextPiece] = []
        ended = threading.Event()
        job.on_text = pieces.append if self._batch.n_probs else None
        job.on_end = ended.set
        self._service.submit(job)
        ended.wait()
        if (fault := self._service.fault) is not None:
            raise ClusterError(f"the model of a worker has failed: {type(fault).__name__}: {fault}.")
        if job.error is not None:
            raise job.error
        return Answered(self._batch.line(asked.prompt, sample, job, pieces), counted(job))

    def close(self) -> None:
        """Cancels running answers."""
        self._service.close()
        self._forms.close()


BEGINNING = "hybrid-begin"  # prefix of the names of `begin` tasks


class Beginning:
    """The common beginning of a group of prompts, as a Dask result that lives on one worker and is expensive to move.

    n_bytes: the size that Dask believes, when it decides whether to move an answer
    """

    BYTES_PER_SECOND = 100_000_000  # Dask's default estimate of its bandwidth

    def __init__(self, n_bytes: int) -> None:
        self._size = n_bytes

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self._size


# --- tasks ---
def begin(n_bytes: int) -> Beginning:
    """A task: the worker that runs it becomes the worker of a group's prompts. Reads nothing: the first prompt does."""
    return Beginning(n_bytes)


def begun_name(key: str, number: int) -> str:
    """The name of the event "a prompt that is tried alone has begun"."""
    return f"hybrid-{key}-{number}"


def answer(
    key: str, number: int, line: str, alone: bool, parts: tuple[int, ...] = (), beginning: Beginning | None = None
) -> Answered:
    """A task: an answer of the run `key`. alone: nothing else may run in this process, which the prompt may kill.
    parts: see `PromptWorker.answer`."""
    answering = HERE.thing(key, lambda: PromptWorker(HERE.shared(key)))
    with answering.turns.turn(alone):
        if alone:
            Event(begun_name(key, number)).set()
        else:
            get_worker().log_event(key, number)
        return answering.answer(number, line, parts)
