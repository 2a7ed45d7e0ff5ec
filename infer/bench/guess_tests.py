"""Compares generation with and without guessed tokens, from the same position of a text, in alternating order.

    tg128 @ d512    512 tokens of a text are read, which is not timed; then the most likely token is taken 128 times

Each repetition begins at another position of the text, so that nobody guesses from an earlier repetition's answer. Both
answers of a repetition must have the same tokens. Rates are medians, since other load on the machine may slow only one
of two runs; the ratio is the median of the repetitions' ratios. The warm-up is a whole repetition, after which the cost
of passes is known, as in a program that has answered before. Time for compiling kernels is in no rate.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from statistics import median, stdev
from typing import TYPE_CHECKING, NamedTuple

from hybrid.quant.ggml.errors import HybridError, UsageError

from ..answers.batch.generate import GenerationResult, generate
from ..answers.guessing.draft import Draft
from ..answers.sampling import Sampler, SamplingParams
from .benchmark import BenchOptions, BenchTest, Setting, Steps, setting_of

if TYPE_CHECKING:
    from .. import LoadedModel


@dataclass(frozen=True)
class GuessedText:
    """The text for the tests, and what guesses.

    spec   how guesses are made apart from the draft model, as the model was loaded: none, ngram, mtp
    draft  the draft model's file
    """

    text: str
    spec: str = "none"
    draft: Path | None = None


@dataclass(frozen=True)
class GuessRow:
    """One test. plain_seconds, seconds: wall time of each repetition without and with guesses."""

    setting: Setting
    test: BenchTest
    spec: str
    draft: str | None
    plain_seconds: tuple[float, ...]
    seconds: tuple[float, ...]
    passes: int
    """Passes of the model with guesses, in all repetitions."""
    guessed: int
    """Guessed tokens that were verified, in all repetitions."""
    accepted: int
    """Guessed tokens that were sampled, in all repetitions."""
    measured_at: str
    """UTC, RFC 3339."""

    @property
    def plain_rates(self) -> list[float]:
        return [self.test.n_gen / s for s in self.plain_seconds]

    @property
    def rates(self) -> list[float]:
        return [self.test.n_gen / s for s in self.seconds]

    @property
    def ratio(self) -> float:
        """Speedup by guesses."""
        return median(plain / s for plain, s in zip(self.plain_seconds, self.seconds, strict=True))

    @property
    def taken(self) -> float | None:
        """Share of the guessed tokens that were sampled; None: nothing was guessed, since it did not pay."""
        return self.accepted / self.guessed if self.guessed else None


def middle(rates: Sequence[float]) -> tuple[float, float]:
    """The median and the standard deviation (n - 1) of rates."""
    return median(rates), stdev(rates) if len(rates) > 1 else 0.0


def guess_tests(options: BenchOptions) -> list[BenchTest]:
    """Every generation at every depth. Raises UsageError when there is nothing to do."""
    asked = BenchOptions(prompts=(), gens=options.gens, depths=options.depths, repetitions=options.repetitions)
    return asked.tests()


def measure_guesses(
    load: Callable[..., "LoadedModel"],
    options: BenchOptions,
    guessed: GuessedText,
    *,
    progress: Callable[[str, int, int], None] | None = None,
) -> list[GuessRow]:
    """Measure the tests of `options` on the model that `load` returns, with its guessers.

    load, progress: as in `benchmark.benchmark`. Raises UsageError if the text is too short or there is nothing to do,
    HybridError if an answer differs with guesses.
    """
    tests = guess_tests(options)
    kv_types: list[str | None] = [*options.kv_types] or [None]
    settings = list(product(kv_types, options.ubatches, options.threads))
    steps = Steps(progress, len(settings) * len(tests) * (options.repetitions + options.warmup))
    rows: list[GuessRow] = []
    for kv_type, n_ubatch, n_threads in settings:
        model = load(
            n_ctx=max(test.n_ctx for test in tests) + 1,  # with room for the last sampled token
            n_seq_max=1,
            n_ubatch=n_ubatch,
            n_threads=n_threads,
            precision=options.precision,
            kv_type=kv_type,
        )
        try:
            ids = model.tokenizer.encode(guessed.text, add_special=False)
            setting = setting_of(model, n_ubatch)
            for test in tests:
                pairs = list(_pairs(model, test, ids, options, steps))
                rows.append(_row(setting, test, guessed, pairs))
        finally:
            model.close()
    return rows


class _Timed(NamedTuple):
    """An answer, and the seconds of its tokens after the first."""

    result: GenerationResult
    seconds: float


Pair = tuple[_Timed, _Timed]  # without guesses, with them


def _row(setting: Setting, test: BenchTest, guessed: GuessedText, pairs: Sequence[Pair]) -> GuessRow:
    results = [guesses.result for _, guesses in pairs]
    return GuessRow(
        setting,
        test,
        guessed.spec,
        None if guessed.draft is None else str(guessed.draft),
        tuple(plain.seconds for plain, _ in pairs),
        tuple(guesses.seconds for _, guesses in pairs),
        sum(result.passes for result in results),
        sum(result.guessed for result in results),
        sum(result.accepted for result in results),
        datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )


def _pairs(
    model: "LoadedModel", test: BenchTest, ids: Sequence[int], options: BenchOptions, steps: Steps
) -> Iterator[Pair]:
    """The timed repetitions. The run without guesses comes first in every second one."""
    places = list(prompts(ids, test.n_depth, options.repetitions + options.warmup, _beginning(model)))
    for i, prompt in enumerate(places):
        number = i + 1 - options.warmup
        steps.next(f"{test.name} {number}/{options.repetitions}" if number else f"{test.name} warm-up")
        said = {guess: _answer(model, prompt, test.n_gen, guess) for guess in (False, True)[:: -1 if i % 2 else 1]}
        plain, guesses = said[False], said[True]
        check_same(plain.result.ids, guesses.result.ids, model.path.name)
        if number:
            yield plain, guesses


def prompts(ids: Sequence[int], n: int, count: int, beginning: Sequence[int] = ()) -> Iterator[list[int]]:
    """`count` pieces of n tokens, which start with `beginning` and then tokens of `ids`, spread over the whole text.
    Raises UsageError if the text is shorter than a piece."""
    own = max(0, n - len(beginning))
    if len(ids) < own:
        raise UsageError(
            f"the text to go on from has {len(ids)} tokens, {own} are needed before the generated ones. "
            "Give a longer text, or a smaller depth."
        )
    for i in range(count):
        start = i * (len(ids) - own) // count
        yield [*beginning[:n], *ids[start : start + own]]


def _beginning(model: "LoadedModel") -> list[int]:
    """The special token that the vocabulary puts before every text, if any."""
    tokenizer = model.tokenizer
    return [tokenizer.bos] if tokenizer.add_bos and tokenizer.bos is not None else []


def check_same(plain: Sequence[int], guessed: Sequence[int], name: str) -> None:
    """Raise HybridError if guesses changed an answer, which they never may."""
    if list(plain) == list(guessed):
        return
    at = next((i for i, (a, b) in enumerate(zip(plain, guessed, strict=False)) if a != b), len(plain))
    raise HybridError(
        f"{name}: token {at + 1} of the answer differs with guesses. "
        "That is a bug of this program: please report it with the command."
    )


def _answer(model: "LoadedModel", prompt: list[int], n: int, speculate: bool) -> _Timed:
    """Generate n tokens after the prompt, and one more, which is sampled but not read."""
    # a new sequence, which a follower does not mistake for the earlier text
    seq = model.sequence()
    try:
        with _as_if_nobody_guessed(model, not speculate):
            sampler = Sampler(SamplingParams(temp=0), model.n_vocab)
            answer = generate(seq, prompt, sampler, max_tokens=n + 1, ignore_eos=True, speculate=speculate)
            compiled = 0.0
            for i, _ in enumerate(answer):
                compiled = compiled if i else _compile_seconds(model)  # after the prompt
            if answer.result.reason == "interrupt":
                raise KeyboardInterrupt
            return _Timed(answer.result, answer.result.gen_seconds - (_compile_seconds(model) - compiled))
    finally:
        seq.close()


def _compile_seconds(model: "LoadedModel") -> float:
    """Seconds of compiling so far, for the model and its draft model."""
    helper = model.runner.guessers.helper
    return model.compile_seconds + (helper.model.compile_seconds if isinstance(helper, Draft) else 0.0)


@contextmanager
def _as_if_nobody_guessed(model: "LoadedModel", nobody: bool) -> Iterator[None]:
    """Within this context, if `nobody`: switch off the model's own guessing head, which costs time in every pass."""
    runner, engine = model.runner, model.engine
    follower = runner.follower
    if follower is None or not nobody:
        yield
        return
    keeps = engine.keeps_states
    runner.follower, engine.keeps_states = None, False
    try:
        yield
    finally:
        runner.follower, engine.keeps_states = follower, keeps
