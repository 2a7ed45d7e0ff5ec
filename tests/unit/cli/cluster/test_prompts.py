"""Answers from workers while Dask misbehaves."""

import io
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("distributed")
from distributed import Future, LocalCluster

from hybrid.cli.cluster import prompt_worker
from hybrid.cli.cluster.connection import ClusterConnection, connected
from hybrid.cli.cluster.prompt_worker import Answered
from hybrid.cli.cluster.prompts import ClusterBatch
from hybrid.cli.options.cluster_options import ClusterAddress
from hybrid.infer.answers.prompt_files.prompt_files import PromptLine

N = 120


class StubBatch:
    """Every three consecutive prompts have a common prefix."""

    n_samples, max_tokens = 1, 20

    def ids(self, prompt: PromptLine) -> list[int]:
        return [*range(100 + prompt.index // 3 * 40, 140 + prompt.index // 3 * 40), prompt.index]

    def key(self, prompt: PromptLine, _sample: int) -> str:
        return str(prompt.index)


def slow_answer(_key: str, _number: int, line: str, *_more: Any) -> Answered:
    time.sleep(0.02)
    return Answered(line, (0,) * 6)


@contextmanager
def stub_workers(memory_limit: str | int = 0) -> Iterator[ClusterConnection]:
    """Two workers in this process."""
    how: dict[str, Any] = {"threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with (
        LocalCluster(n_workers=2, host="127.0.0.1", protocol="tcp://", memory_limit=memory_limit, **how) as cluster,
        connected(ClusterAddress("address", cluster.scheduler_address, cluster.scheduler_address)) as connection,
    ):
        yield connection


@pytest.mark.exhaustive
def test_workers_with_a_limit_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask refuses a task larger than a worker's memory: the size it is told for prefixes is smaller."""
    monkeypatch.setattr(prompt_worker, "answer", slow_answer)
    prompts, out, notes = [PromptLine(i, "", None, line=f"line {i}") for i in range(N)], io.StringIO(), list[str]()
    with stub_workers("8GB") as connection:
        assert 0 < connection.memory <= 8e9
        ClusterBatch(connection, StubBatch(), "stub", notes.append).run(prompts, out)  # type: ignore[arg-type]
    assert out.getvalue().splitlines() == [prompt.line for prompt in prompts] and not notes


@pytest.mark.exhaustive
def test_what_dask_has_forgotten_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask has cancelled answers on a cluster of 100 workers that came and went, while its scheduler was running."""
    monkeypatch.setattr(prompt_worker, "answer", slow_answer)
    prompts, out, notes = [PromptLine(i, "", None, line=f"line {i}") for i in range(N)], io.StringIO(), list[str]()
    with stub_workers() as connection:
        client, batch = connection.client, ClusterBatch(connection, StubBatch(), "stub", notes.append)  # type: ignore[arg-type]

        def progress(done: int, _of: int) -> None:
            if done in (10, 40):
                client.cancel([Future(key, client) for key in list(client.futures)], force=True)

        batch.run(prompts, out, progress)  # type: ignore[arg-type]
    assert out.getvalue().splitlines() == [prompt.line for prompt in prompts] and not notes
