"""Texts, places and positions of pictures in prompts."""

import numpy as np
import pytest

from hybrid.infer.pictures.pixels import PictureLayout, PictureTile
from hybrid.infer.pictures.placeholders import expanded, mrope_positions, places
from hybrid.quant.ggml.errors import PictureError


def layout(text: str) -> PictureLayout:
    n = text.count("I")
    return PictureLayout(1, 1, (PictureTile(2, 2 * n, 1, n),), text, n, 12)


def test_texts() -> None:
    one, two = layout("<III>"), layout("r1II\nr2II")
    assert expanded("a <X>b<X>", "<X>", [one, two]) == "a <III>br1II\nr2II"
    assert expanded("<X><X>", "<X>", [two, one]) == "r1II\nr2II<III>"
    assert expanded("no picture", "<X>", []) == "no picture"
    assert expanded("<X>", "<X>", [layout("<X>III")]) == "<X>III", "a text may have the placeholder in it"


@pytest.mark.parametrize(("text", "count"), [("a", 0), ("<X> <X><X>", 3)])
def test_another_number_of_placeholders(text: str, count: int) -> None:
    with pytest.raises(
        PictureError, match=f"^the chat template has {count} places for pictures, expected 2. Check that"
    ):
        expanded(text, "<X>", [layout("I")] * 2)


def test_places() -> None:
    first, second = places([5, 9, 9, 7, 9, 3, 9, 4], 9, [layout("IIrI"), layout("I")])
    assert (first.start, first.end, first.at.tolist()) == (1, 5, [1, 2, 4])
    assert (second.start, second.end, second.at.tolist()) == (6, 7, [6])
    assert places([1, 2], 9, []) == []
    for ids in ([9, 9], [9, 9, 9, 9, 9]):
        with pytest.raises(
            PictureError, match=f"^the prompt has {len(ids)} tokens of pictures, expected 4. Check that"
        ):
            places(ids, 9, [layout("III"), layout("I")])


def one_by_one(n: int, runs: list[tuple[int, int, int]]) -> list[list[int]]:
    """Positions token by token."""
    starts = {start: (rows, columns) for start, rows, columns in runs}
    out: list[list[int]] = []
    position = 0
    while len(out) < n:
        if len(out) in starts:
            rows, columns = starts[len(out)]
            out += [[position, position + r, position + c] for r in range(rows) for c in range(columns)]
            position += max(rows, columns)
        else:
            out.append([position] * 3)
            position += 1
    return [*out, [position - n] * 3]


@pytest.mark.parametrize(
    ("n", "runs"),
    [
        (5, []),
        (0, []),
        (1, [(0, 1, 1)]),
        (12, [(0, 3, 4)]),
        (20, [(3, 2, 5)]),
        (20, [(3, 5, 2), (13, 1, 6)]),  # one right after the other
        (40, [(1, 4, 4), (20, 3, 2), (34, 2, 3)]),
    ],
)
def test_positions(n: int, runs: list[tuple[int, int, int]]) -> None:
    found, delta = mrope_positions(n, runs)
    *expected, after = one_by_one(n, runs)
    assert found.dtype == np.int32 and found.shape == (3, n)
    assert found.T.tolist() == expected
    assert [delta] * 3 == after


def test_positions_of_the_facts() -> None:
    """A picture of 2 x 3 features at 4: the next text token is at 4 + 3, three less than its index."""
    found, delta = mrope_positions(12, [(4, 2, 3)])
    assert found[:, 4:11].tolist() == [[4] * 6 + [7], [4, 4, 4, 5, 5, 5, 7], [4, 5, 6, 4, 5, 6, 7]]
    assert delta == -3
