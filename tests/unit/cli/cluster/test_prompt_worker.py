"""Turns of a worker's tasks, and the prefixes it keeps."""

import sys
import threading

import pytest

from hybrid.cli.cluster.held_models import Holding
from hybrid.cli.cluster.prompt_worker import Beginning, SharedOrAlone
from hybrid.quant.ggml.errors import ClusterError


def test_one_alone_waits_for_the_others_and_they_for_it() -> None:
    turns, said, go = SharedOrAlone(), [], threading.Event()
    inside = threading.Semaphore(0)

    def work(name: str, alone: bool, wait: bool) -> None:
        with turns.turn(alone):
            said.append(f"+{name}")
            inside.release()
            if wait:
                go.wait(60)
            said.append(f"-{name}")

    first = [threading.Thread(target=work, args=(str(i), False, True)) for i in range(2)]
    for thread in first:
        thread.start()
    for _ in first:
        assert inside.acquire(timeout=60)
    alone = threading.Thread(target=work, args=("alone", True, False))
    alone.start()
    while not turns._alone_waiting:
        pass
    late = threading.Thread(target=work, args=("late", False, False))
    late.start()
    assert said == ["+0", "+1"] or said == ["+1", "+0"]
    go.set()
    for thread in (*first, alone, late):
        thread.join(60)
    assert said[-4:] == ["+alone", "-alone", "+late", "-late"]


def test_what_is_held_is_made_once_and_closed_by_the_last() -> None:
    held, closed, made = Holding(), [], []

    class Thing:
        def __init__(self, name: str) -> None:
            made.append(name)
            self.name = name

        def close(self) -> None:
            closed.append(self.name)

    held.use()
    held.use()
    for _ in range(2):
        held.thing("model", lambda: Thing("model"))
        held.thing("run", lambda: Thing("run"))
        held.thing("other", lambda: Thing("other"))
    assert made == ["model", "run", "other"]
    held.share("run", 5)
    assert held.shared("run") == 5
    held.forget("run")
    assert closed == ["run"]
    held.release()
    assert closed == ["run"]
    held.release()
    assert closed == ["run", "other", "model"], "what was made last goes first"


def test_nothing_is_made_for_those_who_have_gone() -> None:
    """Neither by a task that begins afterwards, nor by one in progress."""
    held, closed = Holding(), []

    class Thing:
        def close(self) -> None:
            closed.append(self)

    def make() -> Thing:
        held.release()
        return Thing()

    held.use()
    with pytest.raises(ClusterError, match="its client has ended"):
        held.thing("model", make)
    assert len(closed) == 1
    with pytest.raises(ClusterError, match="its client has ended"):
        held.thing("model", Thing)
    assert len(closed) == 1
    held.use()
    thing = held.thing("model", Thing)
    held.release()
    assert closed[1:] == [thing]


def test_a_beginning_weighs_what_dask_is_told() -> None:
    assert sys.getsizeof(Beginning(200_000_000)) - sys.getsizeof(Beginning(0)) == 200_000_000
