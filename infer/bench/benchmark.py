"""Measures the speed of a model as llama-bench does, and more.

    pp512           a prompt of 512 tokens in one go, logits of the last one
    tg128           128 tokens one by one, logits of each
    pp512+tg128     both in a row, one rate for all tokens
    tg128 x8        128 tokens of each of 8 sequences, which decode together; one rate for the tokens of all
    ... @ d4096     with 4096 tokens in the memory already, which are neither timed nor computed: the memory is filled
                    with random numbers, since its speed does not depend on them

A rate is the mean of the repetitions' tokens per second; the spread is their standard deviation (n - 1). Kernels are
compiled by the load and by the warm-up runs; that time is reported separately and never in a rate.
"""

import platform
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING

import numpy as np

from hybrid.quant.ggml.errors import Remedy, UsageError

from ..loading.options import DEFAULT_UBATCH, LoadOptions, Precision

if TYPE_CHECKING:
    from .. import LoadedModel
    from ..model import Sequence as TokenSequence

GUESS_DEPTH = 512  # default depth of generation with guesses (guess_tests.py)


@dataclass(frozen=True)
class BenchTest:
    """A prompt of `n_prompt` tokens, then `n_gen` generated ones, after `n_depth` that are in the memory already.

    `n_parallel` sequences go through the layers together.
    """

    n_prompt: int
    n_gen: int
    n_depth: int = 0
    n_parallel: int = 1

    @property
    def name(self) -> str:
        parts = [f"pp{self.n_prompt}"] if self.n_prompt else []
        parts += [f"tg{self.n_gen}"] if self.n_gen else []
        together = f" x{self.n_parallel}" if self.n_parallel > 1 else ""
        return "+".join(parts) + together + (f" @ d{self.n_depth}" if self.n_depth else "")

    @property
    def n_tokens(self) -> int:
        """Timed tokens of all sequences."""
        return self.n_parallel * (self.n_prompt + self.n_gen)

    @property
    def n_ctx(self) -> int:
        """Tokens that one sequence must hold."""
        return self.n_depth + self.n_prompt + self.n_gen


@dataclass(frozen=True)
class BenchOptions:
    """The measurements: every combination of the lists; in each, every prompt, generation and pair."""

    prompts: Sequence[int] = (512,)
    gens: Sequence[int] = (128,)
    pairs: Sequence[tuple[int, int]] = ()
    depths: Sequence[int] = (0,)
    parallel: Sequence[int] = (1,)
    """Sequences that generate together; prompts and pairs always have one."""
    threads: Sequence[int] = (0,)
    """0: one per physical core."""
    ubatches: Sequence[int] = (DEFAULT_UBATCH,)
    kv_types: Sequence[str] = ()
    """How keys and values are stored: f32, f16, q8_0. Empty: the default of `precision`."""
    repetitions: int = 5
    warmup: bool = True
    precision: Precision = LoadOptions.precision
    state: bool = True
    """Also measure saving, restoring and copying a sequence."""
    start: bool = True
    """Also measure the start (StartRow)."""
    seed: int = 0

    def tests(self) -> list[BenchTest]:
        """All tests, in llama-bench's order. Raises UsageError when there is nothing to do."""
        tests: list[BenchTest] = []
        for depth in self.depths:
            tests += [BenchTest(n, 0, depth) for n in self.prompts if n]
            tests += [BenchTest(0, n, depth, together) for n in self.gens if n for together in self.parallel]
            tests += [BenchTest(p, g, depth) for p, g in self.pairs if p + g]
        if not tests:
            raise UsageError(
                "nothing to measure: no prompt, no tokens to generate.", remedy=Remedy.SOMETHING_TO_MEASURE
            )
        if self.repetitions < 1:
            raise UsageError(f"repetitions = {self.repetitions}: at least 1 repetition is needed.")
        return tests


@dataclass(frozen=True)
class Setting:
    """A model, and how it was run."""

    path: str
    model: str
    """Architecture and file type, as in 'jamba Q8_0'."""
    nbytes: int
    n_params: int
    n_threads: int
    n_ubatch: int
    precision: str
    kv_type: str
    numa: str | None = None
    """How memory is spread over NUMA nodes; None: not."""


