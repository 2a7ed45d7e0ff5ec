"""Results come in the order of the parts, whatever happens to workers.

Functions in functions are sent as a whole: workers do not have this file.
"""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed")
from distributed import Future

from hybrid.cli.cluster.connection import ClusterConnection, connected
from hybrid.cli.cluster.fetching import Fetching
from hybrid.cli.cluster.ordered import AHEAD, MOST_DEATHS, in_order
from hybrid.cli.options.cluster_options import ClusterAddress
from hybrid.quant.ggml.errors import ClusterError, FormatError, HybridError, Remedy, UsageError
from hybrid.quant.ggml.file_ranges import FileRange

pytestmark = [pytest.mark.exhaustive, pytest.mark.cluster]


@pytest.fixture(scope="module")
def connection() -> Iterator[ClusterConnection]:
    with connected(ClusterAddress("local", "local:2", n_workers=2)) as opened:
        yield opened


def test_processes_that_do_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_: object) -> None:
        raise RuntimeError("Cluster failed to start: no more processes")

    monkeypatch.setattr("hybrid.cli.cluster.connection.LocalCluster", broken)
    with (
        pytest.raises(
            ClusterError, match=r"^--cluster local:2: its processes did not start \(Cluster failed .*Try fewer"
        ),
        connected(ClusterAddress("local", "local:2", n_workers=2)),
    ):
        raise AssertionError


def test_order(connection: ClusterConnection) -> None:
    def slow_at_first(part: int) -> int:
        import time

        time.sleep(0.3 if part == 0 else 0)
        return part * part

    assert list(in_order(connection, slow_at_first, range(40))) == [i * i for i in range(40)]
    assert list(in_order(connection, slow_at_first, [])) == []


def test_parts_are_taken_as_they_are_needed(connection: ClusterConnection) -> None:
    taken: list[int] = []

    def parts() -> Iterator[int]:
        for i in range(100_000):
            taken.append(i)
            yield i

    results = in_order(connection, abs, parts())
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    assert len(taken) <= 3 + 2 * AHEAD
    results.close()  # type: ignore[attr-defined]


def test_a_result_that_died_with_its_worker_is_computed_anew(connection: ClusterConnection) -> None:
    future = connection.client.submit(os.getpid, pure=False)
    first = future.result()
    fetching = Fetching(connection.client)
    fetching.add(future)
    held, deadline = connection.client.who_has([future]), time.monotonic() + 60
    os.kill(first, signal.SIGKILL)
    # its status would not do: the other worker may already have recomputed it
    while connection.client.who_has([future]) == held and time.monotonic() < deadline:
        time.sleep(0.01)
    [(over, again)] = fetching.next()
    assert over is future and again != first


def test_a_worker_killed_with_its_parts(connection: ClusterConnection, tmp_path: Path) -> None:
    folder = str(tmp_path)

    def kills_once(part: int) -> tuple[int, int]:
        import os
        import signal
        from pathlib import Path

        marker = Path(folder, str(part))
        if part % 7 == 2 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return part, os.getpid()

    results = list(in_order(connection, kills_once, range(20)))
    assert [part for part, _ in results] == list(range(20))
    assert len(list(tmp_path.iterdir())) == 3 and len({process for _, process in results}) > 1


@pytest.mark.slow
def test_a_part_that_kills_whoever_does_it(connection: ClusterConnection) -> None:
    def kills(part: int) -> int:
        import os
        import signal

        if part == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return part

    with pytest.raises(
        ClusterError, match=rf"^workers died {MOST_DEATHS + 1} times that were to do part \d of the work"
    ):
        list(in_order(connection, kills, range(3)))
    assert list(in_order(connection, abs, range(9))) == list(range(9)), "others come in their place"


def test_what_dask_has_forgotten_is_asked_for_again(connection: ClusterConnection) -> None:
    def slow(part: int) -> int:
        import time

        time.sleep(0.02)
        return part

    found, client = [], connection.client
    for result in in_order(connection, slow, range(30)):
        found.append(result)
        if result in (3, 11):
            client.cancel([Future(key, client) for key in list(client.futures)], force=True)
    assert found == list(range(30))


def test_errors_of_a_workers_files_name_it(connection: ClusterConnection, tmp_path: Path) -> None:
    missing = FileRange(tmp_path / ".x.tmp", tmp_path / "x", 0, 4)

    def fails(part: Any) -> None:
        if isinstance(part, Exception):
            raise part
        with part.opened(sync=True) as place:
            place.write(b"abcd")

    says = r"^worker \d \(tls://127\.0\.0\.1:\d+\): .*/x is not there\. Give a path that all workers share\.$"
    with pytest.raises(HybridError, match=says):
        list(in_order(connection, fails, [missing]))
    with pytest.raises(FormatError, match=r"^m\.gguf: its logits are not finite\.$"):
        list(in_order(connection, fails, [FormatError("m.gguf: its logits are not finite.")]))
    with pytest.raises(UsageError) as caught:
        list(in_order(connection, fails, [UsageError("so", remedy=Remedy.LARGER_CONTEXT, value=7)]))
    assert caught.value.remedy is Remedy.LARGER_CONTEXT and caught.value.value == "7"


def test_nothing_is_begun_after_an_error(connection: ClusterConnection, tmp_path: Path) -> None:
    folder = str(tmp_path)

    def touches(part: int) -> None:
        import time
        from pathlib import Path

        from hybrid.quant.ggml.errors import FormatError

        if part == 0:
            raise FormatError("no")
        time.sleep(0.2)
        Path(folder, str(part)).touch()

    with pytest.raises(FormatError, match=r"^no$"):
        list(in_order(connection, touches, range(50)))
    time.sleep(1)
    assert len(list(tmp_path.iterdir())) <= 4
