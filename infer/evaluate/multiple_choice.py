"""Multiple-choice questions (ARC, MMLU, TruthfulQA...) in the files of llama-perplexity --multiple-choice, scored as it
does, also on recurrent models.

Each text is the question, a space and an answer. An answer's score is the mean log p of its tokens after the common
prefix of all texts of the question; the highest score is chosen ("acc_norm").

The file, little-endian: u32 number of tasks; u32 offset of each in the file; the tasks, one after the other:

    question   text                                      text: u32 bytes, UTF-8
    single     u32 n <= 100, n texts, n i32 labels       answers, one of them right: label 1; the others 0
    several    the same                                  answers, several of them right; not scored
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hybrid.quant.ggml.errors import FormatError, UsageError

from .choices import after_common_prefix, encoded, score, standard_error
from .parts import Measurable

MOST_ANSWERS = 100
LEAST_TASK = 3 * 4  # bytes: an empty question, no answers


@dataclass(frozen=True)
class Question:
    """A question, its answers, and which of them are right."""

    text: str
    answers: tuple[str, ...]
    right: tuple[bool, ...]


@dataclass(frozen=True)
class MultipleChoiceResult:
    """acc_norm and chance are shares, 0 to 1."""

    acc_norm: float
    stderr: float | None
    """One standard error of `acc_norm`; None for a single task."""
    chance: float
    """Expected acc_norm of random choices: tasks / answers."""
    n_tasks: int
    n_tokens: int
    """Tokens of all texts."""
    n_processed: int
    """Tokens that went through the model."""


def read_multiple_choice(data: bytes, name: str) -> list[Question]:
    """Parse a file. Raises FormatError, which says where it is damaged. name: of the file."""
    file = _Reader(data, name)
    n_tasks = file.u32("the number of tasks")
    if n_tasks == 0:
        raise FormatError(f"{name} has no tasks.")
    if n_tasks * (4 + LEAST_TASK) > len(data):
        raise FormatError(f"{name}: {n_tasks} tasks do not fit into {len(data)} bytes. Give a multiple-choice file.")
    offsets = [file.u32("the offset of a task") for _ in range(n_tasks)]
    tasks = []
    for number, offset in enumerate(offsets, 1):
        if offset != file.at:
            raise FormatError(f"{name}: task {number} begins at byte {file.at}, the table says {offset}.")
        file.where = f"task {number}: "
        tasks.append(file.task())
    if file.at != len(data):
        raise FormatError(f"{name} has {len(data) - file.at} bytes after its last task.")
    return tasks


class _Reader:
    """Reads little-endian fields one after the other. Raises FormatError at the end of the data."""

    def __init__(self, data: bytes, name: str) -> None:
        self._data, self._name = data, name
        self.at, self.where = 0, ""

    def task(self) -> Question:
        text = self._text("the question")
        answers, labels = self._answers()
        self._answers()
        if not text.strip() or not answers or not all(a.strip() for a in answers):
            raise self._damaged("a question and answers are needed, one is empty")
        if not set(labels) <= {0, 1} or 1 not in labels:
            raise self._damaged(f"labels {str(labels)[:40]}: expected 1 for the right answer, 0 for others")
        return Question(text, tuple(answers), tuple(label == 1 for label in labels))

    def u32(self, what: str) -> int:
        return int(struct.unpack("<I", self._take(4, what))[0])

    def _answers(self) -> tuple[list[str], list[int]]:
        n = self.u32("the number of answers")
        if n > MOST_ANSWERS:
            raise self._damaged(f"{n} answers, at most {MOST_ANSWERS} are possible")
        answers = [self._text("an answer") for _ in range(n)]
        return answers, list(struct.unpack(f"<{n}i", self._take(4 * n, "the labels")))

    def _text(self, what: str) -> str:
        raw = self._take(self.u32(f"the size of {what}"), what)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise self._damaged(f"{what} before byte {self.at} is not UTF-8") from None

    def _take(self, n: int, what: str) -> bytes:
        if n > len(self._data) - self.at:
            raise self._damaged(f"{n} bytes of {what} expected at byte {self.at}, the file has {len(self._data)}")
        self.at += n
        return self._data[self.at - n : self.at]

    def _damaged(self, what: str) -> FormatError:
        return FormatError(f"{self._name}: {self.where}{what}. Copy it again, if it is a multiple-choice file.")


def multiple_choice(
    model: Measurable, tasks: Sequence[Question], progress: Callable[[MultipleChoiceResult], None] | None = None
) -> MultipleChoiceResult:
    """Score tasks, as many at a time as the model has sequences for. progress(result so far).

    Raises UsageError when a text does not fit the context, FormatError when the model's logits are not finite.
    """
    if not tasks:
        raise UsageError("scoring needs tasks.")
    correct = n_answers = n_tokens = n_processed = 0
    scored = score(model, (after_common_prefix([encoded(model, f"{t.text} {a}") for a in t.answers]) for t in tasks))
    for n, (task, one) in enumerate(zip(tasks, scored, strict=True), 1):
        correct += task.right[int(one.means.argmax())]
        n_answers += len(task.answers)
        n_tokens += one.n_tokens
        n_processed += one.n_processed
        share = correct / n
        result = MultipleChoiceResult(share, standard_error(share, n), n / n_answers, n, n_tokens, n_processed)
        if progress is not None:
            progress(result)
    return result