@dataclass(frozen=True)
class SpeedRow:
    """The result of one test. seconds: wall time of each repetition."""

    setting: Setting
    test: BenchTest
    seconds: tuple[float, ...]
    measured_at: str
    """UTC, RFC 3339."""

    @property
    def rates(self) -> list[float]:
        return [self.test.n_tokens / s for s in self.seconds]

    @property
    def tokens_per_second(self) -> float:
        return fmean(self.rates)

    @property
    def spread(self) -> float:
        return stdev(self.rates) if len(self.seconds) > 1 else 0.0


@dataclass(frozen=True)
class StateTimes:
    """Times to write a sequence of `n_tokens` to a file, read it back, and copy it in memory. Medians, in seconds."""

    n_tokens: int
    nbytes: int
    save_seconds: float
    restore_seconds: float
    copy_seconds: float


@dataclass(frozen=True)
class StartRow:
    """Costs of loading the model."""

    setting: Setting
    load_seconds: float
    """To open, check and map the file and plan the memory, without compiling."""
    compile_seconds: float
    """To make machine code or load it from the disk cache, on load and later."""
    n_compiled: int
    """Kernels that the disk cache did not have."""
    first_token_prompt: int
    first_token_seconds: float
    """From a prompt of `first_token_prompt` tokens to the most likely next one; the model is loaded and warm."""
    peak_rss: int
    """Peak of resident bytes, with pages of the model file."""
    state: StateTimes | None


@dataclass(frozen=True)
class BenchReport:
    """The output of `hybrid bench`: the tests, and the costs of starting the program."""

    rows: tuple[SpeedRow, ...]
    starts: tuple[StartRow, ...]


def benchmark(
    load: Callable[..., "LoadedModel"],
    options: BenchOptions,
    *,
    progress: Callable[[str, int, int], None] | None = None,
    on_row: Callable[[SpeedRow], None] | None = None,
) -> BenchReport:
    """Run all tests of `options` on the model that `load` returns.

    load(n_ctx=, n_seq_max=, n_ubatch=, n_threads=, precision=, kv_type=): `LoadedModel.load` with path and all other
    options bound. progress(what, done, total) counts runs and warm-ups. on_row gets each row when it is measured.
    """
    tests = options.tests()
    kv_types: list[str | None] = [*options.kv_types] or [None]
    settings = list(product(kv_types, options.ubatches, options.threads))
    steps = Steps(progress, len(settings) * len(tests) * (options.repetitions + options.warmup))
    rows: list[SpeedRow] = []
    starts: list[StartRow] = []
    for kv_type, n_ubatch, n_threads in settings:
        _reset_peak_rss()
        start = time.perf_counter()
        model = load(
            n_ctx=max(test.n_ctx for test in tests),
            n_seq_max=max(2 if options.state else 1, *(test.n_parallel for test in tests)),
            n_ubatch=n_ubatch,
            n_threads=n_threads,
            precision=options.precision,
            kv_type=kv_type,
        )
        load_seconds = max(0.0, time.perf_counter() - start - model.compile_seconds)
        try:
            bench = _Bench(model, n_ubatch, options, steps)
            for test in tests:
                rows.append(bench.run(test))
                if on_row is not None:
                    on_row(rows[-1])
            if options.start:
                starts.append(bench.start(load_seconds, max([n for n in options.prompts if n], default=1)))
        finally:
            model.close()
    return BenchReport(tuple(rows), tuple(starts))


def setting_of(model: "LoadedModel", n_ubatch: int) -> Setting:
    """The Setting of a loaded model."""
    what = f"{model.arch} {model.file_type}"
    return Setting(
        str(model.path), what, model.n_bytes, model.n_params, model.n_threads, n_ubatch, model.precision,
        model.kv_type, model.numa,
    )  # fmt: skip


class Steps:
    """Counts the runs for a progress callback."""

    def __init__(self, progress: Callable[[str, int, int], None] | None, total: int):
        self._progress, self._done, self._total = progress, 0, total

    def next(self, what: str) -> None:
        if self._progress is not None:
            self._progress(what, self._done, self._total)
        self._done += 1


