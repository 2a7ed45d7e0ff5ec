"""Plots of measurements (--plot FILE.svg or FILE.png), drawn by matplotlib, which the extra `plot` installs.

The background is transparent; lines and text are in greys and a blue that can be read on white and on black. Names from
outside are drawn literally: `$` does not start mathematics.
"""

import importlib.util
import io
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hybrid.quant.ggml.errors import UsageError, shown
from hybrid.quant.ggml.replacing import check_target, failures_named, replace_file

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes

    from hybrid.infer.evaluate.positions import PositionBucket
    from hybrid.quant import TensorReport

KINDS = (".svg", ".png")
Plot = Annotated[
    Path | None, typer.Option("--plot", help="Draw the result into FILE.svg or FILE.png.", show_default=False)
]
TEXT, LINE, BAND = "#757d87", "#3b82d6", "#8ab4e8"
WIDTH, HEIGHT = 8.0, 4.5  # inches, of 72 points
DPI = 160  # of PNG files
MOST_MARKS = 64  # largest number of points that get a marker
MOST_DOTS = 1500  # largest number of tokens drawn one by one
N_PARTS = 120  # parts of a longer text
LEAST_KLD = 1e-6  # nats: smaller values are rounding
_SETTINGS: Any = {  # matplotlib's settings
    "svg.fonttype": "none",  # text is not turned into paths
    "svg.hashsalt": "hybrid",  # the same data gives the same file
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.size": 9,
    "text.color": TEXT,
    "text.parse_math": False,
    "axes.edgecolor": TEXT,
    "axes.labelcolor": TEXT,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": TEXT,
    "grid.alpha": 0.22,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
    "legend.frameon": False,
}


def checked(path: Path | None) -> Path | None:
    """The path, checked before anything is measured. UsageError: another file type, no such folder, no matplotlib."""
    if path is None:
        return None
    if path.suffix.lower() not in KINDS:
        raise UsageError(f"--plot {shown(path)}: expected a name that ends in {' or '.join(KINDS)}.")
    check_target(path)
    if not path.absolute().parent.is_dir():
        raise UsageError(f"--plot {shown(path)}: there is no folder {shown(path.parent)}. Make it first.")
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError("--plot needs matplotlib, which is not installed: pip install 'hybrid-lm[plot]'.")
    return path


def perplexity_by_position(path: Path, buckets: "Sequence[PositionBucket]", name: str) -> None:
    """Draws a line through the middles of the buckets, with one standard error around it."""
    import numpy as np

    x = np.array([(b.first + b.end - 1) / 2 for b in buckets])
    y, error = np.array([b.ppl for b in buckets]), np.array([b.stderr for b in buckets])

    def draw(ax: "Axes") -> None:
        low, high = np.maximum(y - error, y / 2), y + error
        if len(x) > 1:
            ax.fill_between(x, low, high, color=BAND, alpha=0.35, lw=0, label="± 1 standard error")
        else:
            ax.vlines(x, low, high, color=BAND, lw=1.8, label="± 1 standard error")
        ax.plot(x, y, color=LINE, lw=1.8, marker="o" if len(x) <= MOST_MARKS else "", ms=4, label="perplexity")
        ax.set_xlim(0, buckets[-1].end)
        if y.max() > 20 * y.min():
            _logarithmic(ax)
        ax.set_xlabel("tokens before the predicted one")
        ax.set_ylabel("perplexity")

    _save(path, draw, "Perplexity by position", name)


def kl_divergence_by_token(path: Path, kld: "np.ndarray", name: str) -> None:
    """kld, f64 [scored tokens], in the order of the text: draws each, or median and percentiles of equal parts."""
    import numpy as np

    values = np.maximum(kld, LEAST_KLD)
    place = np.arange(1, len(values) + 1)

    def draw(ax: "Axes") -> None:
        if len(values) <= MOST_DOTS:
            ax.plot(place, values, ".", color=LINE, ms=4, alpha=0.7, label="a token")
        else:
            parts = np.array_split(values, N_PARTS)
            middle = np.array([p.mean() for p in np.array_split(place, N_PARTS)])
            low, median, high = np.array([np.percentile(part, (10, 50, 90)) for part in parts]).T
            most = [part.max() for part in parts]
            ax.fill_between(middle, low, high, color=BAND, alpha=0.35, lw=0, label="10 to 90 % nearby")
            ax.plot(middle, median, color=LINE, lw=1.6, label="median nearby")
            ax.plot(middle, most, ".", color=TEXT, ms=3, label="greatest nearby")
        ax.axhline(max(float(kld.mean()), LEAST_KLD), color=TEXT, lw=1, ls="--", label=f"mean {kld.mean():.4g}")
        _logarithmic(ax)
        ax.set_xlim(0, len(values) + 1)
        ax.set_xlabel("scored token, in the order of the text")
        ax.set_ylabel("KL divergence, nats")

    _save(path, draw, "KL divergence by token", name)


