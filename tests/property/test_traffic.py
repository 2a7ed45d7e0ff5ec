"""Ordinary traffic of agents and people: each request gets, bit for bit, the answer that it gets alone."""

from pathlib import Path

import pytest
import tiny_models
from traffic import run


@pytest.mark.slow
@pytest.mark.parametrize(("family", "n"), [("jamba", 1000), ("llama", 500), ("mamba", 500)])
def test_two_thousand_requests(family: str, n: int, tmp_path: Path) -> None:
    """More by hand: python tests/traffic.py --requests 50000."""
    tally = run(getattr(tiny_models, family)().write(tmp_path / "tiny.gguf"), n, seed=len(family))
    print(tally)
    assert {"agent", "person", "stranger", "refused", "cancelled"} <= set(tally.kinds)
    assert tally.n_reused > tally.n_read / 4
    assert tally.n_set_aside > n / 20
