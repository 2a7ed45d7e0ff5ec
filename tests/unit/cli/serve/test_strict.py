"""Body fields outside the schema are ignored, reported, and limited."""

from typing import Any, Literal

import pytest
from pydantic import ValidationError

from hybrid.cli.serve.openai.chat import ChatRequest
from hybrid.cli.serve.strict import UNKNOWN, Ignored, PassedOver, Strict, other_than

HELLO = {"role": "user", "content": "Hello"}


class Leaf(Strict):
    x: int = 0
    quiet: Ignored


class Seen(PassedOver):
    type: Literal["seen"]


class Other(PassedOver):
    type: other_than("leaf")  # type: ignore[valid-type]


class Root(Strict):
    leaf: Leaf | None = None
    leaves: list[Leaf | Seen] | None = None
    lists: list[list[Leaf]] | None = None


def warnings(**body: Any) -> list[str]:
    return Root.model_validate(body).warnings


def test_what_is_passed_over_is_told_by_its_place() -> None:
    assert warnings(leaf={"x": 1, "quiet": {"y": 2}}) == []
    told = warnings(
        foo=1, leaf={"bar": False}, leaves=[{"baz": 0}, {"baz": 1}, {"type": "seen", "z": 1}], lists=[[{"deep": "x"}]]
    )
    assert told == [
        f"foo is ignored: {UNKNOWN}",
        f"leaf.bar is ignored: {UNKNOWN}",
        f"leaves[].baz is ignored: {UNKNOWN}",
        "leaves[] is ignored: this server does nothing with seen",
        f"lists[][].deep is ignored: {UNKNOWN}",
    ]


def test_what_says_nothing_is_not_told() -> None:
    assert warnings(a=None, b=[], c={}, d="") == []
    assert len(warnings(a=0, b=[[]], c={"x": None}, d=" ", e=False)) == 5


def test_values_of_known_fields_are_checked() -> None:
    for wrong in ({"leaf": {"x": "1"}}, {"leaf": 1}, {"leaves": [{"type": "leaf", "x": 1.5}]}):
        with pytest.raises(ValidationError):
            Root.model_validate(wrong)
    assert Other.model_validate({"type": "tree", "x": "1"}).warnings == [
        " is ignored: this server does nothing with tree"
    ]
    with pytest.raises(ValidationError, match="other fields"):
        Other.model_validate({"type": "leaf"})


def test_names_are_cut_and_cleaned() -> None:
    long, rude = "y" * 10_000, "\x1b[31m\n"
    first, second = warnings(**{long: 1, rude: 1})
    assert first == f"{'y' * 28}...{'y' * 29} is ignored: {UNKNOWN}"
    assert second == f"\\x1b[31m\\n is ignored: {UNKNOWN}"


def test_a_body_of_unknown_fields_is_bounded() -> None:
    many = {f"field_{i}": [i] for i in range(16_000)}
    body = Root.model_validate({**many, "leaves": [many] * 50})
    assert len(body.warnings) == 21 and body.warnings[-1].startswith("more fields are ignored")
    assert body.leaves is not None and all(len(leaf.model_extra or ()) < 30 for leaf in (body, *body.leaves))
    assert body.warnings is body.warnings, "found once"


def test_names_of_ours_are_no_ones_elses() -> None:
    """A client's field never replaces a method or a property."""
    names = ("warnings", "unheeded", "most", "stops", "model_fields", "model_extra", "__dict__", "__class__")
    body = ChatRequest.model_validate({"messages": [HELLO], **dict.fromkeys(names, 5)})
    assert body.most is None and body.stops == [] and len(body.warnings) == len(names)
