"""The log reports ignored fields once per client."""

from hybrid.cli.serve import warning_log
from hybrid.cli.serve.warning_log import WarningLog


def test_each_client_is_told_once() -> None:
    told = WarningLog()
    assert told.new("a", ["x", "y"]) == ["x", "y"]
    assert told.new("a", ["y", "z"]) == ["z"]
    assert told.new("b", ["x"]) == ["x"] and told.new(None, ["x"]) == ["x"]
    assert told.new("a", ["x", "y", "z"]) == []


def test_what_is_remembered_is_bounded() -> None:
    told = WarningLog()
    assert told.new("first", ["x"]) == ["x"]
    for i in range(warning_log.MOST - 1):
        told.new(i, ["x"])
    assert told.new("first", ["x"]) == [], "still known, and now the latest"
    for i in range(warning_log.MOST):
        told.new(i, ["y"])
    assert told.new("first", ["x"]) == ["x"]
