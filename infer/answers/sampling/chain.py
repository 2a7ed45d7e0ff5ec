"""Runs samplers one after the other, in any order: each leaves some of the candidates.

A sampler is a function of the candidates and of a `Chain`, which has the settings and the samplers' memory. The
default order has a faster path in sampler.py, with the same candidates and probabilities.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from . import dry
from .largest import every, falling, growing, largest
from .params import SamplingParams


@dataclass(frozen=True, eq=False)
class Candidates:
    """Tokens that may be sampled: ids [n], ascending unless `sorted`, and logits f64 [n]; n is 1 or more.

    sorted  by falling logits, equal ones by id
    """

    ids: np.ndarray
    logits: np.ndarray
    sorted: bool = False

    @classmethod
    def of(cls, logits: np.ndarray, least: float = -np.inf) -> "Candidates":
        """All tokens that are not banned, with a logit of at least `least`. logits f32 [n_vocab], one finite."""
        if least == -np.inf and logits.min() > -np.inf:
            return cls(every(len(logits)), logits.astype(np.float64))
        ids = np.flatnonzero(logits >= least if least > -np.inf else logits > -np.inf)
        return cls(ids, logits[ids].astype(np.float64))

    @classmethod
    def best(cls, logits: np.ndarray, k: int) -> "Candidates":
        """The tokens with the k largest logits, unless banned."""
        ids = largest(logits, min(k, len(logits)))
        ids = ids[logits[ids] > -np.inf]
        return cls(ids, logits[ids].astype(np.float64), True)

    def __len__(self) -> int:
        return len(self.ids)

    def only(self, which: np.ndarray | slice) -> "Candidates":
        """A part of the candidates, in their order."""
        return Candidates(self.ids[which], self.logits[which], self.sorted)

    def by_logit(self) -> "Candidates":
        """The candidates, sorted."""
        if self.sorted:
            return self
        order = falling(self.logits)
        return Candidates(self.ids[order], self.logits[order], True)

    def with_less(self, less: Mapping[int, float]) -> "Candidates":
        """The candidates, with these values subtracted from the logits of their tokens."""
        places = np.flatnonzero(np.isin(self.ids, np.fromiter(less, np.int64, len(less))))
        return self._changed(places, self.logits[places] - [less[int(token)] for token in self.ids[places]])

    def with_penalties(self, counts: Mapping[int, int], params: SamplingParams) -> "Candidates":
        """The candidates, with logits as in `penalized`. counts: of recent tokens."""
        places = np.flatnonzero(np.isin(self.ids, np.fromiter(counts, np.int64, len(counts))))
        times = np.asarray([counts[int(token)] for token in self.ids[places]], np.float64)
        return self._changed(places, penalized(self.logits[places], times, params))

    def _changed(self, places: np.ndarray, values: np.ndarray) -> "Candidates":
        logits = self.logits.copy()
        logits[places] = values
        order = np.argsort(self.ids) if self.sorted else slice(None)
        return Candidates(self.ids[order], logits[order])

    def weights(self) -> np.ndarray:
        """Probabilities up to a common factor: the best token has 1."""
        top = self.logits[0] if self.sorted else self.logits.max()
        with np.errstate(over="ignore"):
            weights: np.ndarray = np.exp(self.logits - top)
        return weights

    def probabilities(self) -> np.ndarray:
        weights = self.weights()
        weights /= weights.sum()
        return weights


@dataclass
class Chain:
    """The settings, and the samplers' memory of the text.

    uniform  returns a random number in [0, 1)
    recent   tokens that the penalties count, and how often each occurs
    said     tokens that DRY searches
    """

    params: SamplingParams
    uniform: Callable[[], float]
    breakers: dry.Breakers = field(default_factory=dict)
    recent: "_Last" = field(init=False)
    said: "deque[int]" = field(init=False)

    def __post_init__(self) -> None:
        self.recent = _Last(self.params.repeat_last_n)
        self.said = _deque(self.params.dry_last_n if self.params.dries else 0)

    def accept(self, token: int) -> None:
        """Notes a token of the prompt or a sampled one. Tokens of pictures, which are below 0, do not count."""
        if token >= 0:
            self.recent.append(token)
            self.said.append(token)

    def accept_all(self, tokens: Iterable[int]) -> None:
        """`accept` for a prompt; only its end can matter."""
        limits = [self.recent.tokens.maxlen, self.said.maxlen]
        if None not in limits:
            tokens = deque(tokens, maxlen=max(limit or 0 for limit in limits))
        for token in tokens:
            self.accept(token)

    def hold(self, recent: Iterable[int], said: Iterable[int]) -> None:
        """Replaces the remembered tokens."""
        self.recent = _Last(self.params.repeat_last_n)
        for token in recent:
            self.recent.append(token)
        self.said.clear()
        self.said.extend(said)

    def run(self, logits: np.ndarray, plan: Sequence[str]) -> Candidates:
        """The candidates that the named samplers leave, run one after the other on all tokens: logits f32 [n_vocab]."""
        rest = list(plan)
        # shortcuts for the usual first samplers: some change single logits, some need no list of all tokens
        while rest and rest[0] in ("penalties", "dry"):
            logits = self._with_less(logits, rest.pop(0))
        if rest[:1] == ["top_k"]:
            candidates = Candidates.best(logits, self.params.top_k)
            rest.pop(0)
        elif rest[:1] == ["top_n_sigma"]:
            finite = logits if logits.min() > -np.inf else logits[logits > -np.inf]
            candidates = Candidates.of(logits, _least_of(finite, self.params.top_n_sigma))
            rest.pop(0)
        elif rest[:1] == ["min_p"] and self.params.min_keep <= 1:
            # an upper bound on the candidates: a logit that rounding puts at the edge is compared again
            edge = float(logits.max()) + math.log(self.params.min_p)
            candidates = Candidates.of(logits, float(np.nextafter(np.float32(edge), np.float32(-np.inf))))
        else:
            candidates = Candidates.of(logits)
        for name in rest:
            candidates = STEPS[name](candidates, self)
        return candidates

    def _with_less(self, logits: np.ndarray, name: str) -> np.ndarray:
        """Applies penalties or DRY, which make single tokens less likely, to all logits."""
        less, counts = self.repeated() if name == "dry" else {}, self.recent.counts
        tokens = np.fromiter(counts if name == "penalties" else less, np.int64)
        if not len(tokens):
            return logits
        logits = logits.copy()
        if name == "penalties":
            times = np.fromiter(counts.values(), np.float32)
            logits[tokens] = penalized(logits[tokens], times, self.params)
        else:
            logits[tokens] -= np.fromiter(less.values(), np.float32)
        return logits

    def repeated(self) -> dict[int, float]:
        """DRY's penalties by token, to subtract from logits."""
        params = self.params
        found = dry.repeats(self.said, self.breakers, params.dry_allowed_length)
        # a breaker is never a repetition
        found = {token: n for token, n in found.items() if () not in self.breakers.get(token, ())}
        return dry.penalties(found, params.dry_multiplier, params.dry_base, params.dry_allowed_length)


