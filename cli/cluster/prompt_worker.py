"""What a worker does for a file of prompts: it draws the answers that it is sent, as many at a time as it has slots.

The tasks of a worker are threads that wait; one more thread steps the model for all of them (`Service`), so that they
form one batch, which an answer joins and leaves at any step.
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

MOST_WAITING = 1 << 16  # as many as Dask has threads for


@dataclass(frozen=True)
class Run:
    """How the prompts of a file are answered: the same on all workers. form, asked: of lines that do not say it.

    settings: fields of `PromptBatch` but the model and what was compiled with it
    """

    model: ModelAsked
    settings: dict[str, Any]
    form: "Grammar | None"
    asked: "ChatOptions"


@dataclass(frozen=True)
class Answered:
    """line: of the output, without its end; counted: see `prompt_files.counted`."""

    line: str
    counted: tuple[int, ...]


class SharedOrAlone:
    """Any number of threads at a time, or one alone, for which no more may begin."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = self._alone_waiting = 0
        self._alone = False

    @contextmanager
    def turn(self, alone: bool) -> Iterator[None]:
        """Within, it is this thread's turn."""
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
    """The model of a worker, answering the prompts of one run."""

    def __init__(self, run: Run) -> None:
        from hybrid.infer.answers.batch.service import Service
        from hybrid.infer.answers.constraints.forms import Forms
        from hybrid.infer.answers.prompt_files.prompt_files import PromptBatch, PromptReader

        model = open_model(run.model)
        self.turns = SharedOrAlone()
        self._forms = Forms(model.tokenizer)
        self._batch = PromptBatch(model, forms=self._forms, **run.settings)
        self._reader = PromptReader(model, run.form, self._forms, run.asked)
        self._reading = threading.Lock()  # a template is rendered by one thread at a time
        self._service = Service(
            model, self._batch.n_parallel, most_waiting=MOST_WAITING, step_seconds=math.inf
        )  # nobody watches these answers: all of a pass for prompts

    def answer(self, number: int, line: str, parts: tuple[int, ...] = ()) -> Answered:
        """The answer of this number to a line of the file. parts: after how many tokens of its prompt others part from
        it. HybridError: it cannot be drawn."""
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
        """Gives up what is being drawn."""
        self._service.close()
        self._forms.close()


BEGINNING = "hybrid-begin"  # of the names of tasks that make one


class Beginning:
    """What a group of prompts has in common, as Dask sees it: data on one worker that would take long to move.

    n_bytes: that Dask weighs before it moves an answer
    """

    BYTES_PER_SECOND = 100_000_000  # what Dask takes its connections for until it has measured them

    def __init__(self, n_bytes: int) -> None:
        self._size = n_bytes

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self._size


# --- tasks ---
def begin(n_bytes: int) -> Beginning:
    """Where this ran the prompts of its group go. Nothing is read yet: the first of them does it."""
    return Beginning(n_bytes)


def begun_name(key: str, number: int) -> str:
    """Of the event that a prompt tried alone has begun."""
    return f"hybrid-{key}-{number}"


def answer(
    key: str, number: int, line: str, alone: bool, parts: tuple[int, ...] = (), beginning: Beginning | None = None
) -> Answered:
    """An answer of the run `key`. alone: nothing else runs in this process meanwhile, since it may kill it. parts: see
    `PromptWorker.answer`."""
    answering = HERE.thing(key, lambda: PromptWorker(HERE.shared(key)))
    with answering.turns.turn(alone):
        if alone:
            Event(begun_name(key, number)).set()
        else:
            get_worker().log_event(key, number)
        return answering.answer(number, line, parts)
