"""Tables and machine-readable records, to the character."""

import csv
import io

from hybrid.infer.bench.benchmark import BenchReport, BenchTest, Setting, SpeedRow, StartRow, StateTimes
from hybrid.infer.bench.machine import Machine
from hybrid.infer.bench.profile import Profile, ProfileRow
from hybrid.infer.bench.tables import (
    as_csv,
    count,
    duration,
    markdown,
    profile_markdown,
    records,
    size,
    speed_markdown,
)

SETTING = Setting("/m/j.gguf", "jamba Q8_0", 3_367_408_352, 3_029_337_472, 2, 512, "fast", "f16")
ROWS = (
    SpeedRow(SETTING, BenchTest(512, 0), (2.0, 2.56), "2026-01-02T03:04:05Z"),
    SpeedRow(SETTING, BenchTest(0, 128, 4096), (10.0,), "2026-01-02T03:05:05Z"),
)
STATE = StateTimes(512, 10_000_000, 0.0123, 0.004, 0.00005)
START = StartRow(SETTING, 0.1234, 2.5, 17, 512, 2.5, 3_500_000_000, STATE)
REPORT = BenchReport(ROWS, (START,))


def test_speed_table() -> None:
    assert speed_markdown(ROWS) == (
        "| model      |     size | params | threads |          test |            t/s |\n"
        "| ---------- | -------: | -----: | ------: | ------------: | -------------: |\n"
        "| jamba Q8_0 | 3.14 GiB | 3.03 B |       2 |         pp512 | 228.00 ± 39.60 |\n"
        "| jamba Q8_0 | 3.14 GiB | 3.03 B |       2 | tg128 @ d4096 |   12.80 ± 0.00 |\n"
    )


def test_what_differs_gets_a_column() -> None:
    setting = Setting("m", "llama F32", 9 << 20, 2_000_000, 1, 64, "exact", "q8_0", "interleave")
    other = SpeedRow(setting, BenchTest(8, 0), (1.0,), "")
    lines = speed_markdown([*ROWS, other]).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0] == ["model", "size", "params", "threads", "n_ubatch", "precision", "kv", "numa", "test", "t/s"]
    assert cells[-1][:6] == ["llama F32", "9.00 MiB", "2.00 M", "1", "64", "exact"]
    assert cells[-1][6:] == ["q8_0", "interleave", "pp8", "8.00 ± 0.00"]
    assert cells[2][-3:] == ["-", "pp512", "228.00 ± 39.60"]
    assert [record["numa"] for record in records(BenchReport((*ROWS, other), ()))] == [None, None, "interleave"]
    assert len({len(line) for line in lines}) == 1


def test_start_table() -> None:
    table = markdown(REPORT).partition("\n\n")[2].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in (table[0], table[2])]
    assert dict(zip(*cells, strict=True)) == {
        "model": "jamba Q8_0",
        "threads": "2",
        "load": "123 ms",
        "compile": "2.5 s (17 new)",
        "first token": "2.5 s (pp512)",
        "peak memory": "3.26 GiB",
        "state": "9.54 MiB (512 tok)",
        "save": "12.3 ms",
        "restore": "4 ms",
        "copy": "50 us",
    }
    without = StartRow(SETTING, 0.1, 0.0, 0, 1, 0.1, 1 << 20, None)
    assert markdown(BenchReport(ROWS, (without,))).splitlines()[-1].count(" - |") == 4


def test_report_without_starts() -> None:
    report = BenchReport(ROWS, ())
    assert markdown(report) == speed_markdown(ROWS)
    assert records(report)[0]["start"] is None


def test_records_have_llama_benchs_fields() -> None:
    first, second = records(REPORT)
    assert first["model_filename"] == "/m/j.gguf"
    assert first["model_type"] == "jamba Q8_0"
    assert first["model_size"] == 3_367_408_352
    assert (first["n_prompt"], first["n_gen"], first["n_depth"]) == (512, 0, 0)
    assert (second["n_prompt"], second["n_gen"], second["n_depth"]) == (0, 128, 4096)
    assert first["n_parallel"] == 1
    assert first["type_k"] == first["type_v"] == "f16"
    assert first["avg_ns"] == 2_280_000_000
    assert first["avg_ts"] == 228.0
    assert first["samples_ns"] == [2_000_000_000, 2_560_000_000]
    assert first["samples_ts"] == [256.0, 200.0]
    assert first["start"]["compile_seconds"] == 2.5
    assert first["start"]["state"]["nbytes"] == 10_000_000
    assert "setting" not in first["start"]


def test_csv() -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(REPORT))))
    assert len(rows) == 2
    assert rows[0]["avg_ts"] == "228.0"
    assert rows[1]["n_depth"] == "4096"
    assert rows[0]["start_load_seconds"] == "0.1234"
    assert [row["state_restore_seconds"] for row in rows] == ["0.004", "0.004"]
    assert "samples_ns" not in rows[0]
    mixed = BenchReport(ROWS, (StartRow(SETTING, 0.1, 0.0, 0, 1, 0.1, 1, None),))
    assert "state_nbytes" not in csv.DictReader(io.StringIO(as_csv(mixed))).fieldnames  # type: ignore[operator]


def test_profile_table() -> None:
    machine = Machine("AMD EPYC (znver5)", "avx512-vnni", 2, 75.0, 500.0, {"vnni": 1500.0})
    rows = (ProfileRow("ssm_in", "gemv Q8_0", 26, 0.012, 0.75, 60.0, 113.25, 0.8),)
    text = profile_markdown(Profile(BenchTest(0, 1), machine, 0.016, rows))
    assert "| ssm_in | gemv Q8_0 |    26 | 12 ms | 75.0% | 60.0 | 113.2 |      80% |" in text
    assert text.endswith(
        "tg1: 16 ms in operations. AMD EPYC (znver5), 2 threads: 75.0 GB/s read, 500 GFLOP/s f32, 1500 Gop/s int8.\n"
    )
    plain = Machine("M1", "plain", 1, 60.0, 100.0, {})
    assert "int8" not in profile_markdown(Profile(BenchTest(0, 1), plain, 0.016, rows))


def test_units() -> None:
    assert [size(n) for n in (512, 1 << 20, 1536 << 20, (1 << 30) - 1)] == [
        "512 B",
        "1.00 MiB",
        "1.50 GiB",
        "1024.00 MiB",
    ]
    assert [count(n) for n in (2_000_000, 999_999_999, 10**9)] == ["2.00 M", "1000.00 M", "1.00 B"]
    assert [duration(t) for t in (0.0, 5e-7, 0.00123, 0.1, 1.0, 123.4, 4321.0)] == [
        "0 us",
        "0.5 us",
        "1.23 ms",
        "100 ms",
        "1 s",
        "123 s",
        "4321 s",
    ]
