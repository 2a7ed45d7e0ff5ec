"""From logits to a token: llama.cpp's chain, in its order, on the few candidates that matter.

    penalties -> top_k -> top_p -> min_p -> temperature -> draw

The chain is exact but lazy: candidates are the few logits that reach a bound taken from maxima, and only as many as
top_k or top_p can keep are ever sorted. Equal logits are ordered by id, so a draw does not depend on how numpy sorts.
"""

import math
import secrets
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from hybrid.quant.ggml.errors import FormatError, HybridError, Remedy, StateError, UsageError, shown


@dataclass(frozen=True)
class SamplingParams:
    """How to choose the next token. The defaults are llama.cpp's."""

    temp: float = 0.8  # 0 or less: always the most probable token
    top_k: int = 40  # keep the k most probable; 0 or less: all
    top_p: float = 0.95  # keep the fewest tokens whose probabilities reach p; 1: all
    min_p: float = 0.05  # keep what has at least this share of the best token's probability; 0: all
    repeat_penalty: float = 1.0  # divides (or, below 0, multiplies) the logits of recent tokens; 1: none
    presence_penalty: float = 0.0  # subtracted once from the logit of each recent token
    frequency_penalty: float = 0.0  # subtracted for each time it occurred
    repeat_last_n: int = 64  # how many tokens are recent; 0: none, -1: all
    seed: int | None = None  # None: a random one, see Sampler.seed
    logit_bias: Mapping[int, float] = field(default_factory=dict)  # token -> added to its logit; -inf: never

    def __post_init__(self) -> None:
        def need(ok: bool, name: str, expected: str) -> None:
            if not ok:
                raise UsageError(f"{name} = {getattr(self, name)}, expected {expected}")

        need(math.isfinite(self.temp), "temp", "a finite number; 0 is greedy")
        need(0 < self.top_p <= 1, "top_p", "a number above 0, at most 1")
        need(0 <= self.min_p <= 1, "min_p", "a number from 0 to 1")
        need(math.isfinite(self.repeat_penalty) and self.repeat_penalty > 0, "repeat_penalty", "a number above 0")
        need(math.isfinite(self.presence_penalty), "presence_penalty", "a finite number")
        need(math.isfinite(self.frequency_penalty), "frequency_penalty", "a finite number")
        need(self.repeat_last_n >= -1, "repeat_last_n", "0 or more, or -1 for all")
        need(self.seed is None or 0 <= self.seed < 2**64, "seed", "an integer from 0 to 2**64 - 1")
        for token, bias in self.logit_bias.items():
            if math.isnan(bias) or bias == math.inf:
                raise UsageError(f"logit_bias of token {token} = {bias}, expected a finite number or -inf")

    @property
    def changed(self) -> dict[str, Any]:
        """The fields that are not at their defaults: a sampler of a later version that nobody uses is not there."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in values.items() if value != getattr(_DEFAULTS, name)}

    @property
    def greedy(self) -> bool:
        return self.temp <= 0

    @property
    def penalizes(self) -> bool:
        changes = self.repeat_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0
        return changes and self.repeat_last_n != 0

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], **given: Any) -> "SamplingParams":
        """The defaults, the model's own (`general.sampling.*`, from generation_config.json), then what is `given`.

        A given None counts as not given. FormatError where the file's value cannot be used for sampling.
        """
        values: dict[str, Any] = {}
        for key, (name, kind) in _METADATA_KEYS.items():
            value = metadata.get(f"general.sampling.{key}")
            if value is None:
                continue
            number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
            try:
                if not number:
                    raise UsageError("not a number")
                cls(**{name: kind(value)})
            except (UsageError, ValueError, OverflowError):
                raise FormatError(
                    f"general.sampling.{key} = {shown(value)} cannot be used. Convert the model again."
                ) from None
            values[name] = kind(value)
        known = {f.name for f in fields(cls)}
        values.update({name: value for name, value in given.items() if value is not None})
        unknown = sorted(values.keys() - known)
        assert not unknown, f"no sampling parameter {unknown}"
        return cls(**values)


_DEFAULTS = SamplingParams()

# general.sampling.<key> -> (field, type). The mirostat and xtc keys ask for samplers we do not have; they are rare.
_METADATA_KEYS: dict[str, tuple[str, type]] = {
    "temp": ("temp", float),
    "top_k": ("top_k", int),
    "top_p": ("top_p", float),
    "min_p": ("min_p", float),
    "penalty_repeat": ("repeat_penalty", float),
    "penalty_last_n": ("repeat_last_n", int),
}


class Sampler:
    """Draws tokens; its state is the random generator and the recent tokens.

    The same params, seed and logits give the same tokens whatever numpy's version: PCG64's raw 64-bit output is used,
    which numpy promises never to change.
    """

    def __init__(self, params: SamplingParams, n_vocab: int) -> None:
        self.params = params
        self.n_vocab = n_vocab
        self.seed = params.seed if params.seed is not None else secrets.randbits(32)
        self._random = np.random.PCG64(self.seed)
        last = params.repeat_last_n
        self._recent: deque[int] = deque(maxlen=None if last < 0 else last)
        self._counts: Counter[int] = Counter()
        self._banned: frozenset[int] = frozenset()
        outside = [token for token in params.logit_bias if not 0 <= token < n_vocab]
        if outside:
            raise UsageError(f"logit_bias names token {outside[0]}, the vocabulary has {n_vocab} tokens")

    def ban(self, tokens: Iterable[int]) -> None:
        """These are never drawn (`ignore_eos`). Replaces what was banned before."""
        self._banned = frozenset(token for token in tokens if 0 <= token < self.n_vocab)

    def accept(self, token: int) -> None:
        """Notes a token of the text, prompt or drawn, for the penalties."""
        recent = self._recent
        if recent.maxlen == 0:
            return
        if recent.maxlen is not None and len(recent) == recent.maxlen:
            oldest = recent[0]
            self._counts[oldest] -= 1
            if not self._counts[oldest]:
                del self._counts[oldest]
        recent.append(token)
        self._counts[token] += 1

    def accept_all(self, tokens: Iterable[int]) -> None:
        """`accept` for a prompt; only its end can matter."""
        limit = self._recent.maxlen
        kept = tokens if limit is None else deque(tokens, maxlen=limit)
        for token in kept:
            self.accept(token)

    def sample(self, logits: np.ndarray) -> int:
        """The next token for f32 logits [n_vocab], which are not changed. HybridError when they hold NaN."""
        if logits.shape != (self.n_vocab,):
            raise UsageError(f"logits have shape {logits.shape}, expected ({self.n_vocab},)")
        logits = self._adjusted(logits)
        best = int(np.argmax(logits))  # the first NaN, if there is one
        top = float(logits[best])
        if not math.isfinite(top):
            raise HybridError(
                f"the logits hold {'NaN' if math.isnan(top) else 'no finite maximum'} (token {best}): "
                "the weights are damaged or out of range. Convert the model again.",
                remedy=Remedy.VERIFY,
            )
        if self.params.greedy:
            return best
        tokens, values = self._candidates(logits, top)
        with np.errstate(over="ignore"):  # a temperature near 0 sends all but the best to -inf
            weights = np.exp((values.astype(np.float64) - top) / self.params.temp)
        edges = np.cumsum(weights)
        draw = self._uniform() * edges[-1]
        return int(tokens[min(int(np.searchsorted(edges, draw, side="right")), len(tokens) - 1)])

    def state(self) -> dict[str, Any]:
        """All that the next draws depend on except the params; plain JSON."""
        inner = self._random.state["state"]
        return {
            "seed": self.seed,
            "generator": "PCG64",
            "state": str(inner["state"]),  # 128 bits: JSON readers elsewhere would round it
            "inc": str(inner["inc"]),
            "recent": list(self._recent),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Goes on where `state` was taken. StateError when it is not a state of this class."""
        try:
            if state["generator"] != "PCG64":
                raise ValueError
            inner = {"state": int(state["state"]), "inc": int(state["inc"])}
            seed, recent = int(state["seed"]), [int(token) for token in state["recent"]]
            if not all(0 <= value < 2**128 for value in inner.values()):
                raise ValueError
            if not all(0 <= token < self.n_vocab for token in recent):
                raise ValueError
        except (KeyError, TypeError, ValueError, OverflowError):  # OverflowError: infinity
            raise StateError("the sampler state is not of this version.", remedy=Remedy.WITHOUT_STATE) from None
        self.seed = seed
        whole: Any = {"bit_generator": "PCG64", "state": inner, "has_uint32": 0, "uinteger": 0}
        self._random.state = whole
        self._recent.clear()
        self._counts.clear()
        self.accept_all(recent)

    def _uniform(self) -> float:
        """In [0, 1), 53 random bits."""
        return (int(self._random.random_raw()) >> 11) * 2.0**-53

    def _adjusted(self, logits: np.ndarray) -> np.ndarray:
        """Logits with bias, bans and penalties; the caller's own array when there is nothing to change."""
        params = self.params
        penalized = params.penalizes and self._counts
        if not (penalized or params.logit_bias or self._banned):
            return logits
        logits = logits.astype(np.float32)
        for token, bias in params.logit_bias.items():
            logits[token] += np.float32(bias)
        if self._banned:
            logits[list(self._banned)] = -np.inf
        if penalized:
            tokens = np.fromiter(self._counts.keys(), np.intp, len(self._counts))
            counts = np.fromiter(self._counts.values(), np.float32, len(self._counts))
            values = logits[tokens]
            repeat = np.float32(params.repeat_penalty)
            values = np.where(values > 0, values / repeat, values * repeat)
            logits[tokens] = (
                values - counts * np.float32(params.frequency_penalty) - np.float32(params.presence_penalty)
            )
        return logits

    def _candidates(self, logits: np.ndarray, top: float) -> tuple[np.ndarray, np.ndarray]:
        """Tokens that survive top_k, top_p and min_p, with their logits; sorted only for top_p. `top`: maximum."""
        params = self.params
        # min_p looks at the best token only, so it commutes with the others and goes first where it can.
        floor = top + math.log(params.min_p) if params.min_p > 0 else -math.inf
        n_keep = params.top_k if 0 < params.top_k < self.n_vocab else self.n_vocab
        if params.top_p >= 1:
            if n_keep == self.n_vocab:
                tokens = np.flatnonzero(logits >= floor)
            else:
                tokens = np.sort(_largest(logits, n_keep))
                tokens = tokens[logits[tokens] >= floor]
            return tokens, logits[tokens]
        if n_keep < self.n_vocab:
            tokens, values, weights = _descending(logits, n_keep, top)
            return _until(tokens, values, weights, params.top_p * float(weights.sum()), floor)
        total = float(np.exp(logits - np.float32(top)).sum(dtype=np.float64))
        for n in _growing(256, self.n_vocab):
            tokens, values, weights = _descending(logits, n, top)
            reached = float(weights.sum()) >= params.top_p * total
            if reached or n == self.n_vocab or values[-1] < floor:
                break
        return _until(tokens, values, weights, params.top_p * total, floor)


