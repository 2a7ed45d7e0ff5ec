"""Results as text: llama-bench's markdown table, and records for JSON and CSV, with llama-bench's field names where it
has them."""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hybrid.quant.ggml.byte_sizes import size_text

from ..loading.options import DEFAULT_KV_TYPE, DEFAULT_UBATCH, LoadOptions
from .benchmark import BenchReport, SpeedRow, StartRow
from .guess_tests import GuessRow, middle
from .profile import Profile


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A table with columns as wide as their widest cell; the first `left` columns are left-aligned."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = [_line(header, widths, left)]
    rules = ["-" * max(3, w) if i < left else "-" * (max(3, w) - 1) + ":" for i, w in enumerate(widths)]
    lines.append("| " + " | ".join(rules) + " |")
    lines += [_line(row, widths, left) for row in rows]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str], widths: Sequence[int], left: int) -> str:
    padded = [
        cell.ljust(max(3, width)) if i < left else cell.rjust(max(3, width))
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "| " + " | ".join(padded) + " |"


def speed_markdown(rows: Sequence[SpeedRow]) -> str:
    """llama-bench's table. A setting has a column only if it is not the default in all rows."""
    columns = _setting_columns(rows)
    columns += [
        ("test", lambda row: row.test.name),
        ("t/s", lambda row: f"{row.tokens_per_second:.2f} ± {row.spread:.2f}"),
    ]
    return _table(columns, rows)


def guess_markdown(rows: Sequence[GuessRow]) -> str:
    """Generation without and with guesses: medians of rates, and the share of guessed tokens that were taken."""
    columns = _setting_columns(rows)
    columns += [
        ("test", lambda row: row.test.name),
        ("guesses", _guesses),
        ("t/s without", lambda row: _middle(row.plain_rates)),
        ("t/s with", lambda row: _middle(row.rates)),
        ("ratio", lambda row: f"{row.ratio:.2f}"),
        ("taken", lambda row: "-" if row.taken is None else f"{row.taken:.0%} ({row.accepted} of {row.guessed})"),
    ]
    return _table(columns, rows)


def _guesses(row: GuessRow) -> str:
    """'ngram', 'small.gguf', or 'ngram + small.gguf'."""
    who = [] if row.spec == "none" else [row.spec]
    return " + ".join([*who, Path(row.draft).name] if row.draft else who)


def _middle(rates: Sequence[float]) -> str:
    return "{:.2f} ± {:.2f}".format(*middle(rates))


def _setting_columns(rows: Sequence[SpeedRow] | Sequence[GuessRow]) -> list[tuple[str, Any]]:
    columns: list[tuple[str, Any]] = [
        ("model", lambda row: row.setting.model),
        ("size", lambda row: size(row.setting.nbytes)),
        ("params", lambda row: count(row.setting.n_params)),
        ("threads", lambda row: str(row.setting.n_threads)),
    ]
    if any(row.setting.n_ubatch != DEFAULT_UBATCH for row in rows):
        columns.append(("n_ubatch", lambda row: str(row.setting.n_ubatch)))
    if any(row.setting.precision != LoadOptions.precision for row in rows):
        columns.append(("precision", lambda row: row.setting.precision))
    if any(row.setting.kv_type != DEFAULT_KV_TYPE.get(row.setting.precision) for row in rows):
        columns.append(("kv", lambda row: row.setting.kv_type))
    if any(row.setting.numa for row in rows):
        columns.append(("numa", lambda row: row.setting.numa or "-"))
    return columns


def _table(columns: Sequence[tuple[str, Any]], rows: Sequence[SpeedRow] | Sequence[GuessRow]) -> str:
    return markdown_table([name for name, _ in columns], [[cell(row) for _, cell in columns] for row in rows])


def start_markdown(rows: Sequence[StartRow]) -> str:
    """Costs of loading a model, and of saving and restoring a sequence."""
    header = ["model", "threads", "load", "compile", "first token", "peak memory", "state", "save", "restore", "copy"]
    return markdown_table(header, [_start_cells(row) for row in rows])


def _start_cells(row: StartRow) -> list[str]:
    state = ["-"] * 4
    if row.state is not None:
        s = row.state
        state = [f"{size(s.nbytes)} ({s.n_tokens} tok)"]
        state += [duration(t) for t in (s.save_seconds, s.restore_seconds, s.copy_seconds)]
    return [
        row.setting.model,
        str(row.setting.n_threads),
        duration(row.load_seconds),
        f"{duration(row.compile_seconds)} ({row.n_compiled} new)",
        f"{duration(row.first_token_seconds)} (pp{row.first_token_prompt})",
        size(row.peak_rss),
        *state,
    ]


def profile_markdown(profile: Profile) -> str:
    """Time per operation, and its rates as a share of the machine's limits."""
    rows = [
        [
            row.op,
            row.kind,
            str(row.calls),
            duration(row.seconds),
            f"{row.share:.1%}",
            f"{row.gb_s:.1f}",
            f"{row.gflop_s:.1f}",
            f"{row.of_limit:.0%}",
        ]
        for row in profile.rows
    ]
    table = markdown_table(["op", "kernel", "calls", "time", "share", "GB/s", "Gop/s", "of limit"], rows, left=2)
    m = profile.machine
    int8 = "" if m.int8_gop_s is None else f", {m.int8_gop_s:.0f} Gop/s int8"
    return (
        f"{table}\n{profile.test.name}: {duration(profile.seconds)} in operations. {m.cpu}, {m.n_threads} threads: "
        f"{m.read_gb_s:.1f} GB/s read, {m.f32_gflop_s:.0f} GFLOP/s f32{int8}.\n"
    )


def markdown(report: BenchReport) -> str:
    return speed_markdown(report.rows) + ("\n" + start_markdown(report.starts) if report.starts else "")


def records(report: BenchReport) -> list[dict[str, Any]]:
    """One flat record per test, with llama-bench's field names; its StartRow is under `start`."""
    starts = {row.setting: asdict(row) for row in report.starts}
    for start in starts.values():
        del start["setting"]
    return [{**_record(row), "start": starts.get(row.setting)} for row in report.rows]


def _record(row: SpeedRow) -> dict[str, Any]:
    mean = sum(row.seconds) / len(row.seconds)
    return {
        **_what(row),
        "avg_ns": round(mean * 1e9),
        "avg_ts": row.tokens_per_second,
        "stddev_ts": row.spread,
        "samples_ns": [round(s * 1e9) for s in row.seconds],
        "samples_ts": row.rates,
    }


def guess_records(rows: Sequence[GuessRow]) -> list[dict[str, Any]]:
    """One flat record per test. The rates are medians: `plain_ts` without guesses, `guess_ts` with them."""
    return [_guess_record(row) for row in rows]


def _guess_record(row: GuessRow) -> dict[str, Any]:
    plain, with_guesses = middle(row.plain_rates), middle(row.rates)
    return {
        **_what(row),
        "spec": row.spec,
        "draft_filename": row.draft,
        "plain_ts": plain[0],
        "plain_stddev_ts": plain[1],
        "guess_ts": with_guesses[0],
        "guess_stddev_ts": with_guesses[1],
        "ratio": row.ratio,
        "n_guessed": row.guessed,
        "n_accepted": row.accepted,
        "accepted_share": row.taken,
        "n_passes": row.passes,
        "samples_plain_ts": row.plain_rates,
        "samples_guess_ts": row.rates,
    }


def _what(row: SpeedRow | GuessRow) -> dict[str, Any]:
    """The model, how it was run, and the test."""
    return {
        "model_filename": row.setting.path,
        "model_type": row.setting.model,
        "model_size": row.setting.nbytes,
        "model_n_params": row.setting.n_params,
        "n_ubatch": row.setting.n_ubatch,
        "n_threads": row.setting.n_threads,
        "type_k": row.setting.kv_type.partition("/")[0],
        "type_v": row.setting.kv_type.rpartition("/")[2],
        "precision": row.setting.precision,
        "numa": row.setting.numa,
        "n_prompt": row.test.n_prompt,
        "n_gen": row.test.n_gen,
        "n_depth": row.test.n_depth,
        "n_parallel": row.test.n_parallel,
        "test_time": row.measured_at,
    }


def as_csv(report: BenchReport) -> str:
    """The scalars of `records`. Fields of `start` are in columns start_<name> and state_<name>."""
    flat = []
    for record in records(report):
        start = record["start"] or {}
        state = start.get("state") or {}
        record = {key: value for key, value in record.items() if not isinstance(value, list) and key != "start"}
        record.update({f"start_{key}": value for key, value in start.items() if key != "state"})
        record.update({f"state_{key}": value for key, value in state.items()})
        flat.append(record)
    return _csv(flat)


def guess_csv(rows: Sequence[GuessRow]) -> str:
    """The scalars of `guess_records`."""
    return _csv([{key: value for key, value in r.items() if not isinstance(value, list)} for r in guess_records(rows)])


def _csv(flat: Sequence[dict[str, Any]]) -> str:
    # records without state files have fewer columns
    names = list(dict.fromkeys(name for record in flat for name in record))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return out.getvalue()


def size(nbytes: float) -> str:
    """'3.14 GiB': two decimals, as in llama-bench."""
    return size_text(nbytes, 2)


def count(n: int) -> str:
    """'3.03 B' or '129.14 M', as in llama-bench."""
    return f"{n / 1e9:.2f} B" if n >= 1e9 else f"{n / 1e6:.2f} M"


def duration(seconds: float) -> str:
    """Three digits and a unit: '12.3 ms'."""
    for unit, name in [(1.0, "s"), (1e-3, "ms")]:
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}" if seconds < 1000 * unit else f"{seconds / unit:.0f} {name}"
    return f"{seconds * 1e6:.3g} us"
