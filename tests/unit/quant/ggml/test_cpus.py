"""Lists of processors in taskset's syntax and in the given order; one-line errors."""

import os

import pytest

from hybrid.quant.ggml.cpus import as_list, check_usable, parse_cpus
from hybrid.quant.ggml.errors import UsageError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", (0,)),
        ("3,1", (3, 1)),
        ("0-3,16", (0, 1, 2, 3, 16)),
        ("8-9, 0-1", (8, 9, 0, 1)),
        ("0-6:2,7", (0, 2, 4, 6, 7)),
        ("5-5", (5,)),
    ],
)
def test_lists(text: str, expected: tuple[int, ...]) -> None:
    assert parse_cpus(text, "--cpus") == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "^--cpus : '' is none. Expected numbers of processors and ranges of them, as in 0-7,16.$"),
        ("0,", "^--cpus 0,: '' is none"),
        ("3-1", "^--cpus 3-1: '3-1' is none"),
        ("0-7:0", "'0-7:0' is none"),
        ("-1", "'-1' is none"),
        ("all", "'all' is none"),
        ("\u0663", "is none"),
        ("0x3", "'0x3' is none"),
        ("0-99999", "'0-99999' is none"),
        ("0-3,2", "^--cpus 0-3,2: processor 2 is named twice. Each is for one thread.$"),
        ("0-600", "^--cpus 0-600: 601 processors, one for each of at most 512 threads.$"),
    ],
)
def test_what_is_no_list(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_cpus(text, "--cpus")


def test_written_as_read() -> None:
    assert as_list({7, 0, 1, 2, 16, 15}) == "0-2,7,15-16"
    assert parse_cpus(as_list(range(5)), "") == (0, 1, 2, 3, 4)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system has no affinity")
def test_processors_that_this_process_may_use() -> None:
    allowed = os.sched_getaffinity(0)
    check_usable([])
    check_usable(sorted(allowed))
    with pytest.raises(UsageError) as caught:
        check_usable([min(allowed), 65535])
    assert str(caught.value) == (
        f"cpus: this process may not use processor 65535, or it does not exist. It may use {as_list(allowed)}."
    )


def test_a_system_without_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    monkeypatch.setattr("sys.platform", "darwin")
    check_usable([])
    with pytest.raises(UsageError, match=r"^cpus: darwin has no call that pins a thread to a processor\. Leave"):
        check_usable([0])
