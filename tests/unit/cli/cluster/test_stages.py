"""Stages on workers of a cluster: facts known before any stage is opened."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("distributed")
from hybrid.cli.cluster.stages import ClusterLine
from hybrid.infer.memory.needs import MachineMemory
from hybrid.quant.ggml.errors import UsageError

GIB = 1 << 30
HERE = ("one machine", MachineMemory(32 * GIB, 16 * GIB, None))
ELSEWHERE = ("another", MachineMemory(32 * GIB, 24 * GIB, None))


def line(n: int, answers: dict[str, Any]) -> ClusterLine:
    """A line of workers that give these answers when asked for their memory."""
    client = SimpleNamespace(
        status="running", loop=SimpleNamespace(asyncio_loop=None), run=lambda _function, on_error: answers
    )
    connection = SimpleNamespace(client=client, labels=lambda: dict.fromkeys(answers, ""))
    return ClusterLine(cast(Any, connection), cast(Any, None), n, print)


def test_workers_of_one_machine_share_its_memory() -> None:
    found = line(3, {"a": HERE, "b": HERE, "c": ELSEWHERE}).machines()
    assert [(one.total // GIB, one.available // GIB) for one in found] == [(32, 24), (16, 8), (16, 8)]


@pytest.mark.parametrize("n", [0, 2])
def test_a_worker_that_goes_while_it_is_asked(n: int) -> None:
    """Dask returns its error instead of an answer. AUTO takes the remaining workers."""
    gone = line(n, {"a": HERE, "b": OSError("timed out")})
    if not n:
        assert len(gone.machines()) == 1
        return
    with pytest.raises(UsageError) as error:
        gone.machines()
    assert str(error.value) == "2 stages need as many workers, there are 1. Start more of them."
