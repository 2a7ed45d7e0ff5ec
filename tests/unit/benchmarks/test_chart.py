"""The chart: well formed, readable on white and black, and made of the stored results."""

import xml.etree.ElementTree as ElementTree
from typing import Any

import chart
import pytest
import results

from hybrid.quant.ggml.errors import UsageError

SVG = "{http://www.w3.org/2000/svg}"


def row(kind: str, test: str, ours: float, peer: float | None, **more: Any) -> Any:
    return {
        "kind": "speed", "cpu": "A & B <C>", "isa": "avx2", "threads": 2, "model": "jamba-3b", "type": kind,
        "precision": "fast", "test": test, "nbytes": 1, "date": "2026-11-21T14:21Z", "hybrid": results.rates([ours]),
        "peer": results.rates([peer]) if peer else None, "noisy": "", "versions": {"llama.cpp": "0c1e570"}, **more,
    }  # fmt: skip


ROWS = [
    row("Q8_0", "pp512", 60.0, 20.0),
    row("Q8_0", "tg32", 6.0, 8.0),
    row("Q4_0", "pp512", 30.0, None, noisy="x"),
]


def test_what_is_drawn() -> None:
    root = ElementTree.fromstring(chart.draw(ROWS))
    words = [element.text for element in root.iter(f"{SVG}text")]
    assert words.count("60.0 (3.0×)") == 1
    assert words.count("6.00 (0.8×)") == 1
    assert words.count("30.0 ~") == 1
    assert {"Q8_0", "Q4_0", "Prompt of 512 tokens", "Generation"} <= set(words)
    assert words[-1] == "A & B <C>, avx2, 2 threads, 2026-11-21, llama.cpp 0c1e570; ~ busy machine"
    widths = [float(e.get("width", "")) for e in root.iter(f"{SVG}rect")][2:]
    assert widths[0] / widths[1] == pytest.approx(3, rel=0.01)
    assert widths[0] / widths[2] == pytest.approx(2, rel=0.01)


def test_accessible() -> None:
    root = ElementTree.fromstring(chart.draw(ROWS))
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == "title desc"
    assert root[0].tag == f"{SVG}title"
    assert root[1].text == (
        "Prompt of 512 tokens: Q8_0 60.0 against 20.0, Q4_0 30.0. Generation: Q8_0 6.00 against 8.00."
    )


def test_nothing_leaves_the_picture() -> None:
    rows = [row(kind, test, 1234.0, 1230.0) for kind in ("F32", "Q4_K_M") for test in ("pp512", "tg32")]
    root = ElementTree.fromstring(chart.draw(rows))
    width, height = (float(root.get(name, "")) for name in ("width", "height"))
    for element in root.iter(f"{SVG}text"):
        # an average letter of this font is narrower than 0.6 em
        right = float(element.get("x", "")) + 0.6 * 12 * len(element.text or "")
        assert right <= width, element.text
        assert float(element.get("y", "")) < height


def test_readable_on_white_and_black() -> None:
    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(a: str, b: str) -> float:
        low, high = sorted([luminance(a), luminance(b)])
        return (high + 0.05) / (low + 0.05)

    for colour, least in [(chart.TEXT, 4.0), (chart.OURS, 3.0), (chart.PEER, 2.5)]:
        for ground in ("#ffffff", "#0d1117"):
            assert contrast(colour, ground) >= least, (colour, ground)


def test_nothing_to_draw() -> None:
    with pytest.raises(UsageError, match="no pp512 and no tg of mamba-130m"):
        chart.draw(ROWS, "mamba-130m")


def test_the_readmes_chart_is_of_the_kept_results() -> None:
    assert chart.CHART.read_text(encoding="utf-8") == chart.draw(results.load()), "behind the results: make chart"
