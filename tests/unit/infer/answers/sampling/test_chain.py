"""Every sampler by itself and in any order: llama.cpp's vectors (tests/test-sampling.cpp, MIT), and twins."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

from hybrid.infer.answers.sampling import SAMPLERS, Sampler, SamplingParams
from hybrid.infer.answers.sampling.chain import STEPS, Candidates, Chain
from hybrid.infer.answers.sampling.largest import falling
from hybrid.infer.answers.sampling.sampler import QUICK

UP, DOWN, EVEN = [0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1], [0.2] * 5
NO_BREAKERS: dict[str, Any] = {"dry_breakers": ()}


def left_by(settings: dict[str, Any], p: list[float], name: str, text: list[int] | None = None) -> dict[int, float]:
    """token -> probability after one sampler whose random numbers are all 0."""
    chain = Chain(SamplingParams(**settings), lambda: 0.0, settings.get("breakers", {}))
    chain.accept_all(text or [])
    with np.errstate(divide="ignore"):
        logits = np.log(np.asarray(p, np.float32))
    left = STEPS[name](Candidates.of(logits), chain)
    return dict(zip(left.ids.tolist(), left.probabilities().tolist(), strict=True))


# sampler, settings, probabilities before and after (of the remaining tokens only)
VECTORS: list[tuple[str, dict[str, Any], list[float], list[float]]] = [
    ("temperature", {"temp": 1.0}, UP, UP),
    ("temperature", {"temp": 0.0}, UP, [1.0]),
    ("temperature", {"temp": 1.0, "dynatemp_range": 0.0}, UP, UP),
    ("top_k", {"top_k": 1}, UP, [1.0]),
    ("top_k", {"top_k": 3}, UP, [0.22222, 0.33333, 0.44444]),
    ("top_k", {"top_k": 4}, UP, UP),
    ("top_p", {"top_p": 1e-9}, UP, [1.0]),
    ("top_p", {"top_p": 0.7}, UP, [0.428571, 0.571429]),
    ("top_p", {"top_p": 0.8}, UP, [0.22222, 0.33333, 0.44444]),
    ("top_p", {"top_p": 1.0}, UP, UP),
    ("min_p", {"min_p": 1e-30}, UP, UP),
    ("min_p", {"min_p": 0.24}, UP, UP),
    ("min_p", {"min_p": 0.26}, UP, [0.2 / 0.9, 0.3 / 0.9, 0.4 / 0.9]),
    ("min_p", {"min_p": 0.49}, UP, [0.2 / 0.9, 0.3 / 0.9, 0.4 / 0.9]),
    ("min_p", {"min_p": 0.51}, UP, [0.3 / 0.7, 0.4 / 0.7]),
    ("min_p", {"min_p": 0.74}, UP, [0.3 / 0.7, 0.4 / 0.7]),
    ("min_p", {"min_p": 0.76}, UP, [1.0]),
    ("min_p", {"min_p": 1.00}, UP, [1.0]),
    ("xtc", {"xtc_probability": 0.99, "xtc_threshold": 0.09}, DOWN, [1.0]),
    ("xtc", {"xtc_probability": 0.99, "xtc_threshold": 0.19}, DOWN, [0.2 / 0.3, 0.1 / 0.3]),
    ("xtc", {"xtc_probability": 0.99, "xtc_threshold": 0.29}, DOWN, [0.3 / 0.6, 0.2 / 0.6, 0.1 / 0.6]),
    ("xtc", {"xtc_probability": 0.99, "xtc_threshold": 0.39}, DOWN, DOWN),
    ("typ_p", {"typ_p": 0.5}, [0.97, 0.01, 0.01, 0.01], [1.0]),
    ("typ_p", {"typ_p": 0.5}, [0.4, 0.2, 0.2, 0.2], [1 / 3, 1 / 3, 1 / 3]),
    ("top_n_sigma", {"top_n_sigma": 1.0}, UP, [0.428571, 0.571429]),
    ("top_n_sigma", {"top_n_sigma": 3.0}, UP, UP),
]


@pytest.mark.parametrize(("name", "settings", "before", "after"), VECTORS)
def test_vectors(name: str, settings: dict[str, Any], before: list[float], after: list[float]) -> None:
    left = left_by(settings, before, name)
    # llama.cpp keeps the probabilities from before xtc and typ_p; ours are of the remaining tokens
    np.testing.assert_allclose([left[token] for token in sorted(left)], after, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "after", "repeat", "frequency", "presence"),
    [
        ([0], [0, 0.25, 0.25, 0.25, 0.25], 50.0, 0.0, 0.0),
        ([0, 1, 2], [0, 0, 0, 0.5, 0.5], 50.0, 0.0, 0.0),
        ([0, 1, 2, 0, 0], [0, 0, 0, 0.5, 0.5], 50.0, 0.0, 0.0),
        ([0], [0.000011, 0.249997, 0.249997, 0.249997, 0.249997], 1.0, 5.0, 5.0),
        ([0, 1, 2], [0.000023, 0.000023, 0.000023, 0.499966, 0.499966], 1.0, 5.0, 5.0),
        ([0, 1, 2, 0, 0], [0.000000, 0.000023, 0.000023, 0.499977, 0.499977], 1.0, 5.0, 5.0),
    ],
)
def test_penalties(text: list[int], after: list[float], repeat: float, frequency: float, presence: float) -> None:
    settings = {"repeat_penalty": repeat, "frequency_penalty": frequency, "presence_penalty": presence}
    left = left_by({**settings, "repeat_last_n": len(text)}, EVEN, "penalties", text)
    np.testing.assert_allclose([left[token] for token in range(5)], after, atol=1e-5)


@pytest.mark.parametrize(
    ("n", "text", "after", "multiplier", "allowed", "breakers"),
    [
        (4, [0, 1], [0.25] * 4, 1.0, 2, {}),
        (4, [0, 1, 2, 0, 1], [0.296923, 0.296923, 0.109232, 0.296923], 1.0, 2, {}),
        (5, [0, 1, 3, 4, 0, 1], [0.2] * 5, 1.0, 2, {3: ((),)}),
        (5, [0, 1, 2, 0, 1], [0.241818, 0.241818, 0.032727, 0.241818, 0.241818], 2.0, 2, {}),
        (5, [0, 1, 2, 3, 4, 0, 1], [0.2] * 5, 1.0, 4, {}),
    ],
)
def test_dry(
    n: int, text: list[int], after: list[float], multiplier: float, allowed: int, breakers: dict[int, Any]
) -> None:
    params = SamplingParams(
        dry_multiplier=multiplier, dry_base=1.1, dry_allowed_length=allowed, dry_last_n=len(text), dry_breakers=()
    )
    chain = Chain(params, lambda: 0.0, breakers)
    chain.accept_all(text)
    left = STEPS["dry"](Candidates.of(np.full(n, math.log(1 / n), np.float32)), chain)
    np.testing.assert_allclose(left.probabilities(), after, atol=1e-5)


ORDERS = ["".join(order) for n in (2, 3) for order in itertools.permutations("kpm", n)]


@pytest.mark.parametrize("order", ORDERS)
def test_orders_of_three(order: str) -> None:
    """The weights 0 .. 9999 equal the token ids, so the remaining tokens can be counted (llama.cpp's
    test_sampler_queue)."""
    n, k, p, least = 10_000, 100, 0.8, 0.1
    with np.errstate(divide="ignore"):
        logits = np.log(np.arange(n, dtype=np.float32))
    chain = Chain(SamplingParams(top_k=k, top_p=p, min_p=least), lambda: 0.0)
    left, kept = Candidates.of(logits), list(range(n - 1, 0, -1))
    for letter in order:
        left = STEPS[{"k": "top_k", "p": "top_p", "m": "min_p"}[letter]](left, chain)
        if letter == "k":
            kept = kept[:k]
        elif letter == "p":
            total, so_far, count = sum(kept), 0, 0
            while so_far < p * total:
                so_far += kept[count]
                count += 1
            kept = kept[:count]
        else:
            kept = [token for token in kept if token >= least * kept[0]]
        assert sorted(left.ids.tolist(), reverse=True) == kept, letter


QUICK_SETTINGS: list[dict[str, Any]] = [
    {},
    {"top_k": 0},
    {"top_k": 0, "top_p": 1.0},
    {"min_p": 0.0},
    {"top_p": 0.3, "min_p": 0.3},
    {"temp": 0.0},
    {"repeat_penalty": 1.4, "presence_penalty": 0.4, "frequency_penalty": 0.1},
    {"samplers": ("top_k", "temperature")},
    {"samplers": ("min_p",), "temp": 9.0},
    {"samplers": ()},
    {"samplers": ("penalties", "top_p"), "repeat_penalty": 2.0},
]


@pytest.mark.parametrize("settings", QUICK_SETTINGS, ids=str)
def test_the_quick_way_leaves_what_the_chain_leaves(settings: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    params = SamplingParams(seed=1, **settings)
    assert set(params.plan) <= set(QUICK)
    text = rng.integers(500, size=40).tolist()
    for _ in range(20):
        logits = (rng.standard_normal(500) * 3).astype(np.float32)
        quick = Sampler(params, 500)
        quick.accept_all(text)
        token = quick.sample(logits)
        chain = Chain(params, lambda: 0.0)
        chain.accept_all(text)
        left = chain.run(logits, params.plan)
        want = dict(zip(left.ids.tolist(), left.probabilities().tolist(), strict=True))
        if quick.probabilities is None:
            assert want == {token: 1.0}
            continue
        got = dict(zip(*(values.tolist() for values in quick.probabilities), strict=True))
        assert got.keys() == want.keys()
        np.testing.assert_allclose([got[i] for i in want], list(want.values()), rtol=1e-5)


def entropy_of(p: np.ndarray) -> float:
    return -math.fsum(x * math.log(x) for x in p.tolist() if x > 0)


def test_dynamic_temperature() -> None:
    """Text with many likely continuations gets a higher temperature (llama.cpp PR 4972)."""
    rng = np.random.default_rng(4)
    for spread in (0.1, 1.0, 5.0):
        logits = (rng.standard_normal(64) * spread).astype(np.float32)
        p = np.exp(logits.astype(np.float64) - logits.max())
        share = entropy_of(p / p.sum()) / math.log(64)
        temp = 0.3 + (1.3 - 0.3) * share**1.5
        want = np.exp((logits - logits.max()).astype(np.float64) / temp)
        params = SamplingParams(temp=0.8, dynatemp_range=0.5, dynatemp_exponent=1.5)
        left = STEPS["temperature"](Candidates.of(logits), Chain(params, lambda: 0.0))
        np.testing.assert_allclose(left.probabilities(), want / want.sum(), rtol=1e-5)
    cold = SamplingParams(temp=0.0, dynatemp_range=0.5)
    assert not cold.greedy, "between 0 and 0.5"
    one = Candidates(np.asarray([3]), np.asarray([1.0]))
    assert STEPS["temperature"](one, Chain(cold, lambda: 0.0)) is one


def test_typical_is_about_as_likely_as_expected() -> None:
    rng = np.random.default_rng(6)
    for _ in range(20):
        logits = (rng.standard_normal(50) * 2).astype(np.float32)
        p = np.exp(logits.astype(np.float64))
        p /= p.sum()
        far = np.abs(-np.log(p) - entropy_of(p))
        kept, mass = set(), 0.0
        for token in np.argsort(far):
            kept.add(int(token))
            mass += p[token]
            if mass > 0.6:
                break
        left = STEPS["typ_p"](Candidates.of(logits), Chain(SamplingParams(typ_p=0.6), lambda: 0.0))
        assert set(left.ids.tolist()) == kept


@pytest.mark.parametrize(
    ("name", "settings"),
    [("top_p", {"top_p": 1e-6}), ("min_p", {"min_p": 1.0}), ("typ_p", {"typ_p": 1e-6})],
)
def test_some_are_kept_in_any_case(name: str, settings: dict[str, Any]) -> None:
    logits = np.asarray([0, 5, 1, 3, 2], np.float32)
    for least in range(6):
        left = STEPS[name](Candidates.of(logits), Chain(SamplingParams(min_keep=least, **settings), lambda: 0.0))
        assert len(left) == min(max(least, 1), 5)
        if name != "typ_p":
            assert left.ids.tolist() == [1, 3, 4, 2, 0][: max(least, 1)]
    # xtc excludes nothing if fewer would remain
    for least, excluded in ((0, 2), (2, 2), (3, 2), (4, 0)):
        params = SamplingParams(xtc_probability=1.0, xtc_threshold=0.1, min_keep=least)
        left = STEPS["xtc"](Candidates.of(np.log([0.3, 0.3, 0.3, 0.05, 0.05]).astype(np.float32)), Chain(params, float))
        assert len(left) == 5 - excluded, least


@pytest.mark.parametrize("banned", [0, 9], ids=["none banned", "some banned"])
def test_the_first_steps_are_taken_on_all_logits_alike(banned: int) -> None:
    """The fast paths for common first samplers leave the same tokens as the samplers one by one."""
    rng = np.random.default_rng(3)
    text = [*rng.integers(300, size=64).tolist(), 7, 8, 9, 7, 8]
    settings: dict[str, Any] = {
        "repeat_penalty": 1.5,
        "dry_multiplier": 2.0,
        "top_n_sigma": 1.5,
        "top_k": 50,
        "presence_penalty": 0.5,
        **NO_BREAKERS,
    }
    for order in itertools.permutations(["penalties", "dry", "top_n_sigma", "top_k"]):
        logits = (rng.standard_normal(300) * 3).astype(np.float32)
        logits[:banned] = -np.inf
        chain = Chain(SamplingParams(**settings), lambda: 0.0)
        chain.accept_all(text)
        want = Candidates.of(logits)
        for name in order:
            want = STEPS[name](want, chain)
        got = chain.run(logits, order)
        assert sorted(got.ids.tolist()) == sorted(want.ids.tolist()), order
        a, b = (dict(zip(x.ids.tolist(), x.logits.tolist(), strict=True)) for x in (got, want))
        np.testing.assert_allclose([a[i] for i in b], list(b.values()), rtol=1e-5, atol=1e-5)


def test_xtc_happens_as_often_as_it_should() -> None:
    logits = np.log(np.asarray([0.5, 0.3, 0.2], np.float32))
    sampler = Sampler(SamplingParams(seed=5, xtc_probability=0.25, xtc_threshold=0.15, temp=1.0, min_p=0, top_p=1), 3)
    n = sum(sampler.sample(logits) == 2 for _ in range(4000))
    expected = 0.25 + 0.75 * 0.2
    assert abs(n - 4000 * expected) < 6 * math.sqrt(4000 * expected * (1 - expected))


def test_banned_tokens_stay_out_of_every_sampler() -> None:
    """Banned tokens are also left out of mean, entropy and count."""
    rng = np.random.default_rng(9)
    every: dict[str, Any] = {
        "top_n_sigma": 2.0,
        "typ_p": 0.9,
        "dynatemp_range": 0.3,
        "xtc_probability": 0.5,
        "dry_multiplier": 1.0,
        "repeat_penalty": 1.1,
        **NO_BREAKERS,
    }
    logits = rng.standard_normal(40).astype(np.float32)
    few = Sampler(SamplingParams(seed=2, **every), 20)
    many = Sampler(SamplingParams(seed=2, **every, logit_bias=dict.fromkeys(range(20, 30), -math.inf)), 40)
    many.ban(range(30, 40))
    for _ in range(100):
        token = few.sample(logits[:20])
        assert many.sample(logits) == token
        few.accept(token)
        many.accept(token)


def test_every_sampler_has_its_step_and_letter() -> None:
    assert list(STEPS) == list(SAMPLERS) and len(set(SAMPLERS.values())) == len(SAMPLERS)


@pytest.mark.parametrize("n", [1, 5, 4095, 4096, 20011])
def test_falling_is_a_stable_sort(n: int) -> None:
    rng = np.random.default_rng(n)
    for values in (
        rng.standard_normal(n),
        rng.integers(5, size=n).astype(np.float64),
        np.where(rng.random(n) < 0.3, -np.inf, rng.integers(900, size=n) / 7),
        np.zeros(n, np.float32),
        rng.standard_normal(n).astype(np.float16).astype(np.float32),  # every value a few times
    ):
        np.testing.assert_array_equal(falling(values), np.argsort(-values, kind="stable"))


@pytest.mark.parametrize("min_p", [1.0, 0.9, 0.3, 0.05, 1e-4])
def test_min_p_first_is_min_p_of_all(min_p: float) -> None:
    """Also for tokens at the very threshold: f32 logits at and next to the f64 threshold."""
    edge = np.float32(4.0 + math.log(min_p))
    logits = np.random.default_rng(3).normal(-6, 2, 700).astype(np.float32)
    logits[17] = 4.0
    logits[100:103] = [min(np.nextafter(edge, np.float32(9)), 4.0), edge, np.nextafter(edge, np.float32(-9))]
    chain = Chain(SamplingParams(min_p=min_p), lambda: 0.5)
    fast, slow = chain.run(logits, ["min_p"]), STEPS["min_p"](Candidates.of(logits), chain)
    assert fast.ids.tolist() == slow.ids.tolist() and fast.logits.tolist() == slow.logits.tolist()
    want = [i for i, logit in enumerate(logits.tolist()) if logit >= 4.0 + math.log(min_p)]
    assert fast.ids.tolist() == want
