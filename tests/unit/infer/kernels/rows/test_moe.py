"""Routing and combining of experts against a plain loop."""

import numpy as np
import pytest
from reference.experts import choose, sparse_mixer
from reference.run_kernel import record, run

from hybrid.infer.kernels.rows import moe
from hybrid.infer.kernels.rows.moe import ChosenBy, Scoring

N_TOK, N_EMBD = 23, 19


def route(
    logits: np.ndarray, n_used: int, width: int, renormalize: bool = False, *, scoring: Scoring = Scoring.SOFTMAX,
    chosen_by: ChosenBy = ChosenBy.SCORE, bias: np.ndarray | None = None, scale: float = 1.0, n_group: int = 1,
    n_group_used: int = 1, n_group_best: int = 2, n_idle: int = 0, factors: np.ndarray | None = None,
    jitter: float = 0.0, table: np.ndarray | None = None, tokens: np.ndarray | None = None,
) -> dict[str, np.ndarray]:  # fmt: skip
    n_tok, n_expert = logits.shape
    n_routed = n_tok * n_used
    n_slots = (n_routed + width - 1) // width * width + n_expert * width
    routing = {
        "groups": np.full(1 + 3 * n_expert, -1, np.int64),
        "source": np.full(n_slots, -1, np.int64),
        "total": np.zeros(1, np.int64),
        "slots": np.full((n_tok, n_used), -1, np.int64),
        "weights": np.full((n_tok, n_used), np.nan, np.float32),
    }
    fields = record(
        moe.moe_route, count=np.array([n_tok]), logits=logits, n_expert=n_expert, n_used=n_used, width=width,
        groups=routing["groups"], rows=routing["source"], n_slots=routing["total"], slots=routing["slots"],
        weights=routing["weights"], scores=np.empty(3 * n_expert, np.float32), counts=np.empty(2 * n_expert, np.int64),
        scoring=scoring, chosen_by=chosen_by, renormalize=renormalize, bias=bias, scale=float(scale), n_group=n_group,
        n_group_used=n_group_used, n_group_best=n_group_best, n_idle=n_idle, factors=factors, jitter=jitter,
        table=table, tokens=tokens,
    )  # fmt: skip
    run(moe.moe_route, fields, 2)
    return routing


def chosen(routing: dict[str, np.ndarray]) -> list[list[int]]:
    """The experts of every token, by their slots."""
    groups = routing["groups"][1 : 1 + 3 * routing["groups"][0]].reshape(-1, 3)
    expert_of = {slot: int(expert) for expert, first, n in groups for slot in range(first, first + n)}
    return [[expert_of[slot] for slot in slots] for slots in routing["slots"]]


@pytest.mark.parametrize("width", [1, 8, 16])
@pytest.mark.parametrize(("n_expert", "n_used"), [(1, 1), (3, 2), (16, 2), (5, 5)])
@pytest.mark.parametrize("renormalize", [False, True])
def test_route(width: int, n_expert: int, n_used: int, renormalize: bool) -> None:
    logits = np.random.default_rng(n_expert).standard_normal((N_TOK, n_expert)).astype(np.float32)
    routing = route(logits, n_used, width, renormalize)
    p = np.exp(logits.astype(np.float64))
    p /= p.sum(1, keepdims=True)
    expert_of = {}
    for g in range(routing["groups"][0]):
        expert, first, n = routing["groups"][1 + 3 * g : 4 + 3 * g]
        assert first % width == 0
        assert n > 0
        for slot in range(first, first + n):
            assert slot not in expert_of
            expert_of[slot] = expert
    assert len(expert_of) == N_TOK * n_used
    assert routing["total"][0] >= max(expert_of) + 1
    for t in range(N_TOK):
        best = sorted(np.argsort(-p[t], kind="stable")[:n_used])
        assert [expert_of[s] for s in routing["slots"][t]] == best
        assert all(routing["source"][s] == t for s in routing["slots"][t])
        expected = p[t, best] / (p[t, best].sum() if renormalize else 1.0)
        np.testing.assert_allclose(routing["weights"][t], expected, rtol=1e-6)


