"""The sampling chain against a slow float64 twin that sorts all tokens; state, penalties, errors."""

import json
import math
import time
from collections import Counter
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from hybrid.infer.answers.sampling import SAMPLERS, Sampler, SamplingParams
from hybrid.infer.answers.sampling.largest import largest
from hybrid.quant.ggml.errors import FormatError, HybridError, StateError, UsageError

N = 1009


def twin(logits: np.ndarray, params: SamplingParams, recent: list[int]) -> dict[int, float]:
    """token -> probability, step by step like llama.cpp's chain."""
    values = {token: float(value) for token, value in enumerate(logits)}
    for token, bias in params.logit_bias.items():
        values[token] += bias
    last = params.repeat_last_n
    counted = Counter(recent if last < 0 else recent[len(recent) - last :] if last else [])
    for token, count in counted.items():
        value = values[token]
        value = value * params.repeat_penalty if value <= 0 else value / params.repeat_penalty
        values[token] = value - count * params.frequency_penalty - params.presence_penalty
    order = sorted(values, key=lambda token: (-values[token], token))
    if params.temp <= 0:
        return {order[0]: 1.0}
    if params.top_k > 0:
        order = order[: params.top_k]
    top = values[order[0]]
    weights = [math.exp(values[token] - top) for token in order]
    if params.top_p < 1:
        total, mass, keep = sum(weights), 0.0, 0
        for weight in weights:
            mass += weight / total
            keep += 1
            if mass >= params.top_p:
                break
        order = order[:keep]
    order = [token for token in order if math.exp(values[token] - top) >= params.min_p or token == order[0]]
    weights = [math.exp((values[token] - top) / params.temp) for token in order]
    return {token: weight / sum(weights) for token, weight in zip(order, weights, strict=True)}


