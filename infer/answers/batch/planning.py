"""Plans the next pass of a batch: the tokens of answers and prompts that go through the model together, and the
guesses.

Every answer that is being sampled gives its last token, and guesses of the next ones where they pay. The prompts that
are being read share the remaining room: beside answers, only as many of their tokens as keep the pass short
(slices.py). Every client has the same part of that room.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple, Protocol

from ...faults import SidePath
from ...memory.cache import LADDER
from ...memory.hybrid import MOST_PIECES
from ...program.builder import GEMV_COLUMNS
from ...runner import Output, Runner, Work
from ..drawing.prompt_logprobs import most_rows
from ..guessing.ngrams import MOST
from .guesses import MOST_BYTES, BatchGuesses
from .helped import guess_with
from .job import Job, RunningJob
from .slices import LEAST, Slices

GUESSES = SidePath("guesses of what answers say next")


class Confined(Protocol):
    """Runs a function. An error in it ends the jobs that it touched, and None is returned."""

    def __call__(self, touched: Callable[[], list[Job]], function: Callable[[], Any], /) -> Any: ...


class Counts(NamedTuple):
    """The tokens of a pass, its answers, and its guessed tokens.

    n_helped    guesses of a draft model or a head; the others come from the texts
    n_accepted  right guesses from the texts; n_helpful: right guesses of the helper
    """

    n_tokens: int
    n_answers: int
    n_guessed: int
    n_accepted: int
    n_helped: int
    n_helpful: int

    @property
    def n_prompt(self) -> int:
        """Tokens of prompts."""
        return self.n_tokens - self.n_answers - self.n_guessed


class Plans:
    """Plans the passes of one batch. step_seconds: limit of a pass beside answers."""

    def __init__(self, runner: Runner, step_seconds: float, confined: Confined) -> None:
        self.runner, self._confined = runner, confined
        self.slices = Slices(runner.n_ubatch, step_seconds)
        state = max(1, runner.memory.bytes_state_per_seq)
        self.guessing = BatchGuesses(runner.costs, min(MOST_PIECES, max(MOST, MOST_BYTES // state)))
        self._n_unseen = 0  # steps since costs were learned

    def plan(self, answers: Sequence[RunningJob]) -> tuple[list[Work], list[RunningJob]]:
        """The works of the next pass for these answers, and the answer that each work belongs to."""
        works: list[Work] = []
        drawn = [answer for answer in answers if answer.is_drawing]
        reading = [answer for answer in answers if answer.is_reading]
        if any(answer.may_guess for answer in drawn):
            self.guess(drawn, beside_prompts=bool(reading))
            drawn, reading = ([a for a in some if a.seq.is_open] for some in (drawn, reading))  # faults may end some
        for answer in drawn:  # the last token goes through the model
            ids = [*answer.result.pending, *answer.guess]
            works.append(Work(answer.seq, ids, "all", each=True) if answer.guess else Work(answer.seq, ids))
        if not reading:
            return works, drawn
        room = self.runner.n_ubatch - sum(len(work.ids) for work in works)
        if works:
            n_guessed = sum(len(answer.guess) for answer in drawn)
            room = min(room, max(LEAST, self.slices.beside_answers - n_guessed))
        else:
            room = min(room, self.slices.beside_others)
        owners = [*drawn]
        for answer, end in zip(reading, self._ends(reading, room), strict=True):
            if end > (past := answer.seq.n_past):
                output: Output = "last" if end == len(answer.ids) and not answer.result.pending else "none"
                self.slices.is_watched |= output == "last"  # its first token comes: other models' passes end soon
                output = output if answer.job.prompt_top is None else "all"
                works.append(Work(answer.seq, answer.ids[past:end], output))
                owners.append(answer)
        return works, owners

    def _ends(self, reading: Sequence[RunningJob], room: int) -> list[int]:
        """How far each text is read by a pass with room for `room` tokens. Clients have equal parts of it; the rest
        goes to the oldest answers.
        """
        room, rows, ends = max(0, room), most_rows(self.runner.n_vocab), [answer.seq.n_past for answer in reading]
        clients = {answer.job.client for answer in reading}
        parts = dict.fromkeys(clients, room // max(1, len(clients)))
        for is_shared in (True, False):
            for i, answer in enumerate(reading):
                most = min(room, parts[answer.job.client]) if is_shared else room
                if answer.job.prompt_top is not None:
                    most = min(most, rows)
                end = self.runner.cut(answer.ids, ends[i], min(self._stop(answer), ends[i] + most))
                n, ends[i] = end - ends[i], end
                room, parts[answer.job.client] = room - n, parts[answer.job.client] - n
                rows -= n if answer.job.prompt_top is not None else 0
        return ends

    def _stop(self, answer: RunningJob) -> int:
        """Where the text ends, or a checkpoint comes before that."""
        past = answer.seq.n_past
        if self.runner.cache is None:
            return len(answer.ids)
        return min(len(answer.ids), (past // LADDER + 1) * LADDER, *(m for m in answer.marks if m > past))

    def rests(self, answer: RunningJob) -> bool:
        """Whether the next step of this answer, which is alone, has no guess, and its cost need not be learned."""
        if answer.job.drawing.foresees or self.runner.guessers.helper is not None or not self.guessing.rests():
            return False
        self._n_unseen += 1
        return True

    def guess(self, drawn: Sequence[RunningJob], *, beside_prompts: bool = False) -> None:
        """Sets the guesses of the answers: likely tokens where guessing pays, and the tokens that a form forces."""
        _forget_guesses(drawn)
        rests = self.runner.guessers.helper is None and self.guessing.rests()
        if not rests and any(answer.job.speculate for answer in drawn):
            GUESSES.run(lambda: self._guess_text(drawn, beside_prompts=beside_prompts), lambda: _forget_guesses(drawn))
        room = min(self.guessing.most, self.runner.n_ubatch - len(drawn)) - sum(len(answer.guess) for answer in drawn)
        for answer in drawn:
            if answer.job.drawing.foresees:
                before = len(answer.guess)
                self._confined(partial(list, [answer.job]), partial(answer.foresee, room))
                room -= len(answer.guess) - before

    def _guess_text(self, drawn: Sequence[RunningJob], *, beside_prompts: bool) -> None:
        """Guesses from the texts so far, then with a draft model or a head."""
        self._guess_freely(drawn, beside_prompts=beside_prompts)
        helper = self.runner.guessers.helper
        if helper is not None and not beside_prompts:
            room = min(self.guessing.most, self.runner.n_ubatch - len(drawn)) - sum(len(a.guess) for a in drawn)
            guess_with(helper, [a for a in drawn if a.job.speculate], len(drawn), room, self.guessing.costs)

    def _guess_freely(self, drawn: Sequence[RunningJob], *, beside_prompts: bool) -> None:
        if self.runner.guessers.helper is not None and self.guessing.rests():
            return
        able = [answer for answer in drawn if answer.text is not None]
        token = self.slices.token_seconds if beside_prompts else None
        if not able or (beside_prompts and token is None):
            return
        room = self._columns() - len(drawn) - (LEAST if beside_prompts else 0)
        texts = [(answer.text, answer.most_guessed) for answer in able if answer.text is not None]
        for answer, guess in zip(able, self.guessing.guesses(texts, len(drawn), room, token), strict=True):
            answer.guess = list(takewhile(lambda token: token >= 0, guess))  # no tokens of pictures

    def _columns(self) -> int:
        """Limit on the tokens of a pass with guesses. Programs for more than a few are made once guesses have saved as
        much time as that takes: a short answer never waits for them.
        """
        engine, costs = self.runner.engine, self.guessing.costs
        if engine.expects_few:
            return self.runner.n_ubatch
        begin = time.perf_counter()
        is_made = engine.expect_few(costs.gained)
        costs.invest(time.perf_counter() - begin)
        return self.runner.n_ubatch if is_made else min(GEMV_COLUMNS, self.runner.n_ubatch)

    def learn(self, counts: Counts, waited: float, seconds: float) -> None:
        """Learns the costs of a pass. waited: seconds since it was begun; seconds: its own share of them, which is less
        if several passes are under way.
        """
        self.slices.timed(counts.n_prompt, counts.n_answers, waited, counts.n_guessed)
        helper, costs = self.runner.guessers.helper, self.guessing.costs
        costs.unseen(self._n_unseen)
        self._n_unseen = 0
        if counts.n_answers and not counts.n_prompt:
            shape = self.runner.engine.shape(counts.n_tokens)
            beyond = costs.timed(counts.n_answers, counts.n_guessed, seconds, shape, counts.n_helped)
            if helper is not None and (counts.n_helped or not counts.n_guessed):
                helper.passed(beyond)
        elif counts.n_guessed:
            costs.beside_prompts(counts.n_answers, counts.n_guessed, self.slices.token_seconds or 0.0)
        if counts.n_accepted:
            costs.came_true(counts.n_accepted, counts.n_answers)
        if helper is not None and counts.n_helpful:
            helper.came_true(counts.n_helpful / counts.n_answers)


def _forget_guesses(drawn: Sequence[RunningJob]) -> None:
    for answer in drawn:
        answer.guess, answer.forced, answer.is_helped = [], False, False