@pytest.mark.parametrize("renormalize", [False, True])
def test_route_with_factors(renormalize: bool) -> None:
    """Factors change the weights only, after they are made to add up to 1; the choice stays."""
    rng = np.random.default_rng(6)
    logits, factors = (rng.standard_normal(shape).astype(np.float32) for shape in ((N_TOK, 7), (7,)))
    plain, routing = (route(logits, 3, 8, renormalize, scale=1.5, factors=some) for some in (None, factors))
    np.testing.assert_array_equal(routing["slots"], plain["slots"])
    np.testing.assert_allclose(routing["weights"], plain["weights"] * factors[np.asarray(chosen(plain))], rtol=1e-6)


@pytest.mark.parametrize("renormalize", [False, True])
def test_route_by_sigmoid_and_bias(renormalize: bool) -> None:
    """The bias decides which experts are chosen, not their weights. Large logits do not overflow."""
    rng = np.random.default_rng(5)
    logits = (40 * rng.standard_normal((N_TOK, 7))).astype(np.float32)
    logits[0] = (200, -200, 0, 1, -1, 90, -90)
    bias = rng.standard_normal(7).astype(np.float32)
    routing = route(logits, 3, 8, renormalize, scoring=Scoring.SIGMOID, bias=bias, scale=2.5)
    p = np.exp(-np.logaddexp(0.0, -logits.astype(np.float64)))
    groups = routing["groups"][1 : 1 + 3 * routing["groups"][0]].reshape(-1, 3)
    expert_of = {slot: expert for expert, first, n in groups for slot in range(first, first + n)}
    for t in range(N_TOK):
        best = sorted(np.argsort(-(p[t] + bias), kind="stable")[:3])
        assert [expert_of[s] for s in routing["slots"][t]] == best
        expected = 2.5 * p[t, best] / (p[t, best].sum() if renormalize else 1.0)
        np.testing.assert_allclose(routing["weights"][t], expected, rtol=2e-6, atol=1e-30)


@pytest.mark.parametrize("renormalize", [False, True])
def test_route_by_the_root_of_softplus(renormalize: bool) -> None:
    """The bias decides which experts are chosen, as with the sigmoid. Large logits do not overflow."""
    rng = np.random.default_rng(5)
    logits = (4 * rng.standard_normal((N_TOK, 7))).astype(np.float32)
    logits[0] = (200, -60, 0, 1, -1, 90, -40)
    bias = rng.standard_normal(7).astype(np.float32)
    routing = route(logits, 3, 8, renormalize, scoring=Scoring.ROOT_SOFTPLUS, bias=bias, scale=2.5)
    p = np.sqrt(np.logaddexp(0.0, logits.astype(np.float64)))
    best = np.array([choose(row, 3) for row in p + bias])
    assert chosen(routing) == best.tolist()
    kept = np.take_along_axis(p, best, 1)
    expected = 2.5 * kept / (kept.sum(1, keepdims=True) if renormalize else 1.0)
    np.testing.assert_allclose(routing["weights"], expected, rtol=2e-6, atol=1e-30)


def test_route_by_tokens() -> None:
    """The table lists the experts of each token id, in any order; scores only weigh them."""
    rng = np.random.default_rng(6)
    logits, tokens = rng.standard_normal((N_TOK, 7)).astype(np.float32), rng.integers(0, 50, N_TOK)
    table = np.argsort(rng.random((50, 7)), axis=1)[:, :3].astype(np.int32)
    by_token = {"scoring": Scoring.ROOT_SOFTPLUS, "chosen_by": ChosenBy.TOKEN, "table": table, "tokens": tokens}
    routing = route(logits, 3, 8, True, **by_token)
    best = np.sort(table[tokens], axis=1)
    assert chosen(routing) == best.tolist()
    p = np.take_along_axis(np.sqrt(np.logaddexp(0.0, logits.astype(np.float64))), best, 1)
    np.testing.assert_allclose(routing["weights"], p / p.sum(1, keepdims=True), rtol=2e-6)


