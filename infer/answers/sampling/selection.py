"""Samplers that learn from the sampled tokens, and so come last: mirostat and adaptive_p."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import numpy as np

from .chain import Candidates, top
from .largest import largest
from .params import SamplingParams

LOOKED_AT = 100  # of the best tokens, from which mirostat 1 estimates how fast probabilities fall


class Selection(Protocol):
    """The last sampler of a plan. NAME: tells states of one sampler from another's."""

    NAME: ClassVar[str]

    def chosen_from(self, candidates: Candidates) -> Candidates:
        """The candidates to sample from; their logits give the probabilities."""

    def drawn(self, token: int, probability: float) -> None:
        """Takes the sampled token, and its probability in `chosen_from`."""

    def accept(self, token: int) -> None:
        """Takes a token of the text: the one just sampled, unless the caller chose another."""

    def state(self) -> dict[str, float]:
        """The learned values, as plain JSON."""

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Raises KeyError, TypeError or ValueError if this is not such a state."""


class Mirostat:
    """Keeps the surprise of the text near mirostat_tau bits a token (Basu 2020, arXiv 2007.14966), version 1 or 2."""

    NAME: ClassVar = "mirostat"

    def __init__(self, params: SamplingParams, n_vocab: int) -> None:
        self.params, self.n_vocab = params, n_vocab
        self.mu = 2 * params.mirostat_tau

    def chosen_from(self, candidates: Candidates) -> Candidates:
        """The tokens with a surprise of at most mu bits; in version 1, as many as there are by Zipf's law."""
        if self.params.mirostat == 2:
            p = candidates.probabilities()
            # the best one stays, whatever its surprise
            with np.errstate(all="ignore"):  # mu beyond all surprises
                least = np.float64(2.0) ** -self.mu
            return candidates.only(p >= min(least, p.max())).by_logit()
        return top(candidates, self._most(candidates))

    def _most(self, candidates: Candidates) -> int:
        """Version 1: how many tokens have a surprise of at most mu, if they follow Zipf's law."""
        if len(candidates) == 1:
            return 1
        # the normalization cancels out: logits are enough
        best = candidates.logits[largest(candidates.logits, min(LOOKED_AT, len(candidates)))]
        best = best[np.isfinite(best)]
        if len(best) < 2:
            return 1
        ranks = np.arange(1, len(best), dtype=np.float64)
        t = np.log((ranks + 1) / ranks)
        s = float((t * (best[:-1] - best[1:])).sum() / (t * t).sum())
        with np.errstate(all="ignore"):
            less = np.float64(s - 1)
            k = (less * np.float64(2.0) ** self.mu / (1 - np.float64(self.n_vocab) ** -less)) ** (1 / np.float64(s))
        return len(candidates) if not k < len(candidates) else max(int(k), 1)

    def drawn(self, token: int, probability: float) -> None:
        self.mu -= self.params.mirostat_eta * (-math.log2(probability) - self.params.mirostat_tau)

    def accept(self, token: int) -> None:
        pass

    def state(self) -> dict[str, float]:
        return {"mu": self.mu}

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.mu = _finite(state["mu"])


class Adaptive:
    """adaptive_p (llama.cpp PR 17927): prefers tokens with a probability near a target, which moves so that the average
    probability of sampled tokens approaches the requested one.
    """

    NAME: ClassVar = "adaptive_p"
    WIDTH, PEAK, SHARPNESS = 0.3, 5.0, 10.0

    def __init__(self, params: SamplingParams) -> None:
        self.params = params
        self.sum, self.n = 0.0, 0.0  # sums of the sampled probabilities, and of their weights
        self._before: tuple[np.ndarray, np.ndarray] | None = None
        self._drawn: tuple[int, float] | None = None

    def chosen_from(self, candidates: Candidates) -> Candidates:
        """All candidates, with logits by how near their probability is to the target."""
        p = candidates.probabilities()
        self._before = candidates.ids, p
        target = self.params.adaptive_target
        if self.n:
            target = min(max(2 * target - self.sum / self.n, 0.0), 1.0)
        far = np.abs(p - target) / self.WIDTH
        # a parabola near the target, straight lines farther away
        return Candidates(candidates.ids, self.PEAK - self.SHARPNESS * far * far / (1 + far))

    def drawn(self, token: int, probability: float) -> None:
        assert self._before is not None
        ids, p = self._before
        self._drawn = token, float(p[np.flatnonzero(ids == token)[0]])

    def accept(self, token: int) -> None:
        if self._drawn is not None and self._drawn[0] == token:
            decay = self.params.adaptive_decay
            self.sum, self.n = self._drawn[1] + decay * self.sum, 1 + decay * self.n
        self._drawn = None

    def state(self) -> dict[str, float]:
        return {"sum": self.sum, "n": self.n}

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.sum, self.n = _finite(state["sum"]), _finite(state["n"])


def _finite(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("not a finite number")
    return float(value)
