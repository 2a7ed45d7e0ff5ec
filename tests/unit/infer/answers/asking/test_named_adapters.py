"""Names of adapters, and where an activated one begins."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hybrid.infer.answers.asking.named_adapters import (
    NamedAdapters,
    UnknownAdapterError,
    last_occurrence,
    of_prompt,
)
from hybrid.infer.engine.applied import NONE, Applied
from hybrid.quant.ggml.errors import UsageError


def runner(*files: str, invocations: tuple[tuple[int, ...], ...] = ()) -> Any:
    adapters = [
        SimpleNamespace(path=Path(file), invocation=invocation)
        for file, invocation in zip(files, invocations or [()] * len(files), strict=True)
    ]
    return SimpleNamespace(file=SimpleNamespace(adapters=adapters))


def test_files_without_a_name_get_different_ones() -> None:
    made = NamedAdapters(runner("x/a.gguf", "y/a.gguf", "b.gguf", "a.gguf"), ["", "", "", "a-3"], base="b")
    assert made.names == ["a", "a-2", "b-2", "a-3"]
    assert [made.number(asked) for asked in ("a-2", 3, "a-3")] == [1, 3, 3]
    for names, says in (
        (["c", "c"], "two adapters are called c"),
        (["b", ""], "an adapter and the model are called b"),
    ):
        with pytest.raises(UsageError, match=says):
            NamedAdapters(runner("a.gguf", "d.gguf"), names, base="b")


@pytest.mark.parametrize("asked", ["summery", 2, -1, True])
def test_unknown_ones_are_named_with_those_there(asked: int | str) -> None:
    made = NamedAdapters(runner("summary.gguf", "code.gguf"))
    if asked is True:  # JSON's true is no number of an adapter, but Python's is 1
        assert made.number(asked) == 1
        return
    near = "summary$" if asked == "summery" else "summary, code"
    with pytest.raises(UnknownAdapterError, match=f"there is no adapter {asked}: there are {near}"):
        made.number(asked)


def test_an_activated_one_begins_at_its_last_invocation() -> None:
    made = NamedAdapters(runner("a.gguf", "b.gguf", invocations=((), (5, 6))))
    chosen = made.chosen({1: 0.5})
    assert of_prompt(made.runner, chosen, [1, 5, 6, 2, 5, 6, 5]) == Applied.of({1: 0.5}, 4)
    assert of_prompt(made.runner, chosen, [1, 5, 6, 2]) == Applied.of({1: 0.5}, 1)
    assert of_prompt(made.runner, chosen, [6, 5]) == of_prompt(made.runner, NONE, [5, 6]) == NONE
    with pytest.raises(UsageError, match="is chosen alone"):
        made.chosen({0: 1.0, 1: 1.0})
    plain = made.chosen({0: 1.0, 1: 0.0})
    assert of_prompt(made.runner, plain, [5, 6]) == plain == Applied.of({0: 1.0})


@pytest.mark.parametrize(
    ("ids", "of", "at"),
    [
        ([1, 1, 1, 2], [1, 1, 2], 1),
        ([1, 2], [1, 2, 3], None),
        ([], [1], None),
        ([3, 3], [3], 1),
        ([1, 2, 1], [1, 2], 0),
    ],
)
def test_last_occurrence(ids: list[int], of: list[int], at: int | None) -> None:
    assert last_occurrence(ids, of) == at
