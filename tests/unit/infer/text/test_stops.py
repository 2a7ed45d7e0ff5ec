"""Work that ends when nobody waits for it any more."""

import pytest

from hybrid.infer.text.stops import Gone, GoneError, look, stopped_by, telling


def test_look() -> None:
    gone = Gone()
    look()
    with stopped_by(gone):
        look()
        gone.set()
        with pytest.raises(GoneError):
            look()
        with stopped_by(None):
            look()
    look()


def test_who_is_told() -> None:
    gone, told = Gone(), list[str]()
    with stopped_by(gone), telling(lambda: told.append("a")):
        with telling(lambda: told.append("b")):
            assert not told
        gone.set()
        assert told == ["a"], "b no longer works"
        with telling(lambda: told.append("c")):
            assert told == ["a", "c"], "it is too late already"
    gone.set()
    assert told == ["a", "c"]


def test_other_conditions_tell_nobody() -> None:
    with stopped_by(lambda: True), telling(lambda: pytest.fail("nobody tells")), pytest.raises(GoneError):
        look()
    with telling(lambda: pytest.fail("nobody tells")):
        look()
