"""The measurements as data: results.jsonl has one line per row, and every figure in the documents is made from it.

    python benchmarks/results.py            renew RESULTS.md

A row of speed:

    kind        speed
    cpu, isa, threads               the machine, and our code path
    model, type, precision, nbytes  the file; `precision` is fast or exact
    test        pp512, tg32, tg32 x8 (8 sequences together), pp512 @ d4096 (after 4096 tokens)
    date        UTC
    hybrid, peer   tokens per second: median, low, high, and those of every round; peer is null without one
    of_bandwidth, of_peak   the minimum need of the weights as a share of the limits below; null if that means little
    limits      read_gb_s, f32_gflop_s, int8_gop_s, measured before and after every round
    noisy       why the row should not be trusted; empty if it can be
    versions    of hybrid, Python, numba and the peer
    command     the command that measured it

A row of perplexity has the same fields except the shares and limits; its sides have ppl, stderr, and the seconds of the
whole process in every round.
"""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from hybrid.infer.bench.tables import duration, markdown_table, size
from hybrid.quant.ggml.errors import UsageError
from hybrid.quant.ggml.replacing import replace_file

HERE = Path(__file__).resolve().parent
DATA, DOCUMENT = HERE / "results.jsonl", HERE / "RESULTS.md"
Row = dict[str, Any]

_MACHINE = ("cpu", "isa", "threads")
_KEY = (*_MACHINE, "kind", "model", "type", "precision", "test")
_PART = re.compile(r"(<!-- generated: results -->\n).*?(<!-- end -->)", re.DOTALL)
_TEST = re.compile(r"(?:pp(\d+))?\+?(?:tg(\d+))?(?: x(\d+))?(?: @ d(\d+))?")


def rates(values: Sequence[float]) -> dict[str, Any]:
    """A side's field of a row, from the tokens per second of its rounds."""
    kept = [rounded(value) for value in values]
    return {"median": rounded(median(kept)), "low": min(kept), "high": max(kept), "rates": kept}


def rounded(value: float) -> float:
    """The value with two decimals from 100 on, otherwise with four significant digits: noise is not worth storing."""
    return round(value, 2) if value >= 100 else float(f"{value:.4g}")


def key(row: Row) -> tuple[Any, ...]:
    """The identity of a row: a later row with the same key replaces it."""
    return tuple(row.get(name) for name in _KEY)


def load(path: Path = DATA) -> list[Row]:
    """All rows. Raises UsageError for an invalid line."""
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines() if path.exists() else [], 1):
        try:
            row = json.loads(line)
            missing = [name for name in _KEY if name not in row]
        except (ValueError, TypeError) as error:
            raise UsageError(f"{path.name}, line {number}: not a JSON object ({error}). Remove the line.") from error
        if missing:
            raise UsageError(f"{path.name}, line {number}: {', '.join(missing)} missing. Remove the line.")
        rows.append(row)
    return rows


def save(rows: Iterable[Row], path: Path = DATA) -> None:
    """Write one line per row, so that diffs show new measurements."""
    replace_file(path, [(json.dumps(row, ensure_ascii=False) + "\n").encode() for row in rows])


