"""Winogrande (Sakaguchi et al. 2019, arXiv:1907.10641): which of two names fills the gap of a sentence, scored as by
llama-perplexity --winogrande, also on recurrent models.

A line per task: `number,sentence,choice 1,choice 2,answer`. The sentence has `_` at the gap, and is in double quotes if
it has commas; answer is 1 or 2. The score of a choice is the mean log p of the sentence's tokens *after* the choice,
without the last one (the full stop). Where less than LEAST_AFTER tokens follow the common prefix of both texts, the
tokens of the choice are scored also.

For these tasks (counted by `n_whole`) llama-perplexity predicts the first token of choice 2 from the end of the text
with choice 1, as its source says; here it is predicted from the text before it. llama-perplexity also drops the last
line of a file that has no empty line after it, and skips lines that it cannot read; here such lines are an error.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hybrid.quant.ggml.errors import UsageError, shown

from .choices import Ending, ScoredTask, common_prefix, encoded, score, standard_error
from .parts import Measurable

LEAST_AFTER = 4  # least tokens after the common prefix for the choice not to be scored


@dataclass(frozen=True)
class WinograndeTask:
    """A sentence before and after its gap, two choices to fill it, and the right one (gold: 0 or 1)."""

    before: str
    after: str
    choices: tuple[str, str]
    gold: int


@dataclass(frozen=True)
class WinograndeResult:
    """accuracy is a share, 0 to 1."""

    accuracy: float
    stderr: float | None
    """One standard error of `accuracy`; None for a single task."""
    n_tasks: int
    n_whole: int
    """Tasks in which the choice is scored also, because too few tokens follow it."""
    n_tokens: int
    """Tokens of all texts."""
    n_processed: int
    """Tokens that went through the model."""


def read_winogrande(text: str, name: str) -> list[WinograndeTask]:
    """Parse a file of tasks. Raises UsageError, which names the wrong line. name: of the file. Doubled quotes stay
    doubled."""
    tasks = [_task(line, f"{name}, line {i}") for i, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not tasks:
        raise UsageError(f"{name} has no tasks, expected lines of: number,sentence,choice 1,choice 2,answer.")
    return tasks


def _task(line: str, where: str) -> WinograndeTask:
    fields = _fields(line)
    if len(fields) != 5:
        raise UsageError(f"{where} has {len(fields)} fields, expected 5: number,sentence,choice 1,choice 2,answer.")
    _, sentence, *choices, answer = fields
    if sentence.startswith('"'):
        sentence = sentence[1:-1]
    before, gap, after = sentence.partition("_")
    if not gap:
        raise UsageError(f"{where}: the sentence has no gap. Put _ where the choice goes.")
    if not all(choice.strip() for choice in choices):
        raise UsageError(f"{where}: a choice is empty.")
    if answer.strip() not in ("1", "2"):
        raise UsageError(f"{where}: {shown(answer.strip(), 40)!r} is not the number of a choice, 1 or 2.")
    return WinograndeTask(before, after, (choices[0], choices[1]), int(answer) - 1)


def _fields(line: str) -> list[str]:
    """Split at commas outside of double quotes; the fifth field is the rest of the line."""
    fields = [""]
    quoted = False
    for i, c in enumerate(line):
        quoted ^= c == '"'
        if c != "," or quoted:
            fields[-1] += c
        elif len(fields) == 4:
            return [*fields, line[i + 1 :]]
        else:
            fields.append("")
    return fields


def candidates(model: Measurable, task: WinograndeTask) -> tuple[list[Ending], bool]:
    """Both candidate texts, and whether only the tokens after the choice are scored."""
    texts = [encoded(model, task.before + choice + task.after) for choice in task.choices]
    if min(map(len, texts)) < 2:
        raise UsageError("a sentence needs at least two tokens: the first is not predicted.")
    shared = common_prefix(texts)
    follows_only = all(len(ids) - shared >= LEAST_AFTER for ids in texts)
    parts = []
    for ids, choice in zip(texts, task.choices, strict=True):
        first = len(model.tokenizer.encode(task.before + choice)) if follows_only else shared
        first = min(max(first, 1), len(ids) - 1)  # merges across the end of the choice can make it longer than the text
        parts.append(Ending(ids, range(first, max(first + 1, len(ids) - 1))))
    return parts, follows_only


def winogrande(
    model: Measurable,
    tasks: Sequence[WinograndeTask],
    progress: Callable[[ScoredTask, int, WinograndeResult], None] | None = None,
) -> WinograndeResult:
    """Score tasks, as many at a time as the model has sequences for. progress(the task's scores, its answer from 0,
    result so far).

    Raises UsageError when a text does not fit the context, FormatError when the model's logits are not finite.
    """
    if not tasks:
        raise UsageError("scoring needs tasks.")
    prepared = [candidates(model, task) for task in tasks]
    correct = n_whole = n_tokens = n_processed = 0
    scored = score(model, (parts for parts, _ in prepared))
    for n, (task, (_, follows_only), one) in enumerate(zip(tasks, prepared, scored, strict=True), 1):
        first, second = one.means
        answer = 0 if first > second else 1
        correct += answer == task.gold
        n_whole += not follows_only
        n_tokens += one.n_tokens
        n_processed += one.n_processed
        share = correct / n
        result = WinograndeResult(share, standard_error(share, n), n, n_whole, n_tokens, n_processed)
        if progress is not None:
            progress(one, answer, result)
    return result
