"""A benchmark's calls, its timed parts and its results, on a model with its own clock."""

import subprocess
import sys
from typing import Any

import pytest
from fake_model import Clock, FakeModel

from hybrid.infer.bench import benchmark as module
from hybrid.infer.bench.benchmark import BenchOptions, BenchReport, BenchTest, benchmark
from hybrid.quant.ggml.errors import Remedy, UsageError


class Loader:
    """Model.load that remembers its arguments."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.settings: list[dict[str, Any]] = []
        self.models: list[FakeModel] = []
        self.clock = Clock()
        monkeypatch.setattr(module, "time", self.clock)

    def __call__(self, **settings: Any) -> FakeModel:
        model = FakeModel(n_ctx=settings["n_ctx"], n_seq_max=settings["n_seq_max"])
        model.n_threads = settings["n_threads"] or 2
        self.settings.append(settings)
        model.clock = self.clock
        self.models.append(model)
        return model


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Loader:
    return Loader(monkeypatch)


def run(load: Any, **options: Any) -> BenchReport:
    return benchmark(load, BenchOptions(**options))


def test_names() -> None:
    assert BenchTest(512, 0).name == "pp512"
    assert BenchTest(0, 128).name == "tg128"
    assert BenchTest(512, 128).name == "pp512+tg128"
    assert BenchTest(0, 128, 4096).name == "tg128 @ d4096"
    assert BenchTest(0, 128, 4096, 8).name == "tg128 x8 @ d4096"


def test_tests_are_in_llama_benchs_order() -> None:
    options = BenchOptions(prompts=(64, 0, 32), gens=(8,), pairs=((16, 4),), depths=(0, 100))
    names = ["pp64", "pp32", "tg8", "pp16+tg4"]
    assert [test.name for test in options.tests()] == names + [f"{name} @ d100" for name in names]


def test_nothing_to_do() -> None:
    with pytest.raises(UsageError, match="nothing to measure") as refused:
        BenchOptions(prompts=(0,), gens=()).tests()
    assert refused.value.remedy is Remedy.SOMETHING_TO_MEASURE
    with pytest.raises(UsageError, match="repetitions = 0: at least 1"):
        BenchOptions(repetitions=0).tests()


def test_rates(load: Loader) -> None:
    report = run(load, prompts=(20,), gens=(4,), pairs=((10, 2),), repetitions=3, state=False)
    by_name = {row.test.name: row for row in report.rows}
    # the fake takes 1 ms for a token of a prompt and 10 ms for a generated one
    assert by_name["pp20"].tokens_per_second == pytest.approx(1000)
    assert by_name["tg4"].tokens_per_second == pytest.approx(100)
    assert by_name["pp10+tg2"].tokens_per_second == pytest.approx(12 / 0.03)
    assert all(len(row.seconds) == 3 for row in report.rows)
    assert by_name["tg4"].spread == pytest.approx(0, abs=1e-9)
    assert load.models[0].closed


def test_spread_is_of_the_rates() -> None:
    row = module.SpeedRow(None, BenchTest(0, 8), (1.0, 2.0, 4.0), "")  # type: ignore[arg-type]
    assert row.rates == [8, 4, 2]
    assert row.tokens_per_second == pytest.approx(14 / 3)
    assert row.spread == pytest.approx(3.0550504633)
    assert module.SpeedRow(None, BenchTest(0, 8), (1.0,), "").spread == 0  # type: ignore[arg-type]


def test_warm_up_runs_the_prompt_and_one_token(load: Loader) -> None:
    run(load, prompts=(6,), gens=(3,), repetitions=1, state=False)
    calls = load.models[0].calls
    assert calls[:2] == [("prefill", 0, 6)] * 2
    assert calls[2:6] == [("decode", 0, 1), ("decode", 0, 1), ("decode", 1, 1), ("decode", 2, 1)]


def test_without_warm_up(load: Loader) -> None:
    run(load, prompts=(6,), gens=(), repetitions=2, warmup=False, state=False)
    assert load.models[0].calls[:2] == [("prefill", 0, 6)] * 2
    assert len(load.models[0].calls) == 2 + 2, "two repetitions, and two for the time to first token"


def test_depth_is_filled_without_computing_and_not_timed(load: Loader) -> None:
    report = run(load, prompts=(), gens=(2,), depths=(30,), repetitions=3, state=False)
    calls = load.models[0].calls
    assert calls[:2] == [("fill", 0, 30), ("decode", 30, 1)], "the warm-up"
    again = [("decode", 30, 1), ("decode", 31, 1)]
    assert calls[2:] == [("fill", 31, 30), *again] + [("fill", 32, 30), *again] * 2 + [("prefill", 0, 1)] * 3
    assert report.rows[0].tokens_per_second == pytest.approx(100)
    assert load.settings[0]["n_ctx"] == 32
    assert load.settings[0]["n_seq_max"] == 1


def test_sequences_that_generate_together(load: Loader) -> None:
    report = run(load, prompts=(5,), gens=(3,), parallel=(1, 4), depths=(7,), repetitions=2, state=False)
    assert [row.test.name for row in report.rows] == ["pp5 @ d7", "tg3 @ d7", "tg3 x4 @ d7"]
    # the fake takes 2 ms for a step of all four
    assert report.rows[2].tokens_per_second == pytest.approx(4 / 0.002)
    assert load.models[0].batches == [4] * (1 + 3 + 3), "a warm-up of one token, two runs of three"
    assert load.settings[0]["n_ctx"] == 12
    assert load.settings[0]["n_seq_max"] == 4


def test_one_load_per_setting(load: Loader) -> None:
    report = run(load, prompts=(4,), gens=(), threads=(1, 2), ubatches=(64, 128), repetitions=1, state=False)
    assert [(s["n_ubatch"], s["n_threads"]) for s in load.settings] == [(64, 1), (64, 2), (128, 1), (128, 2)]
    assert [(row.setting.n_ubatch, row.setting.n_threads) for row in report.rows] == [
        (64, 1),
        (64, 2),
        (128, 1),
        (128, 2),
    ]
    assert len(report.starts) == 4
    assert {s["n_seq_max"] for s in load.settings} == {1}
    assert {s["kv_type"] for s in load.settings} == {None}, "the model's default"


def test_kv_types(load: Loader) -> None:
    run(load, prompts=(4,), gens=(), kv_types=("f32", "q8_0"), repetitions=1, state=False)
    assert [s["kv_type"] for s in load.settings] == ["f32", "q8_0"]


def test_costs_of_a_start(load: Loader) -> None:
    report = run(load, prompts=(20, 40), gens=(4,), repetitions=1)
    start = report.starts[0]
    assert start.compile_seconds == 0.25
    assert start.n_compiled == 17
    assert start.first_token_prompt == 40
    assert start.first_token_seconds == pytest.approx(0.04)
    assert start.peak_rss > 1 << 20
    assert start.state is not None
    assert start.state.n_tokens == 40
    assert start.state.nbytes == 160
    assert start.state.save_seconds == pytest.approx(0.02)
    assert start.state.restore_seconds == pytest.approx(0.004)
    assert start.state.copy_seconds == pytest.approx(0.0005)


def test_without_the_costs_of_a_start(load: Loader) -> None:
    report = run(load, prompts=(20,), gens=(), repetitions=1, warmup=False, state=False, start=False)
    assert report.starts == ()
    assert load.models[0].calls == [("prefill", 0, 20)]
    assert load.models[0].closed


def test_compile_time_is_no_load_time(load: Loader) -> None:
    def slow(**settings: Any) -> FakeModel:
        load.clock.now += 2.0
        return load(**settings)

    report = run(slow, prompts=(4,), gens=(), repetitions=1, state=False)
    assert report.starts[0].load_seconds == pytest.approx(1.75)


def test_progress_and_rows_as_they_come(load: Loader) -> None:
    seen: list[tuple[str, int, int]] = []
    rows: list[str] = []
    benchmark(
        load,  # type: ignore[arg-type]
        BenchOptions(prompts=(4,), gens=(2,), repetitions=2, state=False),
        progress=lambda *args: seen.append(args),
        on_row=lambda row: rows.append(row.test.name),
    )
    assert seen == [
        ("pp4 warm-up", 0, 6),
        ("pp4 1/2", 1, 6),
        ("pp4 2/2", 2, 6),
        ("tg2 warm-up", 3, 6),
        ("tg2 1/2", 4, 6),
        ("tg2 2/2", 5, 6),
    ]
    assert rows == ["pp4", "tg2"]


def test_the_model_is_closed_after_an_error(load: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fake_model.FakeSequence.prefill", fail)
    with pytest.raises(KeyboardInterrupt):
        run(load, prompts=(4,), gens=(), repetitions=1)
    assert load.models[0].closed


def test_peak_memory_grows_with_what_is_touched() -> None:
    """Runs in its own process: this one may have had a higher peak, or give memory back meanwhile."""
    code = (
        "from hybrid.infer.bench.benchmark import peak_rss; before = peak_rss(); "
        "data = bytearray(64 << 20); data[::4096] = b'x' * len(data[::4096]); print(peak_rss() - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True)
    assert int(done.stdout) > 32 << 20
