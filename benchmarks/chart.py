"""The README's chart, drawn from results.jsonl: prompt and generation speed by weight type, beside llama.cpp's.

    python benchmarks/chart.py [--model jamba-3b]     writes speed.svg

Text and bars are greys and a blue that are readable on white and on black, because the README's background is unknown.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

import results

from hybrid.quant.ggml.errors import HybridError, UsageError

CHART = results.HERE / "speed.svg"
MODEL = "jamba-3b"
TEXT, OURS, PEER = "#757d87", "#3b82d6", "#99a1ab"
FONT = "-apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"
WIDTH, MARGIN, LABELS, GAP = 760, 12, 64, 36
TOP, BAR, ROW = 84, 11, 38
"""First row, height of a bar, distance of two types."""
ROOM = 112
"""Behind the longest bar, for its figures."""


@dataclass(frozen=True)
class Bars:
    """Bars of one type in one panel: tokens per second of both sides, None if not measured."""

    kind: str
    ours: float
    peer: float | None
    noisy: bool


def panels(rows: Sequence[results.Row]) -> list[tuple[str, list[Bars]]]:
    """(title, bars by type) of prompts and generation; types in the order of their size."""
    titled_bars = []
    for prefix, title in [("pp", "Prompt of {} tokens"), ("tg", "Generation")]:
        mine = [row for row in rows if row["test"].startswith(prefix)]
        if mine:
            bars = [
                Bars(
                    row["type"],
                    row["hybrid"]["median"],
                    row["peer"]["median"] if row.get("peer") else None,
                    bool(row.get("noisy")),
                )
                for row in mine
            ]
            titled_bars.append((title.format(mine[0]["test"][2:]), bars))
    return titled_bars


def draw(rows: Sequence[results.Row], model: str = MODEL) -> str:
    """The chart as SVG. Raises UsageError if there is nothing to draw."""
    mine = results.headline(rows, model)
    both = panels(mine)
    if not both:
        raise UsageError(f"{results.DATA.name} has no pp512 and no tg of {model}. Measure them, or give --model.")
    kinds = list(dict.fromkeys(row["type"] for row in mine))
    height = TOP + ROW * len(kinds) + 30
    width = (WIDTH - 2 * MARGIN - LABELS - GAP) // 2
    title = f"{model}: tokens per second, hybrid and llama.cpp"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-labelledby="title desc" font-family={quoteattr(FONT)} font-size="12" fill="{TEXT}">',
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="desc">{escape(description(both))}</desc>',
        text(MARGIN, 20, title, size=15, bold=True),
        *legend(MARGIN, 42),
    ]
    for i, kind in enumerate(kinds):
        parts.append(text(MARGIN, TOP + ROW * i + BAR + 4, kind, bold=True))
    for i, (name, bars) in enumerate(both):
        x = MARGIN + LABELS + i * (width + GAP)
        parts.append(text(x, TOP - 14, name, bold=True))
        parts += panel(x, width, kinds, bars)
    noisy = "; ~ busy machine" if any(b.noisy for _, bars in both for b in bars) else ""
    parts.append(text(MARGIN, height - 10, results.machine_text(mine) + noisy, size=11))
    return "\n".join([*parts, "</svg>"]) + "\n"


def panel(x: int, width: int, kinds: Sequence[str], bars: Sequence[Bars]) -> list[str]:
    """Two bars per type; the longest of the panel has all the width."""
    longest = max(max(b.ours, b.peer or 0.0) for b in bars)
    scale = (width - ROOM) / longest
    parts = []
    for b in bars:
        y = TOP + ROW * kinds.index(b.kind)
        times = f" ({b.ours / b.peer:.1f}×)" if b.peer else ""
        label = f"{results.figure(b.ours)}{times}{' ~' if b.noisy else ''}"
        parts += [rect(x, y, b.ours * scale, OURS), text(x + b.ours * scale + 6, y + 10, label, bold=True)]
        if b.peer:
            y += BAR + 2
            parts += [rect(x, y, b.peer * scale, PEER), text(x + b.peer * scale + 6, y + 10, results.figure(b.peer))]
    return parts


def description(both: Sequence[tuple[str, Sequence[Bars]]]) -> str:
    """All figures, one sentence per panel, as the picture's alternative text."""
    sentences = []
    for name, bars in both:
        figures = [
            f"{b.kind} {results.figure(b.ours)}" + (f" against {results.figure(b.peer)}" if b.peer else "")
            for b in bars
        ]
        sentences.append(f"{name}: {', '.join(figures)}.")
    return " ".join(sentences)


def legend(x: int, y: int) -> list[str]:
    """The colours and their meaning."""
    return [
        rect(x, y - 9, 14, OURS),
        text(x + 20, y, "hybrid (times llama.cpp)"),
        rect(x + 180, y - 9, 14, PEER),
        text(x + 200, y, "llama.cpp, same file, same hour"),
    ]


def rect(x: float, y: float, width: float, fill: str) -> str:
    """A bar of the common height."""
    return f'<rect x="{x:g}" y="{y:g}" width="{max(1.0, width):.1f}" height="{BAR}" rx="1.5" fill="{fill}"/>'


def text(x: float, y: float, words: str, size: int = 0, bold: bool = False) -> str:
    more = (f' font-size="{size}"' if size else "") + (' font-weight="600"' if bold else "")
    return f'<text x="{x:.5g}" y="{y:g}"{more}>{escape(words)}</text>'


def main() -> int:
    """Write the chart; exit code 1 or 2 with one line if the data are not enough."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--data", type=Path, default=results.DATA)
    parser.add_argument("-o", "--output", type=Path, default=CHART)
    args = parser.parse_args()
    try:
        args.output.write_text(draw(results.load(args.data), args.model), encoding="utf-8")
    except HybridError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