_STRIDE = 64  # logits that share a maximum in `_largest`: few enough maxima, and few logits that reach the edge


def _growing(first: int, last: int) -> Iterator[int]:
    n = first
    while n < last:
        yield n
        n *= 8
    yield last


def _reaching(logits: np.ndarray, n: int) -> np.ndarray:
    """Ids, ascending, of the logits that may be among the n largest: these and few more."""
    if n >= len(logits):
        return np.arange(len(logits))
    m = len(logits) // _STRIDE
    if n > m:
        return np.flatnonzero(logits >= np.partition(logits, len(logits) - n)[len(logits) - n])
    # n of the maxima of m parts reach the n-th of them: no smaller logit is among the n largest
    parts = logits[: m * _STRIDE].reshape(_STRIDE, m)
    maxima = parts.max(axis=0)
    edge = np.partition(maxima, m - n)[m - n]
    columns = np.flatnonzero(maxima >= edge)
    rows, places = np.nonzero(parts[:, columns] >= edge)
    rest = m * _STRIDE + np.flatnonzero(logits[m * _STRIDE :] >= edge)
    return np.concatenate([rows * m + columns[places], rest])


def _largest(logits: np.ndarray, n: int) -> np.ndarray:
    """Ids of the n largest logits by falling logit, equal ones (at the edge too) by id."""
    ids = _reaching(logits, n)
    return ids[np.argsort(-logits[ids], kind="stable")[:n]]


def _descending(logits: np.ndarray, n: int, top: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The n largest: ids, logits, and weights exp(logit - top) in f64."""
    tokens = _largest(logits, n)
    values = logits[tokens]
    return tokens, values, np.exp(values.astype(np.float64) - top)


def _until(
    tokens: np.ndarray, values: np.ndarray, weights: np.ndarray, mass: float, floor: float
) -> tuple[np.ndarray, np.ndarray]:
    """The fewest of the sorted tokens whose weights reach `mass`, of those with a logit of at least `floor`."""
    n = int(weights.cumsum().searchsorted(mass, side="left")) + 1
    n = max(1, min(n, int(np.count_nonzero(values >= floor))))
    return tokens[:n], values[:n]
