"""The search for the smallest file within a KL divergence, with a model whose divergence is known."""

import itertools
from collections.abc import Mapping

import pytest

from hybrid.infer.evaluate.kl_statistics import MeanWithError
from hybrid.pipeline.max_kld import TypeChoice, _search
from hybrid.pipeline.target import Measured
from hybrid.quant.ggml.errors import UsageError
from hybrid.quant.ggml.types import FileType, GGMLType
from hybrid.quant.policy import Options
from hybrid.quant.target import Candidate, divergence, within

KINDS = (GGMLType.Q2_K, GGMLType.Q3_K, GGMLType.Q4_K, GGMLType.Q6_K)
FOUND = {
    f"t{i}": [
        Candidate(kind, (100 + 7 * i) * b, 4.0**-b * (1 + 0.1 * i)) for kind, b in zip(KINDS, (2, 3, 4, 6), strict=True)
    ]
    for i in range(9)
}
SENSITIVITY = {name: 0.3 + 0.2 * (i % 4) for i, name in enumerate(FOUND)}
LEAST, MOST = (sum(options[i].noise * SENSITIVITY[name] for name, options in FOUND.items()) for i in (-1, 0))


def size(types: Mapping[str, GGMLType]) -> int:
    return sum(next(c.nbytes for c in FOUND[name] if c.type is kind) for name, kind in types.items())


def search(most: float, power: float, factor: float) -> tuple[TypeChoice, list[float]]:
    """Search with a model whose divergence is factor * sum ** power; also the divergences measured on the way."""
    seen: list[float] = []

    def trial(types: Mapping[str, GGMLType]) -> TypeChoice:
        seen.append(factor * divergence(FOUND, SENSITIVITY, types) ** power)
        return TypeChoice(FileType.Q4_K_M, Options(by_name=types), MeanWithError(seen[-1], 0.0), size(types), 0.0)

    return _search(Measured([], FOUND, SENSITIVITY), most, trial), seen


@pytest.mark.parametrize("share", [0.02, 0.1, 0.4, 0.9])
@pytest.mark.parametrize(("power", "factor"), [(1.0, 1.0), (1.0, 3.0), (1.3, 1.0), (0.8, 0.5)])
def test_close_to_the_limit(share: float, power: float, factor: float) -> None:
    limit = factor * (LEAST + share * (MOST - LEAST)) ** power
    choice, seen = search(limit, power, factor)
    assert choice.kld.value <= limit, f"{choice.kld.value} of {limit} after {seen}"
    # at most one step of the largest matrix away from the smallest types that the sum allows
    exact = within(FOUND, SENSITIVITY, (limit / factor) ** (1 / power))
    assert choice.nbytes <= 1.06 * size(exact), f"{choice.nbytes} bytes, {size(exact)} would do; measured {seen}"
    assert len(seen) <= 8


def test_what_cannot_be_reached_and_what_is_enough() -> None:
    with pytest.raises(UsageError, match=r"^the largest types to choose from give 0\.\d+\. Allow"):
        search(1e-5, 1.0, 1.0)
    choice, seen = search(10.0, 1.0, 1.0)
    assert set(choice.options.by_name.values()) == {GGMLType.Q2_K} and len(seen) <= 2


def test_within_takes_the_best_steps() -> None:
    """At any limit no larger than needed: without any one step the limit is exceeded."""
    sizes = []
    for share in (0.0, 0.05, 0.3, 0.7, 1.0):
        limit = LEAST + share * (MOST - LEAST) + 1e-12
        types = within(FOUND, SENSITIVITY, limit)
        assert divergence(FOUND, SENSITIVITY, types) <= limit
        sizes.append(size(types))
    assert all(a > b for a, b in itertools.pairwise(sizes))
    assert set(within(FOUND, SENSITIVITY, 0.0).values()) == {GGMLType.Q6_K}, "as near as they come"