SETTINGS: list[dict[str, Any]] = [
    {},
    {"temp": 0.0},
    {"temp": 0.0, "top_k": 0},
    {"top_k": 3, "top_p": 1.0, "min_p": 0.0},
    {"top_k": 0, "top_p": 0.5, "min_p": 0.0},
    {"top_k": 0, "top_p": 0.999, "min_p": 0.0, "temp": 2.0},
    {"top_k": 0, "top_p": 1.0, "min_p": 0.2},
    {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temp": 1.5},
    {"top_k": 5000, "top_p": 0.9, "min_p": 0.1},
    {"top_k": 1},
    {"min_p": 1.0},
    {"top_p": 1e-6},
    {"temp": 1e-30},
    {"repeat_penalty": 1.7, "presence_penalty": 0.3, "frequency_penalty": 0.2, "repeat_last_n": 5},
    {"repeat_penalty": 1.7, "repeat_last_n": -1, "top_k": 0},
    {"repeat_penalty": 1.7, "repeat_last_n": 0},
    {"frequency_penalty": -1.0, "temp": 0.0},
    {"logit_bias": {7: 12.0, 8: -math.inf, 9: -3.0}},
]


@pytest.mark.slow
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_chain_draws_what_the_twin_allows_as_often(settings: dict[str, Any]) -> None:
    rng = np.random.default_rng(5)
    logits = (rng.standard_normal(N) * 3).astype(np.float32)
    params = SamplingParams(seed=11, **settings)
    recent = [*np.argsort(-logits)[:8].tolist(), 3, 3, int(np.argmax(logits))]
    expected = twin(logits, params, recent)
    sampler = Sampler(params, N)
    sampler.accept_all(recent)
    before = logits.copy()
    n = 3000
    drawn = Counter(sampler.sample(logits) for _ in range(n))
    np.testing.assert_array_equal(logits, before)
    assert set(drawn) <= set(expected)
    for token, p in expected.items():
        # six standard deviations of a binomial draw, and one count
        assert abs(drawn[token] - n * p) <= 6 * math.sqrt(n * p * (1 - p)) + 1, (token, p)


def test_equal_logits_are_ordered_by_id() -> None:
    logits = np.zeros(N, np.float32)
    logits[500:] = 1.0
    kept = {Sampler(SamplingParams(seed=seed, top_k=4, min_p=0, top_p=1), N).sample(logits) for seed in range(200)}
    assert kept == {500, 501, 502, 503}
    assert Sampler(SamplingParams(temp=0), N).sample(logits) == 500


def test_a_seed_fixes_the_draws() -> None:
    """The values are frozen: a new numpy must not change the draws of a seed."""
    logits = np.linspace(0, 3, N, dtype=np.float32)

    def draws(seed: int) -> list[int]:
        sampler = Sampler(SamplingParams(seed=seed, temp=1.0), N)
        return [sampler.sample(logits) for _ in range(6)]

    assert draws(1) == draws(1) != draws(2)
    assert draws(42) == FROZEN


FROZEN = [979, 992, 976, 982, 1005, 971]


def test_no_seed_is_a_random_one_that_can_be_given_again() -> None:
    first, second = Sampler(SamplingParams(), N), Sampler(SamplingParams(), N)
    assert first.seed != second.seed
    logits = np.linspace(0, 3, N, dtype=np.float32)
    again = Sampler(SamplingParams(seed=first.seed), N)
    assert [first.sample(logits) for _ in range(9)] == [again.sample(logits) for _ in range(9)]


def test_state_goes_through_json() -> None:
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((40, N)).astype(np.float32)
    params = SamplingParams(seed=3, repeat_penalty=1.5, repeat_last_n=4)

    def run(sampler: Sampler, part: np.ndarray) -> list[int]:
        out = []
        for row in part:
            out.append(sampler.sample(row))
            sampler.accept(out[-1])
        return out

    whole = run(Sampler(params, N), rows)
    first = Sampler(params, N)
    start = run(first, rows[:17])
    other = Sampler(SamplingParams(seed=99, repeat_penalty=1.5, repeat_last_n=4), N)
    other.accept_all(range(20))
    other.set_state(json.loads(json.dumps(first.state())))
    assert start + run(other, rows[17:]) == whole
    assert other.seed == 3


@pytest.mark.parametrize(
    "change", [{"generator": "MT"}, {"state": "x"}, {"inc": "-1"}, {"recent": [N]}, {"seed": None}]
)
def test_a_foreign_state_is_refused(change: dict[str, Any]) -> None:
    sampler = Sampler(SamplingParams(seed=1), N)
    with pytest.raises(StateError, match="sampler state is not of this version"):
        sampler.set_state(sampler.state() | change)
    with pytest.raises(StateError):
        sampler.set_state({})


LEARNING: list[dict[str, Any]] = [
    {"mirostat": 1},
    {"mirostat": 2, "mirostat_tau": 3.0},
    {"adaptive_target": 0.3},
    {"dry_multiplier": 0.8, "dry_breakers": (), "dry_last_n": -1},
    {"xtc_probability": 0.5, "xtc_threshold": 0.05},
]


@pytest.mark.parametrize("settings", LEARNING, ids=str)
def test_the_middle_of_an_answer_goes_through_json(settings: dict[str, Any]) -> None:
    """The state includes everything learnt: without it, other tokens would follow."""
    rows = np.random.default_rng(2).standard_normal((60, 12)).astype(np.float32) * 2
    params = SamplingParams(seed=3, **settings)

    def run(sampler: Sampler, part: np.ndarray) -> list[int]:
        out = []
        for row in part:
            out.append(sampler.sample(row))
            sampler.accept(out[-1])
        return out

    whole = run(Sampler(params, 12), rows)
    first, other = Sampler(params, 12), Sampler(params, 12)
    start = run(first, rows[:30])
    run(other, rows[10:25])
    other.set_state(json.loads(json.dumps(first.state())))
    assert start + run(other, rows[30:]) == whole
    state = first.state()
    if "learnt" in state:
        for name in state["learnt"]:
            with pytest.raises(StateError):
                other.set_state({**state, "learnt": {**state["learnt"], name: math.nan}})


def test_only_the_last_n_are_penalized() -> None:
    params = SamplingParams(temp=0, repeat_penalty=100.0, repeat_last_n=2)
    logits = np.array([5.0, 4.0, 3.0, 2.0], np.float32)
    sampler = Sampler(params, 4)
    drawn = []
    for _ in range(5):
        drawn.append(sampler.sample(logits))
        sampler.accept(drawn[-1])
    assert drawn == [0, 1, 2, 0, 1]


def test_banned_tokens_are_never_drawn() -> None:
    sampler = Sampler(SamplingParams(seed=1, top_k=0), 4)
    sampler.ban([3, 2, 77])
    logits = np.array([0.0, 0.0, 90.0, 90.0], np.float32)
    assert {sampler.sample(logits) for _ in range(50)} == {0, 1}
    sampler.ban([])
    assert sampler.sample(logits) in (2, 3)


@pytest.mark.parametrize("temp", [0.0, 0.8])
def test_broken_logits_are_an_error(temp: float) -> None:
    sampler = Sampler(SamplingParams(temp=temp, seed=1), N)
    logits = np.zeros(N, np.float32)
    logits[17] = np.nan
    with pytest.raises(HybridError, match=r"the logits hold NaN \(token 17\)"):
        sampler.sample(logits)
    for value in (np.inf, -np.inf):
        with pytest.raises(HybridError, match="no finite maximum"):
            sampler.sample(np.full(N, value, np.float32))
    logits[17] = -np.inf
    assert sampler.sample(logits) != 17
    never = Sampler(SamplingParams(temp=temp, logit_bias=dict.fromkeys(range(N), -np.inf)), N)
    with pytest.raises(UsageError, match="logit_bias forbids every token"):
        never.sample(logits)
    with pytest.raises(UsageError, match=r"logits have shape \(3,\), expected \(1009,\)"):
        sampler.sample(logits[:3])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temp": math.nan}, "temp = nan, expected a number from 0 to 1e+06; 0 is greedy"),
        ({"top_p": 0}, "top_p = 0, expected a number above 0, at most 1"),
        ({"top_p": 1.1}, "top_p = 1.1"),
        ({"min_p": -0.1}, "min_p = -0.1, expected a number from 0 to 1"),
        ({"repeat_penalty": 0}, "repeat_penalty = 0, expected a number from 1e-06 to 1e+06"),
        ({"repeat_last_n": -2}, "repeat_last_n = -2, expected -1 to 2147483647 tokens; -1 for all"),
        ({"seed": -1}, "seed = -1, expected an integer from 0"),
        ({"presence_penalty": math.inf}, "presence_penalty = inf, expected a number from -1e+06 to 1e+06"),
        ({"frequency_penalty": math.nan}, "frequency_penalty = nan, expected a number from -1e+06 to 1e+06"),
        (
            {"dynatemp_range": -1.0},
            "dynatemp_range = -1.0, expected a number from 0 to 1e+06; 0 is a fixed temperature",
        ),
        ({"dynatemp_exponent": math.inf}, "dynatemp_exponent = inf"),
        ({"typ_p": 0.0}, "typ_p = 0.0, expected a number above 0"),
        ({"top_n_sigma": math.nan}, "top_n_sigma = nan"),
        ({"xtc_probability": 2.0}, "xtc_probability = 2.0, expected a number from 0 to 1"),
        ({"xtc_threshold": -0.1}, "xtc_threshold = -0.1, expected a number from 0 to 1"),
        ({"dry_multiplier": -1.0}, "dry_multiplier = -1.0, expected a number from 0 to 1e+06; 0 is off"),
        ({"dry_base": math.inf}, "dry_base = inf"),
        ({"dry_allowed_length": -1}, "dry_allowed_length = -1, expected 0 to 2147483647 tokens"),
        ({"dry_last_n": -2}, "dry_last_n = -2, expected -1 to 2147483647 tokens; -1 for all"),
        ({"dry_breakers": ("",)}, "dry_breakers = ('',), expected at most 32 texts of 1 to 40 characters"),
        ({"mirostat": 3}, "mirostat = 3, expected 0, 1 or 2"),
        ({"mirostat_tau": -1.0}, "mirostat_tau = -1.0, expected a number from 0 to 1e+06 bits"),
        ({"mirostat_eta": math.nan}, "mirostat_eta = nan"),
        ({"adaptive_target": 1.5}, "adaptive_target = 1.5, expected a number up to 1; below 0 is off"),
        ({"adaptive_decay": 1.0}, "adaptive_decay = 1.0, expected a number from 0, below 1"),
        ({"min_keep": -1}, "min_keep = -1, expected 0 to 2147483647 tokens"),
        ({"samplers": ("luck",)}, "samplers name luck, expected some of penalties, dry,"),
        ({"mirostat": 1, "adaptive_target": 0.5}, "mirostat and adaptive_target both choose the token"),
        ({"samplers": ("top_k", "top_k")}, "samplers name top_k twice, expected each once"),
        ({"logit_bias": {3: math.nan}}, "logit_bias of token 3 = nan, expected a number from -1e+30 to 1e+30, or -inf"),
    ],
)
def test_parameters_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        SamplingParams(**settings)
    assert message in str(error.value)


