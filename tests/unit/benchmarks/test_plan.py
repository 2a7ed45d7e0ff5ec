"""The tests in each set, and the selection by --only."""

from plan import FULL, SETS, Plan, groups, may_be_wanted, wanted

from hybrid.infer.bench.benchmark import BenchTest
from hybrid.infer.bench.shapes import SHAPES, find_type


def names(plan: Plan, kind: str) -> list[list[str]]:
    return [[test.name for test in group] for group in groups(plan, kind)]


def test_sets_name_what_there_is() -> None:
    for plan in SETS.values():
        assert set(plan.shapes) <= set(SHAPES)
        for kind in (*plan.types, *plan.depth_types, *plan.parallel_types):
            assert find_type(kind).name == kind


def test_groups() -> None:
    plan = Plan((), (), prompts=(32, 2048), gens=(8,), depths=(0, 64), parallel=(1, 4), depth_types=("Q8_0",))
    assert names(plan, "Q8_0") == [["pp32", "tg8"], ["pp2048"], ["tg8 x4"], ["pp512 @ d64", "tg8 @ d64"]]
    assert names(plan, "F32") == [["pp32", "tg8"], ["pp2048"], ["tg8 x4"]]


def test_one_process_measures_one_depth() -> None:
    for kind in FULL.types:
        for group in groups(FULL, kind):
            assert len({test.n_depth for test in group}) == 1
            assert len({test.n_parallel == 1 for test in group}) == 1


def test_only() -> None:
    test = BenchTest(0, 32, 4096, 8)
    assert wanted([], "llama-1b", "Q4_0", test)
    for text in ("llama-1b", "Q4* tg32", "batch depth", "x8", "d4096 generation", "llama-*"):
        assert wanted([text], "llama-1b", "Q4_0", test), text
    for text in ("llama", "Q4_K_M", "tg32 prompt", "x1", "jamba-3b tg32"):
        assert not wanted([text], "llama-1b", "Q4_0", test), text
    assert wanted(["jamba-3b", "Q4_0"], "llama-1b", "Q4_0", test), "one of several is enough"
    assert not wanted(["batch"], "m", "Q4_0", BenchTest(32, 0))
    assert wanted(["prompt"], "m", "Q4_0", BenchTest(32, 0))


def test_a_file_of_which_nothing_is_wanted() -> None:
    assert may_be_wanted(["pp512 Q8_0"], "jamba-3b", "Q8_0", FULL)
    assert not may_be_wanted(["pp512 Q8_0"], "jamba-3b", "F32", FULL)
    assert not may_be_wanted(["depth"], "jamba-3b", "F32", FULL)
