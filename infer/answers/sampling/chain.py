"""The samplers one after the other, in any order: what each leaves of the candidates.

A sampler is a function of the candidates and of a `Chain`, which has the settings and what the samplers remember. The
order of the defaults has a faster way of its own in sampler.py, which gives the same candidates and probabilities.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from . import dry
from .largest import largest
from .params import SamplingParams


@dataclass(frozen=True)
class Candidates:
    """Tokens that may be drawn: ids [n], ascending unless `sorted`, and logits f64 [n]; n is 1 or more.

    sorted  by falling logits, equal ones by id
    """

    ids: np.ndarray
    logits: np.ndarray
    sorted: bool = False

    @classmethod
    def of(cls, logits: np.ndarray) -> "Candidates":
        """All tokens that are not banned. logits f32 [n_vocab], one of them finite."""
        ids = np.flatnonzero(logits > -np.inf)
        return cls(ids, logits[ids].astype(np.float64))

    def __len__(self) -> int:
        return len(self.ids)

    def only(self, which: np.ndarray | slice) -> "Candidates":
        """Some of them, in their order."""
        return Candidates(self.ids[which], self.logits[which], self.sorted)

    def by_logit(self) -> "Candidates":
        """The same, sorted."""
        if self.sorted:
            return self
        order = np.argsort(-self.logits, kind="stable")
        return Candidates(self.ids[order], self.logits[order], True)

    def by_id(self) -> "Candidates":
        order = np.argsort(self.ids)
        return Candidates(self.ids[order], self.logits[order])

    def with_logits(self, logits: np.ndarray) -> "Candidates":
        """Other logits, in any order."""
        return Candidates(self.ids, logits).by_id() if self.sorted else Candidates(self.ids, logits)

    def weights(self) -> np.ndarray:
        """Probabilities but for a common factor; that of the best token is 1."""
        with np.errstate(over="ignore"):
            return np.exp(self.logits - self.logits.max())

    def probabilities(self) -> np.ndarray:
        weights = self.weights()
        return weights / weights.sum()


@dataclass
class Chain:
    """What the samplers are told, and what they remember of the text.

    uniform  a random number in [0, 1)
    recent   tokens that the penalties count, with how often each is there
    said     tokens that DRY looks at
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
        """A token of the text, prompt or drawn."""
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
        """These tokens and no others."""
        self.recent = _Last(self.params.repeat_last_n)
        for token in recent:
            self.recent.append(token)
        self.said.clear()
        self.said.extend(said)

    def run(self, candidates: Candidates, plan: Iterable[str]) -> Candidates:
        """What the named samplers leave, one after the other."""
        for name in plan:
            candidates = STEPS[name](candidates, self)
        return candidates


def _deque(n: int) -> "deque[int]":
    return deque(maxlen=None if n < 0 else n)


class _Last:
    """The last n tokens, and how often each is among them."""

    def __init__(self, n: int) -> None:
        self.tokens, self.counts = _deque(n), Counter[int]()

    def append(self, token: int) -> None:
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
    """Logits of recent tokens, f32 or f64 [n], which are there `counts` times."""
    kind = values.dtype.type
    repeat = kind(params.repeat_penalty)
    values = np.where(values > 0, values / repeat, values * repeat)
    less: np.ndarray = values - counts * kind(params.frequency_penalty) - kind(params.presence_penalty)
    return less


# --- the samplers ---
def _penalties(candidates: Candidates, chain: Chain) -> Candidates:
    counts = chain.recent.counts
    if not counts:
        return candidates
    places = np.flatnonzero(np.isin(candidates.ids, np.fromiter(counts, np.int64, len(counts))))
    times = np.asarray([counts[int(token)] for token in candidates.ids[places]], np.float64)
    logits = candidates.logits.copy()
    logits[places] = penalized(logits[places], times, chain.params)
    return candidates.with_logits(logits)


def _dry(candidates: Candidates, chain: Chain) -> Candidates:
    params = chain.params
    found = dry.repeats(chain.said, chain.breakers, params.dry_allowed_length)
    # what breaks repetitions is never one
    found = {token: n for token, n in found.items() if () not in chain.breakers.get(token, ())}
    if not found:
        return candidates
    less = dry.penalties(found, params.dry_multiplier, params.dry_base, params.dry_allowed_length)
    places = np.flatnonzero(np.isin(candidates.ids, np.fromiter(less, np.int64, len(less))))
    logits = candidates.logits.copy()
    logits[places] -= [less[int(token)] for token in candidates.ids[places]]
    return candidates.with_logits(logits)


def _top_n_sigma(candidates: Candidates, chain: Chain) -> Candidates:
    logits = candidates.logits
    return candidates.only(logits >= logits.max() - chain.params.top_n_sigma * logits.std())


def _top_k(candidates: Candidates, chain: Chain) -> Candidates:
    k = chain.params.top_k
    if k >= len(candidates) or candidates.sorted:
        return candidates.only(slice(k))
    places = largest(candidates.logits, k)
    return Candidates(candidates.ids[places], candidates.logits[places], True)


def _typical(candidates: Candidates, chain: Chain) -> Candidates:
    """Meister 2022. What is dropped is what surprises more, or less, than the whole does on average."""
    candidates = candidates.by_logit()
    p = candidates.probabilities()
    with np.errstate(divide="ignore"):
        surprise = -np.log(p)
    entropy = float((p[p > 0] * surprise[p > 0]).sum())
    order = np.argsort(np.abs(surprise - entropy), kind="stable")
    n = int(np.cumsum(p[order]).searchsorted(chain.params.typ_p, side="right")) + 1
    return candidates.only(np.sort(order[: max(n, chain.params.min_keep)]))


def _top_p(candidates: Candidates, chain: Chain) -> Candidates:
    candidates = candidates.by_logit()
    weights = candidates.weights()
    n = int(np.cumsum(weights).searchsorted(chain.params.top_p * weights.sum(), side="left")) + 1
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
    candidates = candidates.by_logit()
    last = int(np.count_nonzero(candidates.probabilities() >= params.xtc_threshold)) - 1
    if last > 0 and len(candidates) - last >= params.min_keep:
        return candidates.only(slice(last, None))
    return candidates


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