def _deque(n: int) -> "deque[int]":
    return deque(maxlen=None if n < 0 else n)


class _Last:
    """The last n tokens, and how often each is among them."""

    def __init__(self, n: int) -> None:
        self.tokens, self.counts = _deque(n), Counter[int]()

    def append(self, token: int) -> None:
        """Adds a token; beyond n, the oldest goes."""
        tokens, counts = self.tokens, self.counts
        if tokens.maxlen == 0:
            return
        if tokens.maxlen is not None and len(tokens) == tokens.maxlen:
            oldest = tokens[0]
            counts[oldest] -= 1
            if not counts[oldest]:
                del counts[oldest]
        tokens.append(token)
        counts[token] += 1


def penalized(values: np.ndarray, counts: np.ndarray, params: SamplingParams) -> np.ndarray:
    """The penalized logits of recent tokens, f32 or f64 [n], each of which occurs `counts` times."""
    kind = values.dtype.type
    repeat = kind(params.repeat_penalty)
    values = np.where(values > 0, values / repeat, values * repeat)
    less: np.ndarray = values - counts * kind(params.frequency_penalty) - kind(params.presence_penalty)
    return less


# --- the samplers ---
def _penalties(candidates: Candidates, chain: Chain) -> Candidates:
    counts = chain.recent.counts
    return candidates.with_penalties(counts, chain.params) if counts else candidates


def _dry(candidates: Candidates, chain: Chain) -> Candidates:
    less = chain.repeated()
    return candidates.with_less(less) if less else candidates


def _top_n_sigma(candidates: Candidates, chain: Chain) -> Candidates:
    logits = candidates.logits
    return candidates.only(logits >= _least_of(logits, chain.params.top_n_sigma))


def _least_of(logits: np.ndarray, n_sigma: float) -> float:
    """The largest logit minus n_sigma standard deviations (Tang 2024, arXiv 2411.07641). logits f32 or f64, finite."""
    far = logits - logits.dtype.type(logits.mean(dtype=np.float64))
    sigma = math.sqrt(float(np.multiply(far, far, out=far).mean(dtype=np.float64)))
    return float(logits.max()) - n_sigma * sigma


