"""HellaSwag (Zellers et al. 2019, arXiv:1905.07830): which of four endings continues a context best, scored as by
llama-perplexity --hellaswag, also on recurrent models.

Six lines per task: the context, the number of the right ending from 0, the four endings. Each text is the context, a
space and an ending. An ending's score is the mean log p of its tokens after the common prefix of the four texts; the
answer is the ending with the highest score ("acc_norm"). The common prefix is computed once.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from hybrid.quant.ggml.errors import UsageError

from .choices import after_common_prefix, encoded, score
from .parts import Measurable

N_ENDINGS = 4
LINES = 2 + N_ENDINGS


@dataclass(frozen=True)
class HellaSwagTask:
    """A context, its endings, and the index of the right one (gold)."""

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
    """Tokens of all texts."""
    n_processed: int
    """Tokens that went through the model."""


def read_tasks(text: str, name: str) -> list[HellaSwagTask]:
    """Parse a file of tasks. Raises UsageError, which names the wrong line. name: of the file."""
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
        tasks.append(HellaSwagTask(context, int(number), tuple(endings)))
    return tasks


def some_of(tasks: Sequence[HellaSwagTask], n: int) -> list[HellaSwagTask]:
    """n tasks, the same ones every time; all if there are not more than n."""
    return list(tasks) if n >= len(tasks) else Random(1).sample(tasks, n)


def hellaswag(
    model: Measurable, tasks: Sequence[HellaSwagTask], progress: Callable[[HellaSwagResult, int], None] | None = None
) -> HellaSwagResult:
    """Score tasks, as many at a time as the model has sequences for. progress(result so far, tasks in all).

    Raises UsageError when a text does not fit the context, FormatError when the model's logits are not finite.
    """
    if not tasks:
        raise UsageError("scoring needs tasks.")
    correct = n_tokens = n_processed = 0
    scored = score(model, (after_common_prefix(_texts(model, task)) for task in tasks))
    for n, (task, one) in enumerate(zip(tasks, scored, strict=True), 1):
        correct += int(one.means.argmax()) == task.gold
        n_tokens += one.n_tokens
        n_processed += one.n_processed
        result = _result(correct, n, n_tokens, n_processed)
        if progress is not None:
            progress(result, len(tasks))
    return result


def _texts(model: Measurable, task: HellaSwagTask) -> list[list[int]]:
    return [encoded(model, f"{task.context} {ending}") for ending in task.endings]


def _result(correct: int, n: int, n_tokens: int, n_processed: int) -> HellaSwagResult:
    share, za = correct / n, 1.95996398454  # standard deviations that hold 95 % of a normal distribution
    z = za * za / n
    half = z * math.sqrt(n * (4 * share * (1 - share) + z)) / (2 * za)
    return HellaSwagResult(
        share, (share + z / 2 - half) / (1 + z), (share + z / 2 + half) / (1 + z), n, n_tokens, n_processed
    )