@pytest.mark.parametrize("width", [1, 8])
@pytest.mark.parametrize("n_used", [1, 2])
def test_route_with_a_choice_of_nothing(n_used: int, width: int) -> None:
    """It counts in the softmax and is chosen by its bias like an expert, but has no slots."""
    rng = np.random.default_rng(7)
    logits = rng.standard_normal((N_TOK, 5)).astype(np.float32)
    bias = np.append(rng.standard_normal(4) / 8 - 0.1, 0.05).astype(np.float32)
    routing = route(logits, n_used, width, bias=bias, n_idle=1)
    p = np.exp(logits.astype(np.float64))
    p /= p.sum(1, keepdims=True)
    groups = routing["groups"][1 : 1 + 3 * routing["groups"][0]].reshape(-1, 3)
    expert_of = {slot: expert for expert, first, n in groups for slot in range(first, first + n)} | {-1: 4}
    best = np.sort(np.argsort(-(p + bias), axis=1, kind="stable")[:, :n_used], axis=1)
    assert [[expert_of[s] for s in slots] for slots in routing["slots"]] == best.tolist()
    np.testing.assert_allclose(routing["weights"], np.take_along_axis(p, best, 1), rtol=2e-6)
    assert 0 < (best == 4).sum() < N_TOK
    assert set(groups[:, 0]) <= {0, 1, 2, 3}
    assert routing["total"][0] % width == 0

    y = rng.standard_normal((int(routing["total"][0]), N_EMBD)).astype(np.float32)
    out = np.full((N_TOK, N_EMBD), np.nan, np.float32)
    fields = record(
        moe.moe_combine, count=np.array([N_TOK]), y=y, slots=routing["slots"], weights=routing["weights"],
        n_used=n_used, out=out, n=N_EMBD,
    )  # fmt: skip
    run(moe.moe_combine, fields, 2)
    for t, slots in enumerate(routing["slots"]):
        parts = [w * y[s].astype(np.float64) for w, s in zip(routing["weights"][t], slots, strict=True) if s >= 0]
        np.testing.assert_allclose(out[t], sum(parts, np.zeros(N_EMBD)), rtol=1e-5, atol=1e-6)


def test_every_token_may_choose_nothing() -> None:
    routing = route(np.zeros((3, 4), np.float32), 1, 8, bias=np.array([0, 0, 0, 1], np.float32), n_idle=1)
    assert (routing["slots"] == -1).all()
    assert routing["groups"][0] == routing["total"][0] == 0


@pytest.mark.parametrize("renormalize", [False, True])
def test_route_by_softmax_and_bias(renormalize: bool) -> None:
    """The bias is added to an expert's share, after the softmax."""
    rng = np.random.default_rng(6)
    logits = (3 * rng.standard_normal((N_TOK, 7))).astype(np.float32)
    bias = (rng.standard_normal(7) / 3).astype(np.float32)
    routing = route(logits, 3, 8, renormalize, bias=bias)
    p = np.exp(logits.astype(np.float64))
    p /= p.sum(1, keepdims=True)
    expected = [choose(row, 3) for row in p + bias]
    assert chosen(routing) == expected
    assert expected != [choose(row, 3) for row in p]
    shares = np.stack(
        [row[best] / (row[best].sum() if renormalize else 1) for row, best in zip(p, expected, strict=True)]
    )
    np.testing.assert_allclose(routing["weights"], shares, rtol=2e-6)


@pytest.mark.parametrize("sigmoid", [False, True])
@pytest.mark.parametrize(
    ("n_expert", "n_used", "n_group", "n_group_used"), [(8, 3, 2, 1), (15, 4, 5, 2), (12, 3, 3, 3), (14, 2, 7, 1)]
)
def test_route_within_groups(n_expert: int, n_used: int, n_group: int, n_group_used: int, sigmoid: bool) -> None:
    """Groups are chosen by the sum of their two best biased scores, and experts only within them."""
    rng = np.random.default_rng(n_expert)
    logits = (2 * rng.standard_normal((N_TOK, n_expert))).astype(np.float32)
    bias = (rng.standard_normal(n_expert) / 3).astype(np.float32)
    groups = {"n_group": n_group, "n_group_used": n_group_used}
    routing = route(
        logits,
        n_used,
        8,
        True,
        scoring=Scoring.SIGMOID if sigmoid else Scoring.SOFTMAX,
        bias=bias if sigmoid else None,
        **groups,
    )
    p = np.exp(-np.logaddexp(0.0, -logits.astype(np.float64))) if sigmoid else np.exp(logits.astype(np.float64))
    p /= 1.0 if sigmoid else p.sum(1, keepdims=True)
    biased = p + bias if sigmoid else p
    expected = [choose(row, n_used, n_group, n_group_used) for row in biased]
    assert chosen(routing) == expected
    limited = expected != [choose(row, n_used) for row in biased]
    assert limited == (n_group_used < n_group)
    weights = np.stack([row[best] / row[best].sum() for row, best in zip(p, expected, strict=True)])
    np.testing.assert_allclose(routing["weights"], weights, rtol=2e-6)


