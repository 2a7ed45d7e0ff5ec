"""Importance collected in several runs: what is saved on the way, and files that cannot be continued."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hybrid.infer.evaluate.imatrix import Sums
from hybrid.pipeline import importance
from hybrid.quant import Imatrix
from hybrid.quant.ggml.errors import UsageError

NAME, N_COLUMNS, TOTAL = "blk.0.ffn_up.weight", 6, 7
MODEL: Any = SimpleNamespace(gguf=SimpleNamespace(tensors={NAME: SimpleNamespace(shape=(5, N_COLUMNS))}))


@pytest.fixture(autouse=True)
def chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every chunk add 1 to all sums, and 3 rows."""

    def collect(model: Any, text: str, *, n_ctx: int, chunks: int | None, first: int) -> Iterator[Any]:
        for done in range(first + 1, TOTAL + 1):
            sums: Sums = {NAME: (np.full((1, N_COLUMNS), done - first, float), np.full(1, 3.0 * (done - first)))}
            yield SimpleNamespace(done=done, total=TOTAL, sums=sums)

    monkeypatch.setattr(importance, "collect", collect)


def test_what_is_there_is_added_to_and_saved_on_the_way() -> None:
    saved: list[int] = []
    steps: list[tuple[str, int, int]] = []
    before = importance.imatrix_of({NAME: (np.full((1, N_COLUMNS), 2.0), np.array([6.0]))}, "text", 2, 16)
    whole = importance.collected(
        MODEL,
        "...",
        "text",
        16,
        before=before,
        save_every=2,
        save=lambda so_far: saved.append(so_far.chunk_count),
        progress=lambda *step: steps.append(step),
    )
    assert saved == [4, 6]
    assert steps == [("measuring", done, TOTAL) for done in range(3, TOTAL + 1)]
    assert (whole.chunk_count, whole.chunk_size, whole.datasets) == (TOTAL, 16, ["text"])
    np.testing.assert_array_equal(whole.entries[NAME].sums, np.full((1, N_COLUMNS), 7.0, np.float32))
    np.testing.assert_array_equal(whole.entries[NAME].counts, [21.0])
    assert before.chunk_count == 2 and before.entries[NAME].sums[0, 0] == 2, "what was there stays as it was"


def test_what_cannot_be_gone_on_with() -> None:
    before = Imatrix({}, ["a text"], 3, 16)
    importance.check_continues(before, "a text", 16)
    for dataset, n_ctx in (("another", 16), ("a text", 17)):
        with pytest.raises(UsageError, match=r"^the importance matrix was made from a text in chunks of 16 tokens"):
            importance.check_continues(before, dataset, n_ctx)
    other = importance.imatrix_of({"blk.9.other.weight": (np.ones((1, 4)), np.ones(1))}, "text", 1, 16)
    with pytest.raises(UsageError, match=r"is of another model: this one has no tensor blk\.9\.other"):
        importance.collected(MODEL, "...", "text", 16, before=other)
