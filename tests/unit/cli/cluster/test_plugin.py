"""Our plugin on a Dask worker."""

from distributed import Client, LocalCluster

from hybrid.cli.cluster.plugin import Fits
from hybrid.cli.cluster.prompt_worker import BEGINNING, Beginning, begin
from hybrid.infer.stages.worker_fit import WorkerFacts

SIZE = 5 * Beginning.BYTES_PER_SECOND


def test_a_beginning_that_moves_says_nothing_about_connections() -> None:
    """Otherwise later transfers would seem free: Dask takes a prefix for 500 MB, and it moves in a millisecond."""
    facts = WorkerFacts.here()
    how = {"threads_per_worker": 1, "processes": False, "dashboard_address": None, "memory_limit": 0}
    with LocalCluster(n_workers=2, **how) as cluster, Client(cluster) as client:
        here, there = (worker.address for worker in cluster.workers.values())
        client.register_plugin(Fits(facts.version, facts, None, 1), name="fits")
        for i in range(2):
            beginning = client.submit(begin, SIZE, key=f"{BEGINNING}-{i}", workers=[here], pure=False)
            moved = client.submit(lambda b: isinstance(b, Beginning), beginning, workers=[there], pure=False)
            assert moved.result(timeout=30)
        thief = next(worker for worker in cluster.workers.values() if worker.address == there)
        assert [log["total"] for log in thief.transfer_incoming_log] > [SIZE] * 2
        assert thief.bandwidth == Beginning.BYTES_PER_SECOND