def quantization_errors(path: Path, rows: "Sequence[TensorReport]", name: str) -> bool:
    """Draws the relative errors of quantized matrices as cells: kinds as rows, layers as columns. Without quantized
    matrices, False and no plot."""
    import numpy as np

    cells = {_place(t.name): (100 * t.rmse / t.rms, t.target.name) for t in rows if t.rmse and t.rms}
    if not cells:
        return False
    kinds = list(dict.fromkeys(kind for kind, _ in cells))
    layers = sorted({layer for _, layer in cells})  # -1 (no layer) comes first
    errors = np.full((len(kinds), len(layers)), np.nan)
    types: dict[str, dict[str, None]] = {}
    for (kind, layer), (error, type_name) in cells.items():
        errors[kinds.index(kind), layers.index(layer)] = error
        types.setdefault(kind, {})[type_name] = None
    bright = np.nanmin(errors) + 0.6 * np.ptp(errors[np.isfinite(errors)])  # above this, cells are bright: black text
    cell_width = (WIDTH - 3) / len(layers)

    def draw(ax: "Axes") -> None:
        image = ax.imshow(errors, cmap="viridis", aspect="auto", interpolation="nearest")
        ax.set_yticks(range(len(kinds)), [f"{_cut(kind, 40)}  {', '.join(types[kind])}" for kind in kinds])
        step = -(-len(layers) // 24)
        ax.set_xticks(range(0, len(layers), step), ["–" if i < 0 else str(i) for i in layers[::step]])
        ax.set_xlabel("layer (–: of the whole model)" if layers[0] < 0 else "layer")
        ax.grid(False)
        ax.tick_params(length=0)
        for spine in ax.spines.values():
            spine.set_visible(False)
        if cell_width >= 0.36:  # inches: wide enough for a figure
            for (row, column), error in np.ndenumerate(errors):
                if np.isfinite(error):
                    color = "white" if error < bright else "black"
                    ax.text(column, row, f"{error:.3g}", ha="center", va="center", fontsize=7.5, color=color)
        bar = ax.figure.colorbar(image, ax=ax, pad=0.02, fraction=0.04)
        bar.outline.set_visible(False)

    said = f"{_cut(name, 60)}: error in % of the weights (root mean squares)"
    _save(path, draw, "Error of every quantized matrix", said, height=max(2.4, 1.3 + 0.26 * len(kinds)))
    return True


def _logarithmic(ax: "Axes") -> None:
    """Makes the y axis logarithmic with plain numbers, where matplotlib would write mathematics."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())


def _place(tensor: str) -> tuple[str, int]:
    """Kind and layer of a tensor: ("ffn_down", 3) of `blk.3.ffn_down.weight`; layer -1 if it has none."""
    match = re.fullmatch(r"(.*?)blk\.(\d+)\.(.+)", tensor)
    kind, layer = (match[1] + match[3], int(match[2])) if match else (tensor, -1)
    return shown(kind.removesuffix(".weight")), layer


def _cut(name: str, length: int) -> str:
    """The name, shortened in its middle to `length`."""
    half = (length - 1) // 2
    return name if len(name) <= length else f"{name[:half]}…{name[-half:]}"


def _save(path: Path, draw: "Callable[[Axes], None]", title: str, name: str, height: float = HEIGHT) -> None:
    """Draws one diagram under a title and the name of the file. HybridError: it cannot be written."""
    import matplotlib
    from matplotlib.figure import Figure

    kind = path.suffix.lower().removeprefix(".")
    picture = io.BytesIO()
    with matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # missing glyphs
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        ax = figure.add_subplot()
        draw(ax)
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
        ax.set_title(_cut(shown(name), 84), loc="left", fontsize=9)
        if ax.get_legend_handles_labels()[1]:
            figure.legend(loc="outside lower center", ncols=4, handlelength=1.5)
        metadata: dict[str, Any] = {"Date": None} if kind == "svg" else {}
        figure.savefig(picture, format=kind, transparent=True, dpi=DPI, metadata=metadata)
    with failures_named(path):
        replace_file(path, [picture.getvalue()])