def test_groups_count_by_their_best_alone() -> None:
    """The best expert's group has the lowest other one; weights are shares of all experts."""
    logits = np.array([[5, -9, -9, 4.9, 4.9, 4.9], [1.5, 1.5, 1.6, 2, -3, -4]], np.float32)
    by_two, by_one = (route(logits, 2, 1, n_group=2, n_group_used=1, n_group_best=best, scale=3.0) for best in (2, 1))
    assert chosen(by_two) == [[3, 4], [0, 2]]
    assert chosen(by_one) == [[0, 1], [3, 4]]
    p = np.exp(logits.astype(np.float64))
    p /= p.sum(1, keepdims=True)
    np.testing.assert_allclose(by_one["weights"], 3 * np.stack([p[0, [0, 1]], p[1, [3, 4]]]), rtol=2e-6)


def test_equal_groups_go_to_the_lower_index() -> None:
    """A group counts by its two best experts, however many others it has."""
    routing = route(np.zeros((1, 9), np.float32), 3, 1, scoring=Scoring.SIGMOID, n_group=3, n_group_used=2)
    assert chosen(routing) == [[0, 1, 2]]
    logits = np.array([[1, 1, 1, 9, -9, -9, 2, 2, -9]], np.float32)
    assert chosen(route(logits, 2, 1, scoring=Scoring.SIGMOID, n_group=3, n_group_used=1)) == [[6, 7]]


def test_broken_logits_spoil_only_their_token_with_groups() -> None:
    logits = np.random.default_rng(0).standard_normal((3, 6)).astype(np.float32)
    logits[1] = np.nan
    routing = route(logits, 2, 8, True, scoring=Scoring.SIGMOID, n_group=3, n_group_used=1)
    assert np.isfinite(routing["weights"][[0, 2]]).all()
    assert np.isnan(routing["weights"][1]).all()


def test_ties_go_to_the_lower_index() -> None:
    routing = route(np.zeros((2, 4), np.float32), 2, 1)
    assert sorted(routing["groups"][1 : 1 + 3 * routing["groups"][0] : 3]) == [0, 1]
    np.testing.assert_array_equal(routing["weights"], np.full((2, 2), 0.25, np.float32))


def test_broken_logits_spoil_only_their_token() -> None:
    logits = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    logits[1, 2] = np.nan
    routing = route(logits, 2, 8)
    assert np.isfinite(routing["weights"][[0, 2]]).all()
    assert np.isnan(routing["weights"][1]).all()
    assert routing["groups"][0] >= 1


def test_combine() -> None:
    rng = np.random.default_rng(3)
    routing = route(rng.standard_normal((N_TOK, 5)).astype(np.float32), 3, 8)
    y = rng.standard_normal((int(routing["total"][0]), N_EMBD)).astype(np.float32)
    out = np.full((N_TOK, N_EMBD), np.nan, np.float32)
    fields = record(
        moe.moe_combine, count=np.array([N_TOK]), y=y, slots=routing["slots"], weights=routing["weights"], n_used=3,
        out=out, n=N_EMBD,
    )  # fmt: skip
    run(moe.moe_combine, fields, 3)
    expected = (routing["weights"][:, :, None].astype(np.float64) * y[routing["slots"]]).sum(1)
    np.testing.assert_allclose(out, expected, atol=2e-6)


