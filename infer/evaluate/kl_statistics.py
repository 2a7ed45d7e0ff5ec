"""The statistics of llama-perplexity's comparison of two models, from their predictions of the same tokens."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from .windows import exp_or_inf

PERCENTILES = (99.9, 99, 95, 90, 75, 50, 25, 10, 5, 1, 0.1)


@dataclass(frozen=True)
class MeanWithError:
    """A mean and its standard error."""

    value: float
    error: float


@dataclass(frozen=True)
class KLDivergenceResult:
    """The comparison of a model (Q) with the base.

    correlation        of the two models' ln p
    ratio, difference  of the perplexities, Q to base
    kld                divergence in nats
    p_change           p of the right token, Q minus base
    ..._percentiles    by percent; 0 and 100: minimum and maximum
    same_top           share of positions where both models have the same most likely token
    """

    ppl: MeanWithError
    ppl_base: MeanWithError
    correlation: float
    ln_ratio: MeanWithError
    ratio: MeanWithError
    difference: MeanWithError
    kld: MeanWithError
    kld_percentiles: dict[float, float]
    p_change: MeanWithError
    p_change_percentiles: dict[float, float]
    p_change_rms: MeanWithError
    same_top: MeanWithError
    n_scored: int
    n_chunks: int
    n_ctx: int
    seconds: float
    kld_by_token: np.ndarray = field(repr=False, compare=False)
    """Divergence at each scored token, f64 [n_scored], in the order of the text."""


@dataclass(frozen=True)
class KLDivergenceSoFar:
    """The fields of `KLDivergenceResult` that are cheap to update after every chunk."""

    ppl: MeanWithError
    ln_ratio: MeanWithError
    kld: MeanWithError
    n_scored: int
    n_chunks: int


@dataclass(eq=False)
class ScoredTokens:
    """Per scored token, f64: -ln p of Q and base, divergence, change of p; whether both have the same top token."""

    nll: np.ndarray
    nll_base: np.ndarray
    kld: np.ndarray
    p_change: np.ndarray
    same_top: np.ndarray


class Running:
    """Sums over the tokens scored so far, f64."""

    def __init__(self) -> None:
        self._n = self._n_chunks = 0
        self._nll = self._base = self._kld = (0.0, 0.0)  # sums of values, and of their squares
        self._products = 0.0

    def add(self, part: ScoredTokens) -> None:
        """Add the tokens of a chunk."""

        def added(sums: tuple[float, float], x: np.ndarray) -> tuple[float, float]:
            return sums[0] + float(x.sum()), sums[1] + float((x * x).sum())

        self._n, self._n_chunks = self._n + len(part.nll), self._n_chunks + 1
        self._nll, self._base = added(self._nll, part.nll), added(self._base, part.nll_base)
        self._kld = added(self._kld, part.kld)
        self._products += float((part.nll * part.nll_base).sum())

    def so_far(self) -> KLDivergenceSoFar:
        """The figures of all chunks added so far."""
        n = self._n
        ln, ln_base, kld = (_estimate(n, x / n, squares / n) for x, squares in (self._nll, self._base, self._kld))
        covariance = _covariance(n, self._products / n, ln.value * ln_base.value)
        return KLDivergenceSoFar(_exponential(ln), _difference(ln, ln_base, covariance), kld, n, self._n_chunks)


def summary(parts: Sequence[ScoredTokens], n_ctx: int, seconds: float) -> KLDivergenceResult:
    """The figures of all scored tokens. Errors are standard errors of the mean."""
    nll, nll_base, kld, change, same = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("nll", "nll_base", "kld", "p_change", "same_top")
    )
    n = len(nll)
    ln, ln_base = _mean(nll), _mean(nll_base)
    covariance = _covariance(n, float((nll * nll_base).mean()), ln.value * ln_base.value)
    ratio = _difference(ln, ln_base, covariance)
    ppl, ppl_base = _exponential(ln), _exponential(ln_base)
    difference = math.sqrt(max(ppl.error**2 + ppl_base.error**2 - 2 * ppl.value * ppl_base.value * covariance, 0.0))
    squares = _mean(change * change)
    rms, top = math.sqrt(squares.value), float(same.mean())
    errors = ln.error * ln_base.error
    return KLDivergenceResult(
        ppl=ppl,
        ppl_base=ppl_base,
        correlation=covariance / errors if errors else 0.0,
        ln_ratio=ratio,
        ratio=_exponential(ratio),
        difference=MeanWithError(ppl.value - ppl_base.value, difference),
        kld=_mean(kld),
        kld_percentiles=_percentiles(kld),
        p_change=_mean(change),
        p_change_percentiles=_percentiles(change),
        p_change_rms=MeanWithError(rms, 0.5 / rms * squares.error if rms else 0.0),
        same_top=MeanWithError(top, math.sqrt(top * (1 - top) / max(n - 1, 1))),
        n_scored=n,
        n_chunks=len(parts),
        n_ctx=n_ctx,
        seconds=seconds,
        kld_by_token=kld,
    )


def _mean(x: np.ndarray) -> MeanWithError:
    return _estimate(len(x), float(x.mean()), float((x * x).mean()))


def _estimate(n: int, mean: float, mean_square: float) -> MeanWithError:
    variance = mean_square - mean * mean
    return MeanWithError(mean, math.sqrt(variance / (n - 1)) if variance > 0 and n > 10 else 0.0)


def _covariance(n: int, mean_product: float, product_of_means: float) -> float:
    """Covariance of the means of two samples."""
    return (mean_product - product_of_means) / max(n - 1, 1) if n >= 10 else 0.0


def _difference(a: MeanWithError, b: MeanWithError, covariance: float) -> MeanWithError:
    return MeanWithError(a.value - b.value, math.sqrt(max(a.error**2 + b.error**2 - 2 * covariance, 0.0)))


def _exponential(e: MeanWithError) -> MeanWithError:
    return MeanWithError(exp_or_inf(e.value), exp_or_inf(e.value) * e.error)


def _percentiles(x: np.ndarray) -> dict[float, float]:
    wanted = (100, *PERCENTILES, 0)
    return dict(zip(wanted, np.percentile(x, wanted).tolist(), strict=True))
