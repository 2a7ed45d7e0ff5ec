"""The measurements: the sets of `make bench` and `make bench-full`, and the selection of parts by --only."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from hybrid.infer.bench.benchmark import BenchTest
from hybrid.quant.ggml.errors import UsageError


@dataclass(frozen=True)
class Plan:
    """Shapes, types, and their tests. Depths and batches take long: they may be limited to some types."""

    shapes: Sequence[str]
    types: Sequence[str]
    prompts: Sequence[int] = (512,)
    gens: Sequence[int] = (32,)
    depths: Sequence[int] = ()
    parallel: Sequence[int] = ()
    rounds: int = 3
    depth_types: Sequence[str] = ()
    """Empty: all."""
    parallel_types: Sequence[str] = ()


QUICK = Plan(("mamba-130m", "llama-1b"), ("Q8_0", "Q4_0", "Q4_K_M"), prompts=(32, 512), parallel=(8,))
FULL = Plan(
    ("jamba-3b", "llama-1b", "granite-h-tiny", "mamba-130m", "mamba-2.8b"),
    ("Q8_0", "Q4_0", "Q4_K_M", "Q6_K", "BF16", "F16", "F32"),
    prompts=(32, 128, 512, 2048),
    depths=(4096, 16384, 65536),
    parallel=(2, 4, 8, 16, 32),
    depth_types=("Q8_0",),
    parallel_types=("Q8_0", "Q4_0"),
)
SETS = {"quick": QUICK, "full": FULL}
DEPTH_PROMPT = 512
LONG_PROMPT = 1024
"""Prompts from so many tokens on are measured by processes of their own: a round that is disturbed costs less."""


def groups(plan: Plan, kind: str) -> Iterator[list[BenchTest]]:
    """The tests of a file of this type, grouped by the process that measures them."""
    short = [BenchTest(n, 0) for n in plan.prompts if 0 < n < LONG_PROMPT]
    yield short + [BenchTest(0, n) for n in plan.gens if n]
    for n in plan.prompts:
        if n >= LONG_PROMPT:
            yield [BenchTest(n, 0)]
    together = [n for n in plan.parallel if n > 1]
    if together and kind in (plan.parallel_types or (kind,)):
        yield [BenchTest(0, max(plan.gens, default=32), 0, n) for n in together]
    for depth in plan.depths:
        if depth and kind in (plan.depth_types or (kind,)):
            prompt = [BenchTest(DEPTH_PROMPT, 0, depth)] if plan.prompts else []
            yield prompt + [BenchTest(0, n, depth) for n in plan.gens if n]


def words_of(model: str, kind: str, test: BenchTest) -> set[str]:
    """The words of a test for --only: model, type, test, and prompt, generation, depth or batch."""
    words = {model, kind, *test.name.replace("@", "").replace("+", " ").split()}
    words.add("prompt" if test.n_prompt else "generation")
    if test.n_depth:
        words.add("depth")
    if test.n_parallel > 1:
        words.add("batch")
    return words


def wanted(only: Iterable[str], model: str, kind: str, test: BenchTest) -> bool:
    """Whether all words of one of the --only texts are words of this test. Without texts everything is wanted.

    A word may be a pattern: `Q4*`.
    """
    words = words_of(model, kind, test)
    texts = list(only)
    return not texts or any(all(any(fnmatchcase(w, word) for w in words) for word in t.split()) for t in texts)


def may_be_wanted(only: Iterable[str], model: str, kind: str, plan: Plan) -> bool:
    return any(wanted(only, model, kind, test) for group in groups(plan, kind) for test in group)


def types(text: str) -> list[str]:
    """--type as a list. Raises UsageError if it is empty."""
    kinds = [kind for kind in text.split(",") if kind]
    if not kinds:
        raise UsageError("--type: no type given. Give some, as in Q8_0,Q4_K_M.")
    return kinds