def merged(old: Iterable[Row], new: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    """Old rows with the new ones replacing them or appended, and the new rows that were left out.

    A row without a peer is left out if the old one has one: a ratio is worth more than a newer figure of ours.
    """
    rows = {key(row): row for row in old}
    left_out = []
    for row in new:
        before = rows.get(key(row))
        if before is not None and before.get("peer") and not row.get("peer"):
            left_out.append(row)
        else:
            rows[key(row)] = row
    return sorted(rows.values(), key=_place), left_out


def _place(row: Row) -> tuple[Any, ...]:
    bits = row.get("nbytes", 0)
    return (
        *(str(row[name]) for name in _MACHINE),
        row["kind"] != "speed",
        row["model"],
        -bits,
        row["type"],
        row["precision"] != "fast",
        *test_order(row["test"]),
    )


def test_order(name: str) -> tuple[int, int, int, int]:
    """Sort key: by depth, then prompts before generation, then by length."""
    match = _TEST.fullmatch(name)
    n_prompt, n_gen, together, depth = (int(n or 0) for n in match.groups()) if match else (0, 0, 0, 0)
    return depth, n_gen, together, n_prompt


def measured_since(rows: Iterable[Row], day: str, peer: bool) -> set[tuple[Any, ...]]:
    """Keys of rows that `--resume` leaves out: of this day or later, not noisy, with a peer if this run has one."""
    return {key(r) for r in rows if r["date"][:10] >= day and not r.get("noisy") and (r.get("peer") or not peer)}


# --- documents --------------------------------------------------------------------------------------------------------
def ratio(row: Row) -> float | None:
    """Our rate divided by the peer's, or None."""
    return row["hybrid"]["median"] / row["peer"]["median"] if row.get("peer") else None


def by_machine(rows: Iterable[Row]) -> dict[tuple[Any, ...], list[Row]]:
    grouped: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        grouped.setdefault(tuple(row[name] for name in _MACHINE), []).append(row)
    return grouped


def limits_text(rows: Iterable[Row]) -> str:
    """'Read bandwidth 31.9 GB/s, peak 193 GFLOP/s f32, 377 Gop/s int8 (medians)', from rows that are not noisy; or
    empty."""
    names = {
        "read_gb_s": "read bandwidth {:.1f} GB/s",
        "f32_gflop_s": "peak {:.0f} GFLOP/s f32",
        "int8_gop_s": "{:.0f} Gop/s int8",
    }
    rows = [row for row in rows if not row.get("noisy")]
    parts = []
    for name, text in names.items():
        values = [value for row in rows for value in row.get("limits", {}).get(name, [])]
        if values:
            parts.append(text.format(median(values)))
    return ", ".join(parts)


def report(rows: Iterable[Row]) -> str:
    """All rows as Markdown, by machine and model."""
    parts = []
    for (cpu, isa, threads), mine in by_machine(rows).items():
        days = sorted(row["date"][:10] for row in mine)
        when = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
        parts.append(f"## {cpu}, {isa}, {threads} threads\n")
        limits = limits_text(mine)
        parts.append(f"Measured {when}{'; medians of the limits: ' + limits if limits else ''}.\n")
        speed = [row for row in mine if row["kind"] == "speed"]
        for model in dict.fromkeys(row["model"] for row in speed):
            parts += [f"### {model}\n", speed_table(row for row in speed if row["model"] == model)]
        perplexity = [row for row in mine if row["kind"] == "perplexity"]
        if perplexity:
            parts += ["### Perplexity\n", perplexity_table(perplexity)]
        if any(row.get("noisy") for row in speed):
            parts.append("~ noisy: the machine's limits moved, or others computed, while it was measured.\n")
        parts += ["### How\n", how(mine)]
    return "\n".join(parts) or "Nothing was measured yet.\n"


def speed_table(rows: Iterable[Row]) -> str:
    """Markdown: rates of both sides as median (low - high), their ratio, and the share of the machine's limits."""
    rows = list(rows)
    peer = any(row.get("peer") for row in rows)
    header = ["type", "size", "test", "hybrid t/s", *(["llama.cpp t/s", "ratio"] if peer else [])]
    lines = []
    for row in rows:
        kind = row["type"] + (" exact" if row["precision"] == "exact" else "")
        test = row["test"] + (" ~" if row.get("noisy") else "")
        line = [kind, size(row["nbytes"]), test, spread(row["hybrid"])]
        if peer:
            line += [spread(row["peer"]), f"{ratio(row):.2f}"] if row.get("peer") else ["-", "-"]
        lines.append([*line, percent(row.get("of_bandwidth")), percent(row.get("of_peak"))])
    return markdown_table([*header, "of bandwidth", "of peak"], lines)


def perplexity_table(rows: Iterable[Row]) -> str:
    """Markdown: both figures, the times of the whole processes, the difference and the ratio of the times."""
    rows = list(rows)
    peer = any(row.get("peer") for row in rows)
    more = ["llama.cpp PPL", "time", "difference", "time ratio"] if peer else []
    lines = []
    for row in rows:
        ours, theirs = row["hybrid"], row.get("peer")
        seconds = median(ours["seconds"])
        name = f"{row['model']} {row['type']}" + (" exact" if row["precision"] == "exact" else "")
        line = [name, row["test"], f"{ours['ppl']:.4f} ± {ours['stderr']:.4f}", duration(seconds)]
        if peer and theirs:
            other = median(theirs["seconds"])
            line += [f"{theirs['ppl']:.4f} ± {theirs['stderr']:.4f}", duration(other)]
            line += [f"{ours['ppl'] / theirs['ppl'] - 1:+.3%}", f"{seconds / other:.2f}"]
        lines.append(line + ["-"] * (4 + len(more) - len(line)))
    return markdown_table(["model", "text", "hybrid PPL", "time", *more], lines, left=2)


def how(rows: Iterable[Row]) -> str:
    """A list of the commands, each with its versions and days."""
    days_of: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        versions = ", ".join(f"{name} {number}" for name, number in row["versions"].items())
        days_of.setdefault((row["command"], versions), set()).add(row["date"][:10])
    lines = [f"- `{command}` ({versions}; {', '.join(sorted(days))})" for (command, versions), days in days_of.items()]
    return "\n".join(lines) + "\n"


def spread(side: dict[str, Any]) -> str:
    """'32.1 (31.1 - 32.3)'; the figure alone for a single round."""
    if len(side["rates"]) == 1:
        return figure(side["median"])
    return f"{figure(side['median'])} ({figure(side['low'])} - {figure(side['high'])})"


def figure(value: float) -> str:
    """Tokens per second with as many digits as are significant."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def summary(rows: Iterable[Row], model: str = "jamba-3b") -> str:
    """For the README: prompts of 512 tokens and generation, by type, of one model on the machine measured last."""
    mine = headline(rows, model)
    if not mine:
        return f"{model} was not measured yet: `make bench-full PEER=path/to/llama.cpp/build/bin`.\n"
    table = []
    for kind in dict.fromkeys(row["type"] for row in mine):
        line = [kind]
        for prefix in ("pp", "tg"):
            row = next((r for r in mine if r["type"] == kind and r["test"].startswith(prefix)), None)
            if row is None:
                line += ["-"] * 3
                continue
            times = ratio(row)
            line += [
                figure(row["hybrid"]["median"]) + (" ~" if row.get("noisy") else ""),
                figure(row["peer"]["median"]) if row.get("peer") else "-",
                f"{times:.2f}" if times else "-",
            ]
        table.append(line)
    pp = next((row["test"] for row in mine if row["test"].startswith("pp")), "pp")
    tg = next((row["test"] for row in mine if row["test"].startswith("tg")), "tg")
    header = [model, f"{pp} t/s", "llama.cpp", "ratio", f"{tg} t/s", "llama.cpp", "ratio"]
    noisy = " ~: measured on a busy machine." if any(row.get("noisy") for row in mine) else ""
    return f"{machine_text(mine)}.{noisy}\n\n{markdown_table(header, table)}"


def prompt_claim(rows: Iterable[Row], model: str = "jamba-3b") -> str:
    """For the README's first lines: prompt speed relative to llama.cpp's on every machine, without noisy rows."""
    wanted = {"kind": "speed", "model": model, "test": "pp512", "precision": "fast"}
    mine = [row for row in rows if wanted.items() <= row.items() and ratio(row) and not row.get("noisy")]
    lines = []
    for (cpu, isa, threads), there in by_machine(mine).items():
        ratios = sorted(times for times in map(ratio, there) if times)
        range_ = f"{ratios[0]:.1f}" if len(ratios) == 1 else f"{ratios[0]:.1f} to {ratios[-1]:.1f}"
        kinds = ", ".join(dict.fromkeys(row["type"] for row in there))
        lines.append(f"  {range_} times llama.cpp's speed on {cpu}, {isa}, {threads} threads ({kinds})")
    return ";\n".join(lines) + ".\n"


def machine_text(rows: Sequence[Row]) -> str:
    """'AMD EPYC (znver3), avx2, 2 threads, 2026-11-21, llama.cpp 0c1e570'"""
    first = rows[0]
    peers = sorted({row["versions"]["llama.cpp"] for row in rows if "llama.cpp" in row["versions"]})
    peer = [f"llama.cpp {', '.join(peers)}"] if peers else []
    day = max(row["date"][:10] for row in rows)
    return ", ".join([first["cpu"], first["isa"], f"{first['threads']} threads", day, *peer])


def headline(rows: Iterable[Row], model: str) -> list[Row]:
    """The rows of `model` that README and chart show: pp512 and the shortest generation, at depth 0, on the machine
    where it was measured last."""
    mine = [r for r in rows if r["kind"] == "speed" and r["model"] == model and r["precision"] == "fast"]
    mine = [r for r in mine if r["test"] == "pp512" or re.fullmatch(r"tg\d+", r["test"])]
    if not mine:
        return []
    last = max(mine, key=lambda row: row["date"])
    mine = [row for row in mine if all(row[name] == last[name] for name in _MACHINE)]
    gens = sorted({row["test"] for row in mine if row["test"].startswith("tg")}, key=test_order)[:1]
    return [row for row in mine if row["test"] in ("pp512", *gens)]


def renew(document: Path = DOCUMENT, data: Path = DATA) -> None:
    """Renew the generated part of RESULTS.md."""
    text = report(load(data))
    old = document.read_text(encoding="utf-8")
    document.write_text(_PART.sub(lambda m: m[1] + text + m[2], old), encoding="utf-8")


if __name__ == "__main__":
    renew()
