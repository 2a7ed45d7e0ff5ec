"""A failing side path loses only its own result; it is reported once and switched off after three faults."""

import logging
from collections.abc import Iterator

import pytest

from hybrid.infer import Interrupted, faults
from hybrid.infer.faults import MOST_FAULTS, SidePath, fault_text, is_fault
from hybrid.quant.ggml.errors import UsageError

pytestmark = pytest.mark.faults


class PanicException(BaseException):
    """The exception that pyo3 raises when Rust panics."""


@pytest.fixture
def path() -> Iterator[SidePath]:
    yield SidePath("a test")
    del SidePath.all["a test"]


@pytest.fixture
def told() -> Iterator[list[str]]:
    said: list[str] = []
    before = faults.listen(lambda message, error: said.append(message))
    yield said
    faults.listen(before)


def broken() -> str:
    raise ValueError("something broke")


def test_what_it_returns(path: SidePath, told: list[str]) -> None:
    assert path.run(lambda: "yes", lambda: "no") == "yes"
    assert [path.run(broken, lambda: "no") for _ in range(MOST_FAULTS)] == ["no"] * MOST_FAULTS
    assert path.is_off and path.run(lambda: "yes", lambda: "no") == "no"
    assert told == [
        "a fault in a test: answers go on without it",
        "3 faults in a test: it is switched off until the program starts again",
    ]


def test_a_panic_is_a_fault_and_a_stop_is_none(path: SidePath, told: list[str]) -> None:
    def panics() -> None:
        raise PanicException("called unwrap on None")

    def stops() -> None:
        raise Interrupted

    path.do(panics)
    assert path.n_faults == len(told) == 1
    for error in (Interrupted, KeyboardInterrupt, SystemExit):
        with pytest.raises(error):
            path.do(lambda error=error: (_ for _ in ()).throw(error()))
    with pytest.raises(Interrupted):
        path.do(stops)
    assert path.n_faults == 1
    assert is_fault(MemoryError()) and not is_fault(UsageError("a file"))


def test_an_error_of_the_input_is_none(path: SidePath, told: list[str]) -> None:
    """Otherwise a client whose input a template refuses would switch the path off for everybody."""

    def refuses() -> str:
        raise UsageError("it does not take that")

    assert [path.run(refuses, lambda: "no") for _ in range(5)] == ["no"] * 5
    assert not path.is_off and not told


def test_a_listener_that_fails(path: SidePath) -> None:
    def fails(message: str, error: BaseException) -> None:
        raise OSError("the disk is full")

    before = faults.listen(fails)
    assert path.run(broken, lambda: "no") == "no"
    faults.listen(before)


def test_who_hears_of_it_otherwise(path: SidePath, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        path.do(broken)
    (record,) = caplog.records
    assert record.name == "hybrid" and "test_faults.py:" in record.getMessage()
    assert record.getMessage().startswith("a fault in a test: answers go on without it: ValueError: something broke (")


def test_the_text_of_a_fault() -> None:
    assert fault_text(ValueError("no")) == "ValueError: no"
