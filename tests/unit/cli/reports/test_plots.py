"""Plots: contents for few and many points, names from outside, and refusals."""

import importlib.util
import struct
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hybrid.cli.reports import plots
from hybrid.infer.evaluate.positions import PositionBucket
from hybrid.quant.ggml.errors import HybridError, UsageError
from hybrid.quant.ggml.types import GGMLType

pytestmark = pytest.mark.exhaustive


def texts(path: Path) -> list[str]:
    """The readable texts of an SVG."""
    return ["".join(e.itertext()) for e in ET.parse(path).iter("{http://www.w3.org/2000/svg}text")]


def buckets(n: int) -> list[PositionBucket]:
    return [PositionBucket(1 + 8 * i, 9 + 8 * i, 30 / (i + 1), 2.0, 3.0, 99) for i in range(n)]


def tensor(name: str, error: float, kind: GGMLType = GGMLType.Q4_K) -> Any:
    return SimpleNamespace(name=name, rmse=error, rms=100.0 if error else float("nan"), target=kind)


LAYERS = [tensor(f"blk.{i}.{kind}.weight", 5.0 + i) for i in range(40) for kind in ("attn_q", "ffn_down")]
DRAWN: dict[str, Callable[[Path], object]] = {
    "position-1": lambda path: plots.perplexity_by_position(path, buckets(1), "m.gguf"),
    "position-500": lambda path: plots.perplexity_by_position(path, buckets(500), "m.gguf"),
    "token-1": lambda path: plots.kl_divergence_by_token(path, np.zeros(1), "m.gguf"),
    "token-9999": lambda path: plots.kl_divergence_by_token(path, np.linspace(0, 3, 9999), "m.gguf"),
    "error-1": lambda path: plots.quantization_errors(path, LAYERS[:1], "m.gguf"),
    "error-80": lambda path: plots.quantization_errors(path, [tensor("output.weight", 1), *LAYERS], "m.gguf"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_both_kinds_of_picture(name: str, tmp_path: Path) -> None:
    svg, png = tmp_path / "a.svg", tmp_path / "a.PNG"
    for path in (svg, png):
        DRAWN[name](path)
    assert any(text.startswith("m.gguf") for text in texts(svg))
    assert not any("$" in text for text in texts(svg)), "numbers are not written as mathematics"
    head = png.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">2I", head[16:])
    assert width == plots.WIDTH * plots.DPI and height >= 2.4 * plots.DPI
    if name == "token-1":
        before = svg.read_bytes()
        DRAWN[name](svg)
        assert svg.read_bytes() == before, "the same figures, the same file"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.PNG", "a.svg"]


def test_errors_stand_at_kind_and_layer(tmp_path: Path) -> None:
    rows = [
        tensor("token_embd.weight", 1.25),
        tensor("output_norm.weight", 0.0),
        tensor("blk.0.ffn_up.weight", 2.5),
        tensor("blk.7.ffn_up.weight", 3.75, GGMLType.Q6_K),
        tensor("v.blk.7.ffn_up.weight", 8.5),
    ]
    assert plots.quantization_errors(tmp_path / "a.svg", rows, "m.gguf")
    seen = texts(tmp_path / "a.svg")
    assert {
        "1.25",
        "2.5",
        "3.75",
        "8.5",
        "–",
        "0",
        "7",
        "m.gguf: error in % of the weights (root mean squares)",
    } <= set(seen)
    named = [" ".join(text.split()) for text in seen]
    assert {"token_embd Q4_K", "ffn_up Q4_K, Q6_K", "v.ffn_up Q4_K"} <= set(named)
    assert not any("norm" in text for text in seen), "what was copied has no error"
    assert not plots.quantization_errors(tmp_path / "b.svg", rows[1:2], "m.gguf")
    assert not (tmp_path / "b.svg").exists()


def test_numbers_of_a_logarithmic_axis_can_be_read(tmp_path: Path) -> None:
    plots.kl_divergence_by_token(tmp_path / "a.svg", np.array([1e-4, 1e-2, 10.0]), "m.gguf")
    assert {"0.001", "0.01", "1", "10", "mean 3.337", "a token"} <= set(texts(tmp_path / "a.svg"))


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("x$_{a}$ & <b>.gguf", "x$_{a}$ & <b>.gguf"),
        ("a\x1b[31m\nb.gguf", r"a\x1b[31m\nb.gguf"),
        ("模型.gguf", "模型.gguf"),
        ("a" * 300, "a" * 41 + "…" + "a" * 41),
    ],
)
def test_names_from_outside(name: str, shown: str, tmp_path: Path) -> None:
    plots.perplexity_by_position(tmp_path / "a.svg", buckets(3), name)
    assert shown in texts(tmp_path / "a.svg")


def test_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert plots.checked(None) is None
    assert plots.checked(tmp_path / "a.SVG") == tmp_path / "a.SVG"
    with pytest.raises(UsageError, match=r"--plot .*a\.pdf: expected a name that ends in \.svg or \.png\."):
        plots.checked(tmp_path / "a.pdf")
    with pytest.raises(UsageError, match=r"there is no folder .*nowhere\. Make it first"):
        plots.checked(tmp_path / "nowhere" / "a.svg")
    (tmp_path / "b.svg").mkdir()
    with pytest.raises(UsageError, match=r"b\.svg is not a regular file"):
        plots.checked(tmp_path / "b.svg")
    with pytest.raises(HybridError, match=r"b\.svg"):
        plots.perplexity_by_position(tmp_path / "b.svg", buckets(3), "m.gguf")
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "matplotlib" else find(name, *more)
    )
    with pytest.raises(UsageError, match=r"not installed: pip install 'hybrid-lm\[plot\]'\."):
        plots.checked(tmp_path / "a.svg")