class _Bench:
    """The tests on one loaded model."""

    def __init__(self, model: "LoadedModel", n_ubatch: int, options: BenchOptions, steps: Steps):
        self._model, self._options, self._steps = model, options, steps
        self._rng = np.random.default_rng(options.seed)
        self._setting = setting_of(model, n_ubatch)

    def run(self, test: BenchTest) -> SpeedRow:
        seqs = [self._model.sequence() for _ in range(test.n_parallel)]
        try:
            if self._options.warmup:
                self._steps.next(f"{test.name} warm-up")
                # one generated token compiles and touches everything that the others need
                self._time(seqs, replace(test, n_gen=min(test.n_gen, 1)))
            seconds = []
            for i in range(self._options.repetitions):
                self._steps.next(f"{test.name} {i + 1}/{self._options.repetitions}")
                seconds.append(self._time(seqs, test))
        finally:
            for seq in seqs:
                seq.close()
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return SpeedRow(self._setting, test, tuple(seconds), now)

    def _time(self, seqs: "Sequence[TokenSequence]", test: BenchTest) -> float:
        """Wall seconds of one run, after n_depth tokens."""
        prompt, gen = self._tokens(test.n_prompt), self._tokens(test.n_gen)
        for seq in seqs:
            if test.n_depth:
                seq.fill(self._tokens(test.n_depth))
            else:
                seq.clear()
        if len(seqs) > 1:
            return self._time_together(seqs, prompt, test.n_gen)
        seq = seqs[0]
        start = time.perf_counter()
        if prompt:
            seq.prefill(prompt)
        for token in gen:
            seq.decode(token)
        return time.perf_counter() - start

    def _time_together(self, seqs: "Sequence[TokenSequence]", prompt: list[int], n_gen: int) -> float:
        """`_time` with several sequences: the prompt in each of them, then one token of each at a time."""
        from ..model import Work

        steps = [self._tokens(len(seqs)) for _ in range(n_gen)]
        start = time.perf_counter()
        if prompt:
            self._model.eval([Work(seq, prompt) for seq in seqs])
        for tokens in steps:
            self._model.eval([Work(seq, (token,)) for seq, token in zip(seqs, tokens, strict=True)])
        return time.perf_counter() - start

    def _tokens(self, n: int) -> list[int]:
        tokens: list[int] = self._rng.integers(self._model.n_vocab, size=n).tolist()
        return tokens

    def start(self, load_seconds: float, n_prompt: int) -> StartRow:
        model = self._model
        seq = model.sequence()
        try:
            times = []
            for _ in range(min(3, self._options.repetitions)):
                seq.clear()
                prompt = self._tokens(n_prompt)
                start = time.perf_counter()
                int(seq.prefill(prompt).argmax())
                times.append(time.perf_counter() - start)
            state = self._state(seq) if self._options.state else None
        finally:
            seq.close()
        return StartRow(
            self._setting, load_seconds, model.compile_seconds, model.n_compiled, n_prompt, median(times), peak_rss(),
            state,
        )  # fmt: skip

    def _state(self, seq: "TokenSequence") -> StateTimes:
        saves, restores, copies = [], [], []
        with tempfile.TemporaryDirectory(prefix="hybrid-bench-") as folder:
            path = Path(folder) / "bench.state"
            for _ in range(3):
                start = time.perf_counter()
                seq.save(path)
                saved = time.perf_counter()
                other = self._model.restore(path)
                restored = time.perf_counter()
                other.close()
                saves.append(saved - start)
                restores.append(restored - saved)
                start = time.perf_counter()
                other = seq.copy()
                copies.append(time.perf_counter() - start)
                other.close()
            nbytes = path.stat().st_size
        return StateTimes(len(seq.tokens), nbytes, median(saves), median(restores), median(copies))


def peak_rss() -> int:
    """The peak resident size of this process in bytes, since its start or the last reset."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    # macOS counts bytes here, other systems KiB
    unit = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _reset_peak_rss() -> bool:
    """Reset the peak resident size, if the system can (Linux); returns whether it did."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True
