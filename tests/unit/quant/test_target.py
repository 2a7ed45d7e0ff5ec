"""Choosing types for a target size: the hull, the budget, and the measure of noise."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from hybrid.quant import Imatrix, InputSums, target
from hybrid.quant.ggml import formats
from hybrid.quant.ggml.errors import FormatError
from hybrid.quant.ggml.types import FileType, GGMLType
from hybrid.quant.ggml.writer import GGUFWriter
from hybrid.quant.planning import plan
from hybrid.quant.policy import Options
from hybrid.quant.source import GGUFSource
from hybrid.quant.target import Candidate, solve, solve_whole

KINDS = (GGMLType.Q2_K, GGMLType.Q3_K, GGMLType.Q4_K, GGMLType.Q6_K)


def random_candidates(n: int, seed: int) -> tuple[dict[str, list[Candidate]], dict[str, float]]:
    rng = np.random.default_rng(seed)
    choices = {}
    for i in range(n):
        size, noise = int(rng.integers(10, 200)), rng.uniform(0.01, 1)
        choices[f"t{i}"] = [
            Candidate(kind, size * bits, noise * 4.0**-bits * rng.uniform(0.9, 1.1))
            for kind, bits in zip(KINDS, (2, 3, 4, 6), strict=True)
        ]
    return choices, {name: float(rng.uniform(0.1, 10)) for name in choices}


def cost(
    choices: dict[str, list[Candidate]], weight: dict[str, float], types: dict[str, GGMLType]
) -> tuple[int, float]:
    chosen = {name: next(c for c in choices[name] if c.type is kind) for name, kind in types.items()}
    return sum(c.nbytes for c in chosen.values()), sum(weight[name] * c.noise for name, c in chosen.items())


@pytest.mark.parametrize("seed", range(4))
def test_close_to_the_best_of_all_combinations(seed: int) -> None:
    choices, weight = random_candidates(5, seed)
    least = sum(options[0].nbytes for options in choices.values())
    most = sum(options[-1].nbytes for options in choices.values())
    combinations = [dict(zip(choices, kinds, strict=True)) for kinds in itertools.product(KINDS, repeat=5)]
    costs = [cost(choices, weight, types) for types in combinations]
    for budget in np.linspace(least, most, 9).astype(int):
        size, noise = cost(choices, weight, solve(choices, weight, int(budget)))
        best = min(n for s, n in costs if s <= budget)
        assert size <= budget
        # a greedy choice leaves at most the last step of one matrix unused
        step = max(weight[n] * (o[0].noise - o[1].noise) for n, o in choices.items())
        assert noise <= best + step
    assert set(solve(choices, weight, most).values()) == {GGMLType.Q6_K}
    assert set(solve(choices, weight, least).values()) == {GGMLType.Q2_K}


def test_what_matters_more_gets_more_bits() -> None:
    options = [Candidate(kind, bits * 100, 4.0**-bits) for kind, bits in zip(KINDS, (2, 3, 4, 6), strict=True)]
    types = solve({"a": options, "b": options}, {"a": 100.0, "b": 1.0}, 800)
    assert (types["a"], types["b"]) == (GGMLType.Q6_K, GGMLType.Q2_K)


def test_a_type_that_is_larger_and_worse_is_never_taken() -> None:
    options = [
        Candidate(GGMLType.Q2_K, 100, 0.5),
        Candidate(GGMLType.Q3_K, 150, 0.6),
        Candidate(GGMLType.Q4_K, 200, 0.1),
    ]
    assert [solve({"a": options}, {"a": 1.0}, budget)["a"] for budget in (100, 199, 200, 500)] == [
        GGMLType.Q2_K,
        GGMLType.Q2_K,
        GGMLType.Q4_K,
        GGMLType.Q4_K,
    ]


def test_a_size_that_cannot_be() -> None:
    choices, weight = random_candidates(3, 1)
    smallest = {name: options[0].type for name, options in choices.items()}
    assert solve(choices, weight, 10) == smallest
    assert solve_whole(choices, weight, 10, lambda types: 5000 + cost(choices, weight, types)[0]) == smallest


@pytest.mark.parametrize("seed", range(4))
def test_what_is_not_a_matrix_counts_too(seed: int) -> None:
    """With metadata and padding the file stays within the target, and no space is wasted."""
    choices, weight = random_candidates(6, seed)

    def file(types: dict[str, GGMLType], padded: int = 1) -> int:
        chosen = [next(c for c in choices[name] if c.type is kind) for name, kind in types.items()]
        return 12345 + sum(-(-c.nbytes // padded) * padded for c in chosen)

    least, most = (file({name: options[i].type for name, options in choices.items()}, 32) for i in (0, -1))
    for size in np.linspace(least, most, 40).astype(int).tolist():
        assert file(solve_whole(choices, weight, size, lambda types: file(types, 32)), 32) <= size
        alone = solve_whole(choices, weight, size, file)
        assert alone == solve(choices, weight, size - 12345)


def test_noise_of_types(tmp_path: Path) -> None:
    """Relative squared errors, weighted by importance if given; rows of 32 have types of their own."""
    rng = np.random.default_rng(4)
    values = {
        "blk.0.ffn_up.weight": rng.standard_normal((48, 512)).astype(np.float32),
        "blk.0.ffn_down_exps.weight": rng.standard_normal((3, 24, 256)).astype(np.float32),
        "blk.0.attn_q.weight": rng.standard_normal((16, 96)).astype(np.float32),
        "blk.0.ssm_x.weight": rng.standard_normal((16, 256)).astype(np.float32),
    }
    with GGUFWriter(tmp_path / "in.gguf", "jamba") as w:
        for name, x in values.items():
            w.declare(name, x.shape, GGMLType.F32)
        for name, x in values.items():
            w.write(name, x)
    weights = rng.standard_exponential((3, 256)).astype(np.float32)
    entry = InputSums(weights * 5, np.full(3, 5, np.float32))
    imatrix, weights = Imatrix({"blk.0.ffn_down_exps.weight": entry}), entry.importance()
    with GGUFSource(tmp_path / "in.gguf") as source:
        planned = plan(source, FileType.Q8_0, options=Options(pure=True), imatrix=imatrix)
        choices = target.measure(source, planned, imatrix)
    assert choices.keys() == values.keys() - {"blk.0.ssm_x.weight"}
    for name, importance in (("blk.0.ffn_up.weight", None), ("blk.0.ffn_down_exps.weight", weights)):
        more = () if importance is None else target.WITH_IMPORTANCE
        assert [c.type for c in choices[name]] == [*more, *target.CANDIDATES]
        for c in choices[name]:
            x = values[name].reshape(-1, *values[name].shape[-2:])
            weight_of = [None] * len(x) if importance is None else list(importance)
            new = [
                formats.decode(c.type, formats.encode(c.type, m, importance=w))
                for m, w in zip(x, weight_of, strict=True)
            ]
            w64 = np.ones((len(x), 1)) if importance is None else importance.astype(np.float64)
            power = (np.square(x, dtype=np.float64) * w64[:, None]).sum()
            noise = (np.square(np.stack(new) - x, dtype=np.float64) * w64[:, None]).sum() / power
            assert c.noise == pytest.approx(noise, rel=1e-6)
    assert [c.type.name for c in choices["blk.0.attn_q.weight"]] == ["Q4_0", "IQ4_NL", "Q5_0", "Q5_1", "Q8_0"]
    assert target.file_type_of(dict.fromkeys(choices, GGMLType.Q8_0), choices) is FileType.Q8_0


def test_large_matrices_are_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(4).standard_normal((512, 256)).astype(np.float32)
    with GGUFWriter(tmp_path / "in.gguf", "jamba") as w:
        w.declare("blk.0.ffn_up.weight", x.shape, GGMLType.F32)
        w.write("blk.0.ffn_up.weight", x)
    seen = []
    with GGUFSource(tmp_path / "in.gguf") as source:
        planned = plan(source, FileType.Q8_0)
        whole = target.measure(source, planned)
        monkeypatch.setattr(target, "SAMPLE", 64 * 256)
        sampled = target.measure(source, planned, progress=lambda *what: seen.append(what))
    assert seen == [("blk.0.ffn_up.weight", 0, 1)]
    for a, b in zip(whole["blk.0.ffn_up.weight"], sampled["blk.0.ffn_up.weight"], strict=True):
        assert (a.type, a.nbytes) == (b.type, b.nbytes)
        assert b.noise == pytest.approx(a.noise, rel=0.05) and b.noise != a.noise


def test_threads_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bits for any number of threads; a matrix is divided into blocks of rows."""
    rng = np.random.default_rng(5)
    values = {
        "blk.0.attn_q.weight": rng.standard_normal((33, 256)).astype(np.float32),
        "blk.0.ffn_down_exps.weight": rng.standard_normal((3, 11, 512)).astype(np.float32),
    }
    with GGUFWriter(tmp_path / "in.gguf", "jamba") as w:
        for name, x in values.items():
            w.declare(name, x.shape, GGMLType.F32)
        for name, x in values.items():
            w.write(name, x)
    entry = InputSums(rng.standard_exponential((3, 512)).astype(np.float32), np.ones(3, np.float32))
    imatrix = Imatrix({"blk.0.ffn_down_exps.weight": entry})
    monkeypatch.setattr(target, "BLOCK", 5 * 512)
    monkeypatch.setattr(target, "SAMPLE", 4096)
    with GGUFSource(tmp_path / "in.gguf") as source:
        planned = plan(source, FileType.Q8_0, options=Options(pure=True), imatrix=imatrix)
        measured = [target.measure(source, planned, imatrix, n_threads=n) for n in (1, 2, 3)]
        more = target.measure(source, planned, imatrix, effort=1)
    assert measured[0] == measured[1] == measured[2]
    assert all(c.noise > 0 for options in measured[0].values() for c in options)
    for name, options in measured[0].items():
        for a, b in zip(options, more[name], strict=True):
            assert a.type is b.type and b.noise <= a.noise * (1 + 1e-6), "effort makes no noise larger"
            assert b.noise < 0.95 * a.noise or a.type is not GGMLType.IQ3_S


def test_weights_that_are_no_numbers(tmp_path: Path) -> None:
    """Refused before any work; row numbers are the tensor's, not the sample's."""
    x = np.ones((40, 256), np.float32)
    x[37, 5] = np.nan
    with GGUFWriter(tmp_path / "in.gguf", "jamba") as w:
        w.declare("blk.0.ffn_up.weight", x.shape, GGMLType.F32)
        w.write("blk.0.ffn_up.weight", x)
    with (
        GGUFSource(tmp_path / "in.gguf") as source,
        pytest.raises(FormatError, match=r"^tensor blk.0.ffn_up.weight has NaN or infinite values, in row 37 first\."),
    ):
        target.measure(source, plan(source, FileType.Q8_0), n_threads=2)
