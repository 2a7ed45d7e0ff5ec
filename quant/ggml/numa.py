"""NUMA: machines in which every processor has memory of its own, a node, and reads other nodes more slowly.

A page is put where the policy of the thread says that first touches it, or reads it from disk. By default that is the
thread's own node, so everything that one thread loads must be fetched from there by all others. When interleaved, pages
are distributed over the nodes in turn. A thread inherits the policy of the thread that starts it.

Uses Linux's system calls by number, set_mempolicy(2), get_mempolicy(2), mbind(2) and move_pages(2), without libnuma.
"""

import ctypes
import errno
import os
import platform
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from mmap import PAGESIZE
from pathlib import Path

import numpy as np

from .cpus import as_list, parse_cpus
from .errors import UsageError

_NUMBERS = {
    "x86_64": {"mbind": 237, "set_mempolicy": 238, "get_mempolicy": 239, "move_pages": 279},
    "aarch64": {"mbind": 235, "get_mempolicy": 236, "set_mempolicy": 237, "move_pages": 239},
}
INTERLEAVE = 3  # MPOL_INTERLEAVE
_MEMS_ALLOWED = 4  # MPOL_F_MEMS_ALLOWED: instead of a policy, the nodes that this process may have memory of
_MOVE = 2  # MPOL_MF_MOVE: pages that no other process has mapped
_MASK_BITS = 1024  # of a set of nodes; no kernel has more nodes
_MASK_ARGUMENT = _MASK_BITS + 1  # the kernel takes one off


@dataclass(frozen=True)
class Policy:
    """Placement of a thread's new pages: a mode of set_mempolicy(2) with its flags, and nodes."""

    mode: int = 0
    nodes: tuple[int, ...] = ()


# --- nodes ---
def machine_nodes(root: Path = Path("/")) -> tuple[int, ...]:
    """The nodes of this machine that have memory; empty if the system does not tell."""
    try:
        text = (root / "sys/devices/system/node/has_memory").read_text().strip()
        return parse_cpus(text, "has_memory")  # nodes are listed as processors are
    except (OSError, UsageError):
        return ()


def usable_nodes() -> tuple[int, ...]:
    """The nodes whose memory this process may use. UsageError: the system lacks these calls, or forbids them."""
    mask = _mask(())
    _policy_call("get_mempolicy", 0, ctypes.addressof(mask), _MASK_ARGUMENT, 0, _MEMS_ALLOWED)
    return _nodes(mask)


def nodes_to_spread_over(wanted: bool) -> tuple[tuple[int, ...], str]:
    """The nodes to spread over, and a line for the user. Not wanted: no nodes and no line. Only one node is usable: no
    nodes,
    and a line with the reason.

    UsageError as in `usable_nodes`.
    """
    if not wanted:
        return (), ""
    usable = usable_nodes()
    return (usable, "") if len(usable) > 1 else ((), _one_node(usable, machine_nodes()))


def _one_node(usable: Sequence[int], machine: Sequence[int]) -> str:
    if len(machine) > 1:
        return (
            f"numa: this process may use memory of node {as_list(usable)} alone, the machine has nodes "
            f"{as_list(machine)}. Nothing is spread; numactl, a container or a control group confines it."
        )
    return f"numa: memory is one node here ({as_list(usable)}), there is nothing to spread."


# --- policies ---
def policy() -> Policy:
    """The policy of the calling thread."""
    mask, mode = _mask(()), ctypes.c_int()
    _policy_call("get_mempolicy", ctypes.addressof(mode), ctypes.addressof(mask), _MASK_ARGUMENT, 0, 0)
    return Policy(mode.value, _nodes(mask))


def set_policy(wanted: Policy) -> None:
    """Sets the policy of the calling thread, and of threads that it starts later."""
    mask = _mask(wanted.nodes)
    address = ctypes.addressof(mask) if wanted.nodes else 0
    _policy_call("set_mempolicy", wanted.mode, address, _MASK_ARGUMENT if wanted.nodes else 0)


