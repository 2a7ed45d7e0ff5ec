"""NUMA nodes: which exist, temporary policies, and messages on systems without them.

Tests that call the kernel also do so on machines with one node, with policies for several.
"""

import ctypes
import errno
import mmap
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numa_kernel import NODES, needs_kernel

from hybrid.quant.ggml import numa
from hybrid.quant.ggml.errors import UsageError
from hybrid.quant.ggml.numa import Policy, interleaved, machine_nodes, nodes_to_spread_over, policy, set_policy

BIND, PREFERRED = 2, 1  # MPOL_BIND, MPOL_PREFERRED


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0\n", (0,)), ("0-1\n", (0, 1)), ("0,2-3\n", (0, 2, 3)), ("0-7:2\n", (0, 2, 4, 6)), ("\n", ()), ("?", ())],
)
def test_nodes_of_the_machine(tmp_path: Path, text: str, expected: tuple[int, ...]) -> None:
    assert machine_nodes(tmp_path) == (), "missing"
    listed = tmp_path / "sys/devices/system/node/has_memory"
    listed.parent.mkdir(parents=True)
    listed.write_text(text)
    assert machine_nodes(tmp_path) == expected


@needs_kernel
def test_usable_nodes_are_nodes_of_the_machine() -> None:
    assert NODES
    assert set(NODES) <= set(machine_nodes() or NODES)


@needs_kernel
@pytest.mark.parametrize("before", [Policy(), Policy(BIND, NODES[:1]), Policy(PREFERRED, NODES[:1])])
def test_a_policy_holds_within_and_in_threads_started_there_and_the_one_before_comes_back(before: Policy) -> None:
    wanted = Policy(numa.INTERLEAVE, NODES)
    inherited: list[Policy] = []
    was = policy()
    try:
        set_policy(before)
        with interleaved(()):
            assert policy() == before, "no nodes, no change"
        with pytest.raises(KeyError), interleaved(NODES):
            assert policy() == wanted
            thread = threading.Thread(target=lambda: inherited.append(policy()))
            thread.start()
            thread.join()
            raise KeyError
        assert inherited == [wanted]
        assert policy() == before
    finally:
        set_policy(was)


@needs_kernel
def test_pages_have_a_home_once_they_are_touched() -> None:
    region = mmap.mmap(-1, 5 * mmap.PAGESIZE)
    view = np.ndarray(len(region), np.uint8, region)
    view[[0, 3 * mmap.PAGESIZE]] = 1
    found = numa.pages(view.ctypes.data, len(region))
    assert len(numa.pages(view.ctypes.data + 1, mmap.PAGESIZE)) == 2
    homes = numa.homes(found)
    assert [int(home) in NODES for home in homes] == [True, False, False, True, False]
    assert homes[1] == -errno.ENOENT
    numa.move(found[::3], np.full(2, NODES[-1]))
    assert numa.homes(found[::3]).tolist() == [NODES[-1]] * 2
    view[0] += 1
    assert view[0] == 2


def fails(code: int) -> Callable[..., int]:
    return lambda number, *arguments: -code


FAILURES = [
    (errno.ENOSYS, r"^numa: this kernel is built without NUMA \(it has no get_mempolicy\), .*\. Leave it out\.$"),
    (
        errno.EPERM,
        r"^numa: this process may not .* \(get_mempolicy: Operation not permitted\).*the capability SYS_NICE, or",
    ),
    (errno.EINVAL, r"^numa: get_mempolicy fails: Invalid argument\. Leave it out, or .* under numactl, interleaved\.$"),
]


@pytest.mark.parametrize(("code", "says"), FAILURES)
def test_what_the_kernel_refuses(monkeypatch: pytest.MonkeyPatch, code: int, says: str) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(numa, "_syscall", fails(code))
    assert nodes_to_spread_over(False) == ((), ""), "the kernel is not asked"
    with pytest.raises(UsageError, match=says):
        nodes_to_spread_over(True)
    with pytest.raises(UsageError, match=says), interleaved((0, 1)):
        pytest.fail("the policy is not in effect")


def test_other_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numa, "_syscall", lambda *given: pytest.fail("calls it"))
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    monkeypatch.setattr("sys.platform", "linux")
    with pytest.raises(UsageError, match=r"known for x86_64 and aarch64, this is riscv64\. Start .* under numactl"):
        nodes_to_spread_over(True)
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(UsageError, match=r"^numa: darwin has no calls that spread memory over nodes\. Leave it out\.$"):
        nodes_to_spread_over(True)


@pytest.mark.parametrize(("machine", "number"), [("x86_64", 239), ("aarch64", 236)])
def test_calls_have_the_numbers_of_the_processor(monkeypatch: pytest.MonkeyPatch, machine: str, number: int) -> None:
    """The answer is a set of nodes: here 0, 2 and 65."""

    def answers(called: int, mode: int, mask: int, bits: int, address: int, flags: int) -> int:
        assert (called, mode, address, flags) == (number, 0, 0, 4)
        assert bits > 1024
        words = (ctypes.c_uint64 * 16).from_address(mask)
        words[0], words[1] = 0b101, 0b10
        return 0

    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(numa, "_syscall", answers)
    assert nodes_to_spread_over(True) == ((0, 2, 65), "")


@pytest.mark.parametrize(
    ("usable", "machine", "note"),
    [
        ((0,), (0,), "numa: memory is one node here (0), there is nothing to spread."),
        ((0,), (), "numa: memory is one node here (0), there is nothing to spread."),
        ((3,), (0, 1, 3), "numa: this process may use memory of node 3 alone, the machine has nodes 0-1,3. Nothing is"),
    ],
)
def test_one_node_is_a_note(
    monkeypatch: pytest.MonkeyPatch, usable: tuple[int, ...], machine: tuple[int, ...], note: str
) -> None:
    monkeypatch.setattr(numa, "usable_nodes", lambda: usable)
    monkeypatch.setattr(numa, "machine_nodes", lambda: machine)
    nodes, said = nodes_to_spread_over(True)
    assert nodes == () and said.startswith(note) and "\n" not in said


def test_the_kernel_is_there_where_it_should_be() -> None:
    """On Linux with nodes in /sys, no fault of ours may skip these tests."""
    if sys.platform == "linux" and len(machine_nodes()) > 0:
        try:
            numa.usable_nodes()
        except UsageError as error:
            assert "may not say" in str(error)