def test_bias_outside_the_vocabulary() -> None:
    with pytest.raises(UsageError, match="logit_bias names token 5, the vocabulary has 5 tokens"):
        Sampler(SamplingParams(logit_bias={5: 1.0}), 5)


def test_parameters_from_a_model() -> None:
    metadata = {
        "general.sampling.temp": np.float32(0.5),
        "general.sampling.top_k": 7,
        "general.sampling.penalty_repeat": 1.25,
        "general.sampling.penalty_last_n": 9,
        "general.sampling.mirostat": 2,
        "general.name": "x",
    }
    params = SamplingParams.from_metadata(metadata, top_k=3, top_p=None, seed=4)
    assert params == SamplingParams(temp=0.5, top_k=3, repeat_penalty=1.25, repeat_last_n=9, seed=4, mirostat=2)
    order = SamplingParams.from_metadata({"general.sampling.sequence": "top_k;typical_p;temp"}).samplers
    assert order == ("top_k", "typ_p", "temperature")
    with pytest.raises(FormatError, match=r"general.sampling.sequence: samplers name luck, expected some of pen"):
        SamplingParams.from_metadata({"general.sampling.sequence": "top_k;luck"})
    assert SamplingParams.from_metadata({}) == SamplingParams()
    for value in ("hot", True, math.nan, [1.0]):
        with pytest.raises(FormatError, match=r"general\.sampling\.temp = .* cannot be used"):
            SamplingParams.from_metadata({"general.sampling.temp": value})
    with pytest.raises(UsageError, match="min_p = 3"):
        SamplingParams.from_metadata(metadata, min_p=3)