@contextmanager
def interleaved(nodes: Sequence[int]) -> Iterator[None]:
    """While open, pages that the calling thread touches first are distributed over these nodes in turn. None: no
    change."""
    if not nodes:
        yield
        return
    before, around = policy(), _nodes_here()
    try:
        set_policy(Policy(INTERLEAVE, tuple(nodes)))
        _here.nodes = tuple(nodes)
        yield
    finally:
        _here.nodes = around
        set_policy(before)


def bind(address: int, nbytes: int) -> None:
    """Inside `interleaved`: distributes these pages over its nodes in turn, whoever touches them first, and whenever.
    Otherwise does nothing. Only for untouched pages of a mapping of its own."""
    if nodes := _nodes_here():
        mask = _mask(nodes)
        _policy_call("mbind", address, nbytes, INTERLEAVE, ctypes.addressof(mask), _MASK_ARGUMENT, 0)


_here = threading.local()  # nodes: set by the innermost `interleaved` of a thread


def _nodes_here() -> tuple[int, ...]:
    nodes: tuple[int, ...] = getattr(_here, "nodes", ())
    return nodes


# --- pages ---
def pages(address: int, nbytes: int) -> np.ndarray:
    """Addresses of the pages of these bytes, u64."""
    return np.arange(address // PAGESIZE * PAGESIZE, address + nbytes, PAGESIZE, dtype=np.uint64)


def homes(found: np.ndarray) -> np.ndarray:
    """The node of each page, i32; negative if this process has not touched it, or the system does not tell.

    OSError: the system lacks this call, or forbids it.
    """
    found, status = np.ascontiguousarray(found, np.uint64), np.full(len(found), -errno.ENOENT, np.int32)
    _call("move_pages", 0, len(found), found.ctypes.data, 0, status.ctypes.data, 0)
    return status


def move(found: np.ndarray, nodes: np.ndarray) -> None:
    """Moves each page to its node if possible; check with `homes`. OSError as there.

    Pages that other processes have mapped also, and pages that do not fit the node, stay.
    """
    found, to = np.ascontiguousarray(found, np.uint64), np.ascontiguousarray(nodes, np.int32)
    status = np.zeros(len(found), np.int32)
    _call("move_pages", 0, len(found), found.ctypes.data, to.ctypes.data, status.ctypes.data, _MOVE)


# --- system calls ---
def _mask(nodes: Sequence[int]) -> "ctypes.Array[ctypes.c_uint64]":
    words = (ctypes.c_uint64 * (_MASK_BITS // 64))()
    for node in nodes:
        words[node // 64] |= 1 << node % 64
    return words


def _nodes(mask: "ctypes.Array[ctypes.c_uint64]") -> tuple[int, ...]:
    return tuple(node for node in range(_MASK_BITS) if mask[node // 64] >> node % 64 & 1)


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def _syscall(number: int, *arguments: int) -> int:
    """The kernel's result; -errno on failure."""
    result: int = _libc().syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    return -ctypes.get_errno() if result == -1 else result


def _call(name: str, *arguments: int) -> None:
    numbers = _NUMBERS.get(platform.machine()) if sys.platform == "linux" else None
    result = _syscall(numbers[name], *arguments) if numbers and sys.maxsize >> 32 else -errno.ENOSYS
    if result < 0:
        raise OSError(-result, os.strerror(-result), name)


def _policy_call(name: str, *arguments: int) -> None:
    try:
        _call(name, *arguments)
    except OSError as error:
        raise UsageError(_advice(name, error)) from None


def _advice(name: str, error: OSError) -> str:
    if sys.platform != "linux":
        return f"numa: {sys.platform} has no calls that spread memory over nodes. Leave it out."
    if platform.machine() not in _NUMBERS:
        return (
            f"numa: the numbers of Linux's system calls are known for {' and '.join(_NUMBERS)}, this is "
            f"{platform.machine()}. Start the program under numactl, interleaved, instead."
        )
    if error.errno == errno.ENOSYS:
        return f"numa: this kernel is built without NUMA (it has no {name}), so all memory is one node. Leave it out."
    if error.errno == errno.EPERM:
        return (
            f"numa: this process may not say where its memory lies ({name}: {error.strerror}), as in containers. Give "
            "the container the capability SYS_NICE, or leave it out."
        )
    return f"numa: {name} fails: {error.strerror}. Leave it out, or start the program under numactl, interleaved."
