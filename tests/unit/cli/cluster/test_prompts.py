"""Answers over workers, where Dask itself does not behave."""

import io
import time
from typing import Any

import pytest

pytest.importorskip("distributed")
from distributed import Future, LocalCluster

from hybrid.cli.cluster import answering
from hybrid.cli.cluster.answering import Answered
from hybrid.cli.cluster.connection import connected
from hybrid.cli.cluster.prompts import ClusterBatch
from hybrid.cli.options.cluster import ClusterAddress
from hybrid.infer.answers.prompts.prompt_files import Prompt

N = 120


class StubBatch:
    """Three prompts after the other begin alike."""

    n_samples, max_tokens = 1, 20

    def ids(self, prompt: Prompt) -> list[int]:
        return [*range(100 + prompt.index // 3 * 40, 140 + prompt.index // 3 * 40), prompt.index]

    def key(self, prompt: Prompt, _sample: int) -> str:
        return str(prompt.index)


def slow_answer(_key: str, _number: int, line: str, *_more: Any) -> Answered:
    time.sleep(0.02)
    return Answered(line, (0,) * 6)


def test_what_dask_has_forgotten_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has cancelled answers of a cluster of 100 workers that came and went, while its scheduler was there."""
    monkeypatch.setattr(answering, "answer", slow_answer)
    prompts, out, notes = [Prompt(i, "", None, line=f"line {i}") for i in range(N)], io.StringIO(), list[str]()
    how: dict[str, Any] = {"threads_per_worker": 1, "processes": False, "dashboard_address": None, "memory_limit": 0}
    with (
        LocalCluster(n_workers=2, host="127.0.0.1", protocol="tcp://", **how) as cluster,
        connected(ClusterAddress("address", cluster.scheduler_address, cluster.scheduler_address)) as connection,
    ):
        client, batch = connection.client, ClusterBatch(connection, StubBatch(), "stub", notes.append)  # type: ignore[arg-type]

        def progress(done: int, _of: int) -> None:
            if done in (10, 40):
                client.cancel([Future(key, client) for key in list(client.futures)], force=True)

        batch.run(prompts, out, progress)  # type: ignore[arg-type]
    assert out.getvalue().splitlines() == [prompt.line for prompt in prompts] and not notes
