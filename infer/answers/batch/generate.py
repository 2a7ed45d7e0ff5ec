"""One answer by itself, in a sequence of the caller's: a batch of one, which steps when the caller wants a piece.

answer = generate(seq, ids, sampler, max_tokens=200, stop=["\\n\\n"])
for piece in answer:
    show(piece.text)
answer.result.reason
"""

import time
from collections import deque
from collections.abc import Collection, Generator, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from ...progress import TokenProgress
from ...sequence import Sequence as TokenSequence
from ...text.tokenizer import Tokenizer
from ..drawing.context_shift import make_room
from ..drawing.drawing import Drawing, EndReason, GenerationResult, TextPiece
from ..sampling import Sampler
from .batcher import Batcher
from .job import Job

if TYPE_CHECKING:
    from ..chat.reader import AnswerReader
    from ..chat.thoughts import ThoughtBudget
    from ..constraints import Constraint


def generate(  # noqa: PLR0913  the settings of one answer
    seq: TokenSequence,
    prompt_ids: Sequence[int],
    sampler: Sampler,
    *,
    max_tokens: int = -1,
    stop: Sequence[str] = (),
    ignore_eos: bool = False,
    progress: TokenProgress | None = None,
    tokenizer: Tokenizer | None = None,
    boundaries: Sequence[int] = (),
    speculate: bool = False,
    keep: int | None = None,
    constraint: "Constraint | None" = None,
    n_top: int | None = None,
    sampled: bool = False,
    shown: Collection[int] = (),
    budget: "ThoughtBudget | None" = None,
    calls: "AnswerReader | None" = None,
) -> "Generation":
    """Appends the prompt to `seq` and generates after it; nothing happens before the first `next`.

    prompt_ids  may be empty if the sequence has logits (a restored state, an answer to be continued)
    max_tokens  -1: until the context is full; with `keep`, without end
    progress    (done, total) while the prompt is processed
    tokenizer   None: the model's own
    boundaries  positions in the whole text that later texts may continue from: see Sequence.prefill
    speculate   guess tokens with the model's `guessers`: the same tokens in fewer passes
    keep        tokens at the beginning of the sequence that stay when the context is full, while half of the others
                leave it (`Sequence.shift`): see context_shift.kept_tokens. None: a full context ends the answer

    stop, ignore_eos, constraint, n_top, sampled, shown, budget, calls: see Drawing. Raises UsageError if there is
    nothing to generate from, or the prompt does not fit. A KeyboardInterrupt while the model computes ends the
    generation with reason "interrupt", and keeps the text so far.
    """
    tokenizer = tokenizer or seq.tokenizer
    drawing = Drawing(
        sampler, tokenizer, max_tokens, stop, ignore_eos, n_top, sampled, constraint, shown, budget, calls=calls
    )
    return Generation(seq, list(prompt_ids), drawing, progress, tuple(boundaries), speculate, keep)


class Generation:
    """Iterator over the pieces of the answer. `result` can be read at any time and is complete after the last piece.

    A step may sample several tokens: all of them are in `result`, even if the caller stops before their pieces.

    is_read  whether the prompt was processed
    """

    def __init__(
        self,
        seq: TokenSequence,
        prompt: list[int],
        drawing: Drawing,
        progress: TokenProgress | None,
        boundaries: tuple[int, ...],
        speculate: bool,
        keep: int | None = None,
    ) -> None:
        self.result: GenerationResult = drawing.result
        self._unread: deque[TextPiece] = deque()
        self.is_read = not prompt
        self._seq, self._prompt, self._drawing = seq, prompt, drawing
        self._progress, self._boundaries = progress, boundaries
        self._speculate, self._keep = speculate, keep
        self._pieces = self._run()

    def __iter__(self) -> "Generation":
        return self

    def __next__(self) -> TextPiece:
        return next(self._pieces)

    def close(self) -> None:
        """Ends the answer early; the text held back for a stop string is added to `result.text`."""
        self._pieces.close()

    def state(self) -> dict[str, Any]:
        """The part of the answer's state that Drawing saves, beside the sampler's and `pending`."""
        return self._drawing.state()

    def _run(self) -> Generator[TextPiece, None, None]:
        batcher, job, begin = Batcher(self._seq.runner, 1, step_seconds=inf), None, time.perf_counter()
        try:
            if self._prompt and self._keep is not None:
                self.result.discarded += make_room(self._seq, len(self._prompt), self._keep)
            job = self._job()
            batcher.go_on(job, self._seq)
            while not job.done:
                yield from self._told(job)
                batcher.step()
        except KeyboardInterrupt:
            if not self.is_read:
                self.result.prompt_seconds = time.perf_counter() - begin
        finally:
            batcher.close()
        if job is not None:
            yield from self._told(job)

    def _job(self) -> Job:
        n, total = len(self._seq.tokens), len(self._prompt)
        progress = self._progress

        def on_read(done: int, _: int) -> None:
            self.is_read = done == n + total
            if progress is not None:
                progress(done - n, total)

        if progress is not None and total:
            progress(0, total)
        return Job(
            [*self._seq.tokens, *self._prompt],
            self._drawing,
            keep=self._keep,
            remember=True,
            speculate=self._speculate,
            boundaries=self._boundaries,
            alone=True,
            on_text=self._unread.append,
            on_read=on_read,
        )

    def _told(self, job: Job) -> Generator[TextPiece, None, None]:
        """Yields the waiting pieces. The time that the caller takes for them does not count as the answer's."""
        while self._unread:
            begin = time.perf_counter()
            yield self._unread.popleft()
            job.began += time.perf_counter() - begin


__all__ = ["EndReason", "Generation", "GenerationResult", "TextPiece", "generate"]
