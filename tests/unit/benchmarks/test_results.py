"""Rows of results are stored, replaced, and made into tables."""

from pathlib import Path
from typing import Any

import pytest
import results

from hybrid.quant.ggml.errors import UsageError


def row(test: str = "pp512", ours: list[float] | None = None, peer: list[float] | None = None, **more: Any) -> Any:
    return {
        "kind": "speed", "cpu": "EPYC", "isa": "avx2", "threads": 2, "model": "jamba-3b", "type": "Q8_0",
        "precision": "fast", "test": test, "nbytes": 3 << 30, "date": "2026-11-21T14:21Z",
        "hybrid": results.rates(ours or [30.0, 32.0, 31.0]), "peer": results.rates(peer) if peer else None,
        "of_bandwidth": None, "of_peak": 0.812, "limits": {"read_gb_s": [30.0, 34.0], "f32_gflop_s": [193.0]},
        "noisy": "", "versions": {"hybrid": "0.1.0", "llama.cpp": "0c1e570"}, "command": "compare.py", **more,
    }  # fmt: skip


def test_rates_of_rounds() -> None:
    assert results.rates([31.234567, 6.0, 1234.567]) == {
        "median": 31.23,
        "low": 6.0,
        "high": 1234.57,
        "rates": [31.23, 6.0, 1234.57],
    }


def test_rows_survive_a_file(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    assert results.load(path) == []
    rows = [row(), row("tg32", peer=[1.0])]
    results.save(rows, path)
    assert results.load(path) == rows
    assert path.read_text().count("\n") == 2
    assert list(tmp_path.iterdir()) == [path]


def test_damaged_rows(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"kind": "speed"}\n')
    with pytest.raises(UsageError, match=r"r\.jsonl, line 1: cpu, isa, .* missing"):
        results.load(path)
    path.write_text("nonsense\n")
    with pytest.raises(UsageError, match=r"r\.jsonl, line 1: not a JSON object"):
        results.load(path)


def test_a_newer_row_replaces_an_older() -> None:
    old, new = row(ours=[1.0]), row(ours=[2.0])
    others = [row("tg32"), row(type="Q4_0"), row(threads=1), row(precision="exact"), row(cpu="Other")]
    rows, left_out = results.merged([*others, old], [new])
    assert new in rows
    assert old not in rows
    assert all(other in rows for other in others)
    assert len(rows) == 6
    assert not left_out


def test_a_peers_figure_is_not_lost() -> None:
    old, new = row(peer=[10.0]), row(ours=[99.0])
    rows, left_out = results.merged([old], [new])
    assert rows == [old]
    assert left_out == [new]
    newer = row(ours=[99.0], peer=[11.0])
    assert results.merged([old], [newer]) == ([newer], [])


def test_order_of_tests() -> None:
    names = ["pp32", "pp512", "tg32", "tg32 x8", "tg32 x16", "tg64", "pp512 @ d4096", "tg32 @ d4096", "tg32 @ d16384"]
    rows, _ = results.merged([], [row(name) for name in reversed(names)])
    assert [r["test"] for r in rows] == names
    sizes, _ = results.merged([], [row(type="Q4_0", nbytes=1), row(type="F32", nbytes=9)])
    assert [r["type"] for r in sizes] == ["F32", "Q4_0"]


def test_resume_leaves_out_what_is_good() -> None:
    rows = [row(), row("tg32", peer=[1.0]), row("tg64", peer=[1.0], noisy="others"), row("pp32", date="2026-11-20T")]
    assert results.measured_since(rows, "2026-11-21", peer=False) == {results.key(rows[0]), results.key(rows[1])}
    assert results.measured_since(rows, "2026-11-21", peer=True) == {results.key(rows[1])}


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_report() -> None:
    ppl = {"ppl": 9.8439, "stderr": 0.1, "seconds": [16.0, 18.0]}
    text = results.report(
        [
            row(peer=[10.0, 12.0, 11.0]),
            row("tg32", ours=[6.0], of_bandwidth=0.634, noisy="others use 1.0 cores", limits={"read_gb_s": [1.0]}),
            row("t.txt, context 512", kind="perplexity")
            | {"hybrid": ppl, "peer": {**ppl, "ppl": 9.843, "seconds": [34]}},
        ]
    )
    lines = text.splitlines()
    assert lines[0] == "## EPYC, avx2, 2 threads"
    assert "read bandwidth 32.0 GB/s, peak 193 GFLOP/s f32" in lines[2], "of the quiet rows"
    table = [cells(line) for line in lines if line.startswith("| Q8_0")]
    assert table[0] == ["Q8_0", "3.00 GiB", "pp512", "31.0 (30.0 - 32.0)", "11.0 (10.0 - 12.0)", "2.82", "-", "81%"]
    assert table[1] == ["Q8_0", "3.00 GiB", "tg32 ~", "6.00", "-", "-", "63%", "81%"]
    perplexity = next(cells(line) for line in lines if line.startswith("| jamba-3b"))
    assert perplexity == [
        "jamba-3b Q8_0",
        "t.txt, context 512",
        "9.8439 ± 0.1000",
        "17 s",
        "9.8430 ± 0.1000",
        "34 s",
        "+0.009%",
        "0.50",
    ]
    assert "~ noisy" in text
    assert lines[-1] == "- `compare.py` (hybrid 0.1.0, llama.cpp 0c1e570; 2026-11-21)"


def test_report_without_a_peer() -> None:
    text = results.report([row(versions={"hybrid": "0.1.0"})])
    assert "llama" not in text
    assert "~" not in text
    assert results.report([]) == "Nothing was measured yet.\n"


def test_summary() -> None:
    rows = [row(peer=[10.0]), row("tg32", [6.0], [5.0]), row("tg64", [7.0]), row("pp32"), row(type="Q4_0", noisy="x")]
    text = results.summary([*rows, row(cpu="Older", date="2026-01-01T00:00Z")])
    assert "EPYC, avx2, 2 threads, 2026-11-21, llama.cpp 0c1e570" in text
    table = [cells(line) for line in text.splitlines() if line.startswith("| Q")]
    assert table == [["Q8_0", "31.0", "10.0", "3.10", "6.00", "5.00", "1.20"], ["Q4_0", "31.0 ~", *["-"] * 5]]
    assert "not measured yet" in results.summary([row(model="other")])


def test_claim_about_prompts() -> None:
    quiet = [row(peer=[10.0]), row(type="Q4_0", peer=[20.0]), row(cpu="Newer", peer=[8.0])]
    others = [
        row(type="Q6_K", peer=[1.0], noisy="x"),
        row(type="Q5_K"),
        row("tg32", peer=[1.0]),
        row(model="m", peer=[1.0]),
    ]
    assert results.prompt_claim([*quiet, *others]).splitlines() == [
        "  1.6 to 3.1 times llama.cpp's speed on EPYC, avx2, 2 threads (Q8_0, Q4_0);",
        "  3.9 times llama.cpp's speed on Newer, avx2, 2 threads (Q8_0).",
    ]


def test_the_kept_results_are_sound() -> None:
    """All measurements have their figures, in the order of new rows."""
    rows = results.load()
    assert rows
    assert results.merged([], rows)[0] == rows
    for r in rows:
        assert r["date"][:2] == "20"
        assert r["versions"]["hybrid"]
        assert "/" not in r["command"].replace("benchmarks/", "").replace("/commits.py", "")
        if r["kind"] == "speed":
            for side in filter(None, (r["hybrid"], r["peer"])):
                assert side == results.rates(side["rates"])