@pytest.mark.parametrize("n_vocab", [65, 4096, 4133, 30011])
@pytest.mark.parametrize("values", [3, 10_000], ids=["many equal", "few equal"])
def test_the_largest_are_those_of_a_sort(n_vocab: int, values: int) -> None:
    """Whatever lies between the maxima of blocks; ties by id, banned tokens (-inf) last."""
    rng = np.random.default_rng(n_vocab)
    logits = rng.integers(values, size=n_vocab).astype(np.float32)
    logits[rng.integers(n_vocab, size=n_vocab // 3)] = -np.inf
    logits[:7] = values  # neighbours, in parts of their own
    logits[-3:] = values + 1  # beyond the last whole part
    order = np.argsort(-logits, kind="stable")
    for n in (1, 2, 5, 40, 62, 63, 64, 256, n_vocab - 1, n_vocab):
        if n <= n_vocab:
            assert largest(logits, n).tolist() == order[:n].tolist(), n


@pytest.mark.soak
def test_a_draw_costs_little_beside_a_token() -> None:
    """65 536 logits take 0.3 ms of processor time; the margin is for slow machines."""
    logits = np.random.default_rng(0).standard_normal(65536).astype(np.float32) * 3
    sampler = Sampler(SamplingParams(seed=1, repeat_penalty=1.1), 65536)
    sampler.accept_all(range(64))
    sampler.sample(logits)
    times = []
    for _ in range(9):
        begin = time.process_time()
        sampler.sample(logits)
        times.append(time.process_time() - begin)
    assert min(times) < 0.005


def test_what_was_changed() -> None:
    """Keys of unfinished answer files are made of the changed settings: a default is not in them."""
    assert SamplingParams().changed == {}
    changed = SamplingParams(top_k=3, min_p=0.05, seed=0, logit_bias={4: -1.0}).changed
    assert changed == {"top_k": 3, "seed": 0, "logit_bias": {4: -1.0}}


HUGE = (1e308, -1e308, 1e39, -1e39, 1e30, 1e6, -1e6, 1e-6, 1e-30, 1e-308, 0.0)
ON: dict[str, list[dict[str, Any]]] = {
    "dry_base": [{"dry_multiplier": 1.0}],
    "dry_allowed_length": [{"dry_multiplier": 1.0}],
    "dry_last_n": [{"dry_multiplier": 1.0}],
    "dynatemp_exponent": [{"dynatemp_range": 0.5}],
    "mirostat_tau": [{"mirostat": 1}, {"mirostat": 2}],
    "mirostat_eta": [{"mirostat": 1}, {"mirostat": 2}],
    "adaptive_decay": [{"adaptive_target": 0.4}],
    "xtc_threshold": [{"xtc_probability": 1.0}],
    "min_keep": [{"typ_p": 0.3}, {"samplers": ("top_p", "min_p")}],
    "repeat_last_n": [{"repeat_penalty": 1.1}],
}


@pytest.mark.parametrize("name", [f.name for f in fields(SamplingParams) if isinstance(f.default, int | float)])
def test_what_is_taken_can_be_drawn_with(name: str) -> None:
    """Extreme values are refused or give tokens: an error while drawing would hit every answer of the batch."""
    rng = np.random.default_rng(0)
    rows = [rng.normal(0, 3, 50).astype(np.float32) for _ in range(4)]
    rows += [np.where(np.arange(50) % 2, -np.inf, rows[0]).astype(np.float32), np.zeros(50, np.float32)]
    whole = isinstance(SamplingParams.__dataclass_fields__[name].default, int)
    n_taken = 0
    for value in (10**30, 2**64, 2**63, 2**31 - 1, 10**6, 1, 0, -1) if whole else HUGE:
        for on in ON.get(name, [{}]):
            for more in ({}, {"top_k": 0}, {"temp": 0.0}, {"samplers": tuple(SAMPLERS)[::-1], "typ_p": 0.9}):
                settings: dict[str, Any] = {"seed": 1, "dry_breakers": (), **on, **more, name: value}
                try:
                    sampler = Sampler(SamplingParams(**settings), 50)
                except UsageError as error:
                    assert str(error).startswith(f"{name} = ")
                    continue
                n_taken += 1
                for row in rows * 3:
                    token = sampler.sample(row)
                    assert row[token] > -np.inf
                    sampler.accept(token)
                sampler.set_state(json.loads(json.dumps(sampler.state(), allow_nan=False)))
    assert n_taken


@pytest.mark.parametrize("version", [1, 2])
def test_mirostat_goes_on_when_nothing_surprises(version: int) -> None:
    """Certain tokens raise mu without end, until 2 ** mu overflows."""
    sampler = Sampler(SamplingParams(seed=1, mirostat=version, mirostat_tau=1000.0, mirostat_eta=100.0), 50)
    logits = np.zeros(50, np.float32)
    logits[7] = 30
    for _ in range(30):
        assert 0 <= sampler.sample(logits) < 50
    assert sampler.state()["learnt"]["mu"] > 1024
