"""A short soak; benchmarks/serve_soak.py runs any number of requests."""

from pathlib import Path

import pytest
from serve_soak import report, soak

pytestmark = [pytest.mark.exhaustive, pytest.mark.soak]


def test_everybody_gets_the_answer_to_what_was_asked(files: dict[str, Path]) -> None:
    result = soak(files["q8_0"], 300, 20, 20)
    assert not result.faults, report(result)
    assert result.n_done == 300 and result.n_alone == 20 and result.statuses[200] > 100, report(result)
    assert {"leave", "oversized", "broken", "again", "cut"} <= set(result.kinds)
