"""Mirostat and adaptive_p against their published descriptions, step by step in float64."""

import math
from typing import Any

import numpy as np
import pytest

from hybrid.infer.answers.sampling import Sampler, SamplingParams

N = 400


def rows(n: int) -> np.ndarray:
    return (np.random.default_rng(8).standard_normal((n, N)) * 2.5).astype(np.float32)


def probabilities(logits: np.ndarray, temp: float) -> list[tuple[int, float]]:
    """(token, probability), sorted by falling probability."""
    values = [float(v) / temp for v in logits]
    top = max(values)
    weights = [math.exp(v - top) for v in values]
    return sorted(((i, w / math.fsum(weights)) for i, w in enumerate(weights)), key=lambda pair: (-pair[1], pair[0]))


def mirostat_1(p: list[tuple[int, float]], mu: float) -> list[tuple[int, float]]:
    """Basu 2020, algorithm 1: Zipf's exponent from the best 100, then as many tokens as have a surprise of mu."""
    t = [math.log((i + 2) / (i + 1)) for i in range(99)]
    b = [math.log(p[i][1] / p[i + 1][1]) for i in range(99)]
    s = math.fsum(x * y for x, y in zip(t, b, strict=True)) / math.fsum(x * x for x in t)
    less = s - 1
    k = (less * 2**mu / (1 - N**-less)) ** (1 / s)
    return p[: max(int(k), 1)]


def mirostat_2(p: list[tuple[int, float]], mu: float) -> list[tuple[int, float]]:
    return [pair for pair in p if -math.log2(pair[1]) <= mu] or p[:1]


@pytest.mark.parametrize(("version", "cut"), [(1, mirostat_1), (2, mirostat_2)])
def test_mirostat_step_by_step(version: int, cut: Any) -> None:
    params = SamplingParams(seed=1, mirostat=version, mirostat_tau=3.0, mirostat_eta=0.2, temp=0.9, top_k=1)
    sampler, mu = Sampler(params, N), 6.0
    for logits in rows(60):
        kept = cut(probabilities(logits, 0.9), mu)
        token = sampler.sample(logits)
        assert sampler.probabilities is not None
        ids, p = sampler.probabilities
        total = math.fsum(pair[1] for pair in kept)
        assert ids.tolist() == [pair[0] for pair in kept]
        np.testing.assert_allclose(p, [pair[1] / total for pair in kept], rtol=1e-5)
        surprise = -math.log2(dict(kept)[token] / total)
        mu -= 0.2 * (surprise - 3.0)
        assert sampler.state()["learnt"]["mu"] == pytest.approx(mu, rel=1e-6)
        sampler.accept(token)


@pytest.mark.parametrize("version", [1, 2])
def test_mirostat_reaches_its_target(version: int) -> None:
    """The mean surprise of the drawn tokens, in bits, comes near tau at any temperature."""
    sampler = Sampler(SamplingParams(seed=2, mirostat=version, mirostat_tau=4.0, temp=1.5), N)
    bits = []
    for logits in rows(500):
        token = sampler.sample(logits)
        assert sampler.probabilities is not None
        ids, p = sampler.probabilities
        bits.append(-math.log2(p[ids == token][0]))
    assert abs(float(np.mean(bits[100:])) - 4.0) < 0.25


def test_mirostat_with_one_token_left() -> None:
    logits = np.full(N, -np.inf, np.float32)
    logits[7] = 1.0
    for version in (1, 2):
        assert Sampler(SamplingParams(mirostat=version), N).sample(logits) == 7
        assert Sampler(SamplingParams(mirostat=version, temp=0), N).sample(rows(1)[0]) == int(np.argmax(rows(1)[0]))


def test_adaptive_step_by_step() -> None:
    params = SamplingParams(seed=3, adaptive_target=0.4, adaptive_decay=0.8, temp=1.0, top_k=30, top_p=1, min_p=0)
    sampler, total, n = Sampler(params, N), 0.0, 0.0
    for logits in rows(50):
        best = probabilities(logits, 1.0)[:30]
        mass = math.fsum(p for _, p in best)
        before = {token: p / mass for token, p in best}
        target = min(max(0.8 - total / n, 0.0), 1.0) if n else 0.4
        far = {token: abs(p - target) / 0.3 for token, p in before.items()}
        weights = {token: math.exp(5 - 10 * x * x / (1 + x)) for token, x in far.items()}
        want = {token: w / math.fsum(weights.values()) for token, w in weights.items()}
        token = sampler.sample(logits)
        assert sampler.probabilities is not None
        got = dict(zip(*(values.tolist() for values in sampler.probabilities), strict=True))
        assert got.keys() == want.keys()
        np.testing.assert_allclose([got[i] for i in want], list(want.values()), rtol=1e-4)
        sampler.accept(token)
        total, n = before[token] + 0.8 * total, 1 + 0.8 * n
        assert sampler.state()["learnt"] == pytest.approx({"sum": total, "n": n}, rel=1e-5)


@pytest.mark.exhaustive
def test_adaptive_draws_near_its_target() -> None:
    means = []
    for target in (0.15, 0.4, 0.7):
        sampler = Sampler(SamplingParams(seed=4, adaptive_target=target, temp=1.0, top_k=0, top_p=1), N)
        drawn = []
        for logits in rows(150):
            token = sampler.sample(logits)
            drawn.append(dict(probabilities(logits, 1.0))[token])
            sampler.accept(token)
        means.append(float(np.mean(drawn)))
    assert means == sorted(means) and means[2] > 2 * means[0]


def test_another_token_than_the_one_drawn_teaches_nothing() -> None:
    sampler = Sampler(SamplingParams(seed=4, adaptive_target=0.4), N)
    token = sampler.sample(rows(1)[0])
    sampler.accept((token + 1) % N)
    assert sampler.state()["learnt"] == {"sum": 0.0, "n": 0.0}