@pytest.mark.parametrize(("n_expert", "n_used"), [(1, 1), (5, 2), (16, 2), (7, 3)])
@pytest.mark.parametrize("jitter", [0.0, 0.01, 0.3, 3.0])
def test_route_by_a_sparse_mixer(n_expert: int, n_used: int, jitter: float) -> None:
    logits = np.random.default_rng(n_expert).standard_normal((N_TOK, n_expert)).astype(np.float32) - 0.5
    routing = route(logits, n_used, 8, chosen_by=ChosenBy.SPARSE_MIXER, jitter=jitter)
    numbers = chosen(routing)
    for t in range(N_TOK):
        expected = sparse_mixer(logits[t].astype(np.float64), n_used, jitter)
        assert numbers[t] == sorted(expected)
        np.testing.assert_allclose(routing["weights"][t], [expected[e] for e in numbers[t]], rtol=2e-6)


def test_a_sparse_mixer_of_a_token_that_is_no_number() -> None:
    logits = np.random.default_rng(3).standard_normal((3, 5)).astype(np.float32)
    logits[1, 2] = np.nan
    weights = route(logits, 2, 8, chosen_by=ChosenBy.SPARSE_MIXER, jitter=0.01)["weights"]
    assert np.isnan(weights[1]).any()
    assert not np.isnan(weights[[0, 2]]).any()


def test_choice_by_logits_that_the_sigmoid_cannot_tell_apart() -> None:
    """Llama 4: the better of 18 and 20 is 20, although both sigmoids are 1 in f32."""
    logits = np.array([[-3.0, 18.0, 20.0, 19.0], [0.5, -1.0, 0.25, -2.0]], np.float32)
    assert chosen(route(logits, 1, 1, scoring=Scoring.SIGMOID, bias=np.zeros(4, np.float32))) == [[1], [0]]
    routing = route(logits, 2, 1, scoring=Scoring.SIGMOID, chosen_by=ChosenBy.LOGIT)
    assert chosen(routing) == [[2, 3], [0, 2]]
    assert np.abs(routing["weights"] - 1 / (1 + np.exp([[-20.0, -19.0], [-0.5, -0.25]]))).max() < 2e-7


def test_weights_of_what_experts_read() -> None:
    """Inputs of slots are multiplied once with their tokens' weights; slots of -1 and gaps stay unchanged."""
    rng = np.random.default_rng(5)
    n_tok, n_used, n, n_slots = 7, 3, 21, 40
    slots = rng.permutation(n_slots)[: n_tok * n_used].reshape(n_tok, n_used).astype(np.int64)
    slots[2, 1] = slots[5] = -1
    weights = rng.uniform(0.1, 0.9, (n_tok, n_used)).astype(np.float32)
    gate, up = (rng.standard_normal((n_slots, n), np.float32) for _ in range(2))
    want = [gate.copy(), up.copy()]
    for slot, weight in zip(slots.ravel(), weights.ravel(), strict=True):
        for rows in want if slot >= 0 else ():
            rows[slot] *= weight
    left = np.where(slots >= 0, np.float32(1), weights)
    fields = record(
        moe.weigh_slots, count=np.array([n_tok]), gate=gate, up=up, slots=slots, weights=weights, n_used=n_used, n=n
    )
    run(moe.weigh_slots, fields, 3)
    assert (gate == want[0]).all()
    assert (up == want[1]).all()
    assert (weights == left).all()


@pytest.mark.parametrize("n", [1, 37])
def test_idle_choices_return_their_input(n: int) -> None:
    rng, n_tok, n_used = np.random.default_rng(n), 5, 3
    x, before = rng.standard_normal((2, n_tok, n), np.float32)
    slots = np.array([[0, -1, 4], [-1, -1, -1], [1, 2, 3], [-1, 5, -1], [6, 7, -1]])
    weights = rng.standard_normal((n_tok, n_used), np.float32)
    results = []
    for n_threads in (1, 3):
        out = before.copy()
        fields = record(
            moe.add_idle, count=np.array([n_tok]), x=x, slots=slots, weights=weights, n_used=n_used, out=out, n=n
        )
        run(moe.add_idle, fields, n_threads)
        results.append(out)
    want = before + np.where(slots < 0, weights.astype(np.float64), 0).sum(1)[:, None] * x
    assert (results[0] == results[1]).all()
    assert (results[0][2] == before[2]).all()
    assert np.abs(results[0] - want).max() < 2e-6