def _top_k(candidates: Candidates, chain: Chain) -> Candidates:
    return top(candidates, chain.params.top_k)


def top(candidates: Candidates, n: int) -> Candidates:
    """The n most likely, sorted."""
    if candidates.sorted or n >= len(candidates):
        return candidates.by_logit().only(slice(n))
    places = largest(candidates.logits, n)
    return Candidates(candidates.ids[places], candidates.logits[places], True)


def _typical(candidates: Candidates, chain: Chain) -> Candidates:
    """Locally typical sampling (Meister 2022): drops tokens whose surprise is far from the average surprise."""
    p = candidates.probabilities()
    if p.min() > 0:
        surprise = -np.log(p)
        mean = float((p * surprise).sum())
    else:
        possible = p > 0
        surprise = np.full(len(p), np.inf)
        surprise[possible] = -np.log(p[possible])
        mean = float((p[possible] * surprise[possible]).sum())
    far = np.abs(surprise - mean)
    least = max(chain.params.min_keep, 1)
    for n in growing(256, len(p)):
        near = _nearest(far, n)
        kept = int(p[near].cumsum().searchsorted(chain.params.typ_p, side="right")) + 1
        if kept <= n and least <= n:
            break
    return candidates.only(np.sort(near[: max(kept, least)]))


def _nearest(far: np.ndarray, n: int) -> np.ndarray:
    """Indices of the n smallest values, and of those equal to the last, by rising value."""
    if n >= len(far):
        return np.argsort(far, kind="stable")
    places = np.flatnonzero(far <= np.partition(far, n - 1)[n - 1])
    return places[np.argsort(far[places], kind="stable")]


def _top_p(candidates: Candidates, chain: Chain) -> Candidates:
    if not candidates.sorted:
        mass = chain.params.top_p * candidates.weights().sum()
        for n in growing(256, len(candidates)):
            some = top(candidates, n)
            if some.weights().sum() >= mass and n >= chain.params.min_keep:
                break
        candidates = some
        weights = candidates.weights()
    else:
        weights = candidates.weights()
        mass = chain.params.top_p * weights.sum()
    n = int(weights.cumsum().searchsorted(mass, side="left")) + 1
    return candidates.only(slice(max(n, chain.params.min_keep)))


def _min_p(candidates: Candidates, chain: Chain) -> Candidates:
    logits = candidates.logits
    enough = logits >= logits.max() + math.log(chain.params.min_p)
    if np.count_nonzero(enough) >= chain.params.min_keep:
        return candidates.only(enough)
    return candidates.by_logit().only(slice(chain.params.min_keep))


def _xtc(candidates: Candidates, chain: Chain) -> Candidates:
    """Exclude top choices (p-e-w, text-generation-webui PR 6335)."""
    params = chain.params
    if len(candidates) < 2 or chain.uniform() >= params.xtc_probability:
        return candidates
    n = int(np.count_nonzero(candidates.probabilities() >= params.xtc_threshold))
    if n < 2 or len(candidates) - (n - 1) < params.min_keep:
        return candidates
    kept = np.ones(len(candidates), bool)
    kept[largest(candidates.logits, n)[:-1]] = False
    return candidates.only(kept)


def _temperature(candidates: Candidates, chain: Chain) -> Candidates:
    params, temp = chain.params, chain.params.temp
    if params.dynatemp_range > 0:
        if len(candidates) == 1:
            return candidates
        p = candidates.probabilities()
        p = p[p > 0]
        share = min(1.0, float(-(p * np.log(p)).sum()) / math.log(len(candidates)))
        least, most = max(0.0, temp - params.dynatemp_range), temp + params.dynatemp_range
        temp = least + (most - least) * max(share, 0.0) ** params.dynatemp_exponent
    if temp <= 0:
        return candidates.only(np.asarray([np.argmax(candidates.logits)]))
    with np.errstate(over="ignore"):  # a temperature near 0 sends all but the best to -inf
        logits = (candidates.logits - candidates.logits.max()) / temp
    return Candidates(candidates.ids, logits, candidates.sorted)


STEPS: dict[str, Callable[[Candidates, Chain], Candidates]] = {
    "penalties": _penalties,
    "dry": _dry,
    "top_n_sigma": _top_n_sigma,
    "top_k": _top_k,
    "typ_p": _typical,
    "top_p": _top_p,
    "min_p": _min_p,
    "xtc": _xtc,
    "temperature": _temperature,
}
