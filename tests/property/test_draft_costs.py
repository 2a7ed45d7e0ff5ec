"""Gains and costs of a draft for given costs of passes: time is simulated, memory is real."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from test_conformance import SHAPES

from hybrid.infer import LoadedModel
from hybrid.infer.answers.batch.helped import guess_with
from hybrid.infer.answers.guessing import draft as drafts
from hybrid.infer.answers.guessing.draft import Draft, _Drafting
from hybrid.infer.memory.hybrid import MOST_PIECES
from hybrid.infer.memory.prefix_tree import common_beginning
from hybrid.infer.step_costs import StepCosts
from hybrid.quant.ggml.types import FileType

N_PROMPT, N_ANSWER = 400, 300
# number of tokens in a pass -> its cost, in passes of one token
ZEN3 = {1: 1.0, 2: 1.5, 3: 1.8, 4: 2.1, 8: 3.6, 11: 4.6}  # jamba-3b, Q4_0
DEAR = {1: 1.0, 2: 2.0, 4: 2.6, 5: 4.7, 8: 7.0, 11: 11.5}  # 11 M weights, all in the CPU caches
CHEAP = {1: 1.0, 2: 1.05, 3: 1.1, 4: 1.15, 8: 1.4}  # weights from memory, with arithmetic to spare


def cost_of(wide: dict[int, float], width: int) -> float:
    """Interpolates linearly between the known costs."""
    (a, low), (b, high) = list(wide.items())[-2:]
    return float(np.interp(width, [*wide, 99], [*wide.values(), high + (high - low) / (b - a) * (99 - b)]))


class Clock:
    """Simulated seconds; one is a plain pass of the model."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


class Foreseeing(Draft):
    """Predicts each token of a text with the same chance, and reports that chance. A pass takes `cost`, reading a token
    a tenth of that."""

    def __init__(self, model: LoadedModel, text: Sequence[int], chance: float, cost: float, clock: Clock) -> None:
        super().__init__(model, model)
        self.text, self.chance, self.cost, self.clock = text, chance, cost, clock
        self.rng, self.n_read = np.random.default_rng(1), 0
        model.engine._lender = None
        engine, n_bytes = SimpleNamespace(stop=None), model.n_bytes / cost
        self.main = cast(Any, SimpleNamespace(engine=engine, n_bytes=n_bytes, n_vocab=model.n_vocab))

    def _read(self, drafting: "list[_Drafting]") -> list[np.ndarray]:
        n = sum(len(d.lane.unread(d.track.ids)[1]) for d in drafting)
        start = self.clock.now
        super()._read(drafting)
        self.n_read += n
        self.clock.now = start + self.cost * max(1.0, n / 10)
        if n > 32:
            self.times.per_token = self.cost / 10
        return [self._row(d) for d in drafting]

    def _pass(self, drafting: "list[_Drafting]") -> list[np.ndarray]:
        rows = [self._row(d) for d in drafting]
        self.clock.now += self.cost
        self.times.timed(len(drafting), self.cost)
        return rows

    def _row(self, d: "_Drafting") -> np.ndarray:
        at = len(d.track.ids) + len(d.guess.tokens)
        right = self.text[at] if at < len(self.text) else 1
        token = right if self.rng.random() < self.chance else (right + 1) % 200
        row = np.zeros(self.model.n_vocab, np.float32)
        row[token] = np.log(0.7 / 0.3 * (self.model.n_vocab - 1))
        return row


@pytest.fixture
def speed(random_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[float, Draft]]:
    """The speedup of an answer by a draft."""
    clock = Clock()
    monkeypatch.setattr(drafts, "time", clock)
    path = random_model(SHAPES["llama"], FileType.Q8_0)
    text = np.random.default_rng(2).integers(60, 200, N_PROMPT + N_ANSWER).tolist()

    def measured(wide: dict[int, float], chance: float, cost: float, n: int = N_ANSWER) -> tuple[float, Draft]:
        clock.now = 0.0
        with LoadedModel.load(path, n_ctx=1024, n_ubatch=64, n_seq_max=2) as model:
            draft = Foreseeing(model, text, chance, cost, clock)
            costs, drawn = StepCosts(), cast("list[int]", [])
            drawing = SimpleNamespace(is_forced=False, constraint=None)
            answer: Any = SimpleNamespace(
                ids=text[:N_PROMPT],
                seq=None,
                track=None,
                n_told=0,
                result=SimpleNamespace(ids=drawn),
                job=SimpleNamespace(drawing=drawing),
            )
            while len(drawn) < n:
                at = N_PROMPT + len(drawn)
                drawn.append(text[at])
                answer.guess, answer.is_helped, answer.most_guessed = [], False, n - len(drawn)
                guess_with(draft, [answer], 1, MOST_PIECES, costs)
                guess, seconds = answer.guess, cost_of(wide, 1 + len(answer.guess))
                clock.now += seconds
                draft.passed(costs.timed(1, len(guess), seconds, len(guess) > 7, len(guess)))
                n_right = common_beginning(guess, text[at + 1 :])
                drawn += guess[:n_right]
                if n_right:
                    draft.came_true(n_right)
            answer.track.end()
        return n / clock.now, draft

    return measured


@pytest.mark.parametrize("wide", [CHEAP, ZEN3, DEAR])
@pytest.mark.parametrize("cost", [0.05, 0.15, 0.5])
@pytest.mark.parametrize("chance", [0.0, 0.3, 0.7, 0.95])
def test_a_draft_never_costs_much(
    wide: dict[int, float], cost: float, chance: float, speed: Callable[..., tuple[float, Draft]]
) -> None:
    """For all predictions and costs of passes: at most 3 % of an answer of 300 tokens."""
    ratio, draft = speed(wide, chance, cost)
    print(f"{wide[2]} {cost} {chance}: {ratio:.2f}, {draft.n_read} tokens read")  # type: ignore[attr-defined]
    assert ratio > 0.97


def test_what_a_good_draft_gains(speed: Callable[..., tuple[float, Draft]]) -> None:
    """With cheap wide passes: at least 1.6 times, though it first reads only the end of a prompt, and the rest with the
    time that it gained."""
    ratio, draft = speed(CHEAP, 0.7, 0.05)
    assert ratio > 1.6
    assert draft._lanes[0].n_skipped == 0, "it has read all by now"
    assert speed(ZEN3, 0.95, 0.05)[0] > 1.3
    few, _ = speed(CHEAP, 0.0, 0.15, n=30)
    assert few > 0.85, "a short answer of which nothing is foretold"
