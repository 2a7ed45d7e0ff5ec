"""HellaSwag (Zellers et al. 2019, arXiv:1905.07830): which of four endings goes on best with a context, scored as
llama-perplexity --hellaswag does, on recurrent models too.

Six lines per task: the context, the number of the right ending from 0, the four endings. Each text is the context, a
space and an ending; an ending's score is the mean log p of its tokens after what all four texts begin with, and the
answer is the ending with the highest ("acc_norm"). What the four begin with is computed once.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random

import numpy as np

from hybrid.quant.ggml.errors import Remedy, UsageError

from ..model import Model, Work
from .shared import eval_shared
from .windows import check_finite, log_likelihood

N_ENDINGS = 4
LINES = 2 + N_ENDINGS
N_PARALLEL = 8  # tasks at a time


@dataclass(frozen=True)
class Task:
    """A beginning and the endings to choose from."""

    context: str
    gold: int
    endings: tuple[str, ...]


@dataclass(frozen=True)
class HellaSwagResult:
    """acc_norm and the 95 % interval (Wilson 1927) as shares, 0 to 1."""

    acc_norm: float
    low: float
    high: float
    n_tasks: int
    n_tokens: int
    """Of all texts."""
    n_processed: int
    """Tokens that went through the model."""


def read_tasks(text: str, name: str) -> list[Task]:
    """UsageError names the line that is wrong; `name` is the file's."""
    lines = text.removesuffix("\n").split("\n")
    if not text.strip() or len(lines) % LINES:
        raise UsageError(f"{name} has {len(lines)} lines, expected {LINES} for every task: context, number, 4 endings.")
    tasks = []
    for at in range(0, len(lines), LINES):
        context, number, *endings = lines[at : at + LINES]
        if number.strip() not in tuple(map(str, range(N_ENDINGS))):
            raise UsageError(f"{name}, line {at + 2}: {number[:40]!r} is not the number of an ending, 0 to 3.")
        for i, line in enumerate((context, number, *endings)):
            if not line.strip():
                raise UsageError(f"{name}, line {at + i + 1} is empty, expected {'an ending' if i else 'a context'}.")
        tasks.append(Task(context, int(number), tuple(endings)))
    return tasks


def some_of(tasks: Sequence[Task], n: int) -> list[Task]:
    """n of the tasks, the same ones every time, or all."""
    return list(tasks) if n >= len(tasks) else Random(1).sample(tasks, n)


def hellaswag(
    model: Model, tasks: Sequence[Task], progress: Callable[[HellaSwagResult, int], None] | None = None
) -> HellaSwagResult:
    """Scores tasks, as many at a time as the model has sequences for; progress(result so far, tasks in all).

    UsageError when a text does not fit the context, FormatError when the model's logits are not finite.
    """
    n_parallel = min(N_PARALLEL, model.memory.n_seq_max // N_ENDINGS)
    if not tasks or not n_parallel:
        raise UsageError(f"scoring needs tasks, and a model loaded for {N_ENDINGS} sequences or more.")
    correct = n_tokens = n_processed = done = 0
    remaining = iter(tasks)
    while group := list(islice(remaining, n_parallel)):
        texts = [[_encoded(model, task, ending) for ending in task.endings] for task in group]
        for task, four, scores in zip(group, texts, _scores(model, texts), strict=True):
            done += 1
            check_finite(model, scores, f"its logits in task {done}")
            correct += int(scores.argmax()) == task.gold
            n_tokens += sum(map(len, four))
            shared = common_prefix(four)
            # the last token of a text is only predicted
            n_processed += shared + sum(len(ids) - 1 - shared for ids in four)
            result = _result(correct, done, n_tokens, n_processed)
            if progress is not None:
                progress(result, len(tasks))
    return result


def _encoded(model: Model, task: Task, ending: str) -> list[int]:
    ids = model.tokenizer.encode(f"{task.context} {ending}")
    if len(ids) > model.n_ctx:
        raise UsageError(f"a task has {len(ids)} tokens, the context {model.n_ctx}.", remedy=Remedy.LARGER_CONTEXT)
    return ids


def common_prefix(texts: Sequence[Sequence[int]]) -> int:
    """Tokens that all texts begin with; every text has at least one more."""
    most = min(map(len, texts)) - 1
    return next((i for i in range(most) if len({ids[i] for ids in texts}) > 1), most)


def _scores(model: Model, tasks: list[list[list[int]]]) -> Iterator[np.ndarray]:
    """For each task the mean log p of every ending's tokens, f64 [4]."""
    first = [common_prefix(texts) for texts in tasks]
    if not all(first):
        raise UsageError("a context is needed before the endings: this one has no tokens.")
    seqs = [model.sequence() for texts in tasks for _ in texts]
    try:
        flat = [(ids, n) for texts, n in zip(tasks, first, strict=True) for ids in texts]
        works = [Work(seq, ids[:-1], slice(n - 1, None)) for seq, (ids, n) in zip(seqs, flat, strict=True)]
        means = []
        for (ids, n), result in zip(flat, eval_shared(model, works), strict=True):
            assert result.logits is not None
            means.append(float(log_likelihood(result.logits, ids[n:]).mean()))
    finally:
        for seq in seqs:
            seq.close(remember=False)
    for i in range(len(tasks)):
        yield np.array(means[i * N_ENDINGS : (i + 1) * N_ENDINGS])


def _result(correct: int, n: int, n_tokens: int, n_processed: int) -> HellaSwagResult:
    share, za = correct / n, 1.95996398454  # 95 % of a normal distribution lie within so many deviations
    z = za * za / n
    half = z * math.sqrt(n * (4 * share * (1 - share) + z)) / (2 * za)
    return HellaSwagResult(
        share, (share + z / 2 - half) / (1 + z), (share + z / 2 + half) / (1 + z), n, n_tokens, n_processed
    )
