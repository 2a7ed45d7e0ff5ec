"""Whether the tests' kernel has memory policies and allows setting them (containers often do not), and the policies of
its threads."""

import time
from pathlib import Path

import pytest

from hybrid.quant.ggml.errors import UsageError
from hybrid.quant.ggml.numa import usable_nodes

try:
    NODES = usable_nodes()
except UsageError:
    NODES = ()
needs_kernel = pytest.mark.skipif(not NODES, reason="no policies of memory here")


def policy_at(address: int) -> str:
    """The policy of the mapping at this address, as in 'default' or 'interleave:0-1'."""
    lines = [line.split() for line in Path("/proc/self/numa_maps").read_text().splitlines()]
    _, policy = max((int(begin, 16), policy) for begin, policy, *_ in lines if int(begin, 16) <= address)
    return policy


def thread_policy(native_id: int | None) -> str:
    """The policy of most of a thread's mappings, as in 'default' or 'interleave:0-1'. While it is 'default', as in a
    thread that has just started, looks again for a while."""
    found = ""
    for _ in range(100):
        lines = Path(f"/proc/self/task/{native_id}/numa_maps").read_text().splitlines()
        policies = [line.split()[1] for line in lines]
        found = max(set(policies), key=policies.count)
        if found != "default":
            break
        time.sleep(0.001)
    return found
