"""The memory that sequences need, and the longest context that fits: numbers by hand."""

from dataclasses import replace

import numpy as np
import pytest

from hybrid.infer.kernels.attention.kv import CACHE_TYPES, KV_TYPES
from hybrid.infer.memory import AttentionSpec, RecurrentSpec, Rotation, plan_memory
from hybrid.infer.memory.needs import (
    ENDLESS,
    LEAST_CONTEXT,
    LEAST_MARGIN,
    Room,
    SequenceNeeds,
    fitting_context,
    margin,
)
from hybrid.quant.ggml.errors import UsageError
from hybrid.quant.ggml.machine_memory import MachineMemory

MIB, GIB = 1 << 20, 1 << 30
TURNS = np.linspace(1, 0.1, 20)
SPECS = [
    AttentionSpec(0, 3, 40, Rotation(TURNS, neox=True)),
    AttentionSpec(1, 3, 40, Rotation(TURNS.copy(), neox=False)),
    AttentionSpec(2, 1, 64, Rotation(TURNS[:7], neox=True), window=32),
    RecurrentSpec(3, n_channel=10, d_conv=4, n_head=2, n_lane=5, depth=6),
]
PREFIXED = [replace(s, prefix=128) if isinstance(s, AttentionSpec) else s for s in SPECS]


@pytest.mark.parametrize(
    ("kind", "per_token"),
    [
        ("f32", 2 * (2 * 3 * 48 * 4) + 2 * 64 * 4),  # heads of 40 are padded to 48
        ("f16", 2 * (2 * 3 * 48 * 2) + 2 * 64 * 2),
        ("q8_0", 2 * (2 * 3 * (48 + 2 * 2)) + 2 * (64 + 2 * 2)),  # a scale in f16 for each 32 values
    ],
)
def test_by_hand(kind: str, per_token: int) -> None:
    needs = SequenceNeeds.of(SPECS, CACHE_TYPES[kind])
    state = 4 * (10 * 3 + 2 * 16 * 6)  # lanes are padded to 16
    assert needs == SequenceNeeds(per_token, state, 8 * (20 + 7))  # the first two layers share a table
    # 100 tokens take two pages of 64
    assert needs.nbytes(3, 100) == 3 * (2 * (64 * per_token + 8) + 2 * state) + 100 * 8 * 27
    assert SequenceNeeds.of([SPECS[3]], CACHE_TYPES[kind]) == SequenceNeeds(0, state, 0)
    # a prefix of all layers, which all sequences share
    before = SequenceNeeds.of(PREFIXED, CACHE_TYPES[kind])
    assert before.nbytes(3, 100) == needs.nbytes(3, 100) + 128 * per_token + state


@pytest.mark.parametrize("n_seq", [1, 9])
@pytest.mark.parametrize("room", [0, 1, 77_000, 10 * MIB, 3 * GIB + 1])
@pytest.mark.parametrize("specs", [SPECS, SPECS[:3], SPECS[3:], SPECS[2:3], PREFIXED])
def test_the_longest_is_what_just_fits(specs: list, room: int, n_seq: int) -> None:
    needs = SequenceNeeds.of(specs, CACHE_TYPES["f16"])
    n = needs.longest(n_seq, room)
    if n == ENDLESS:
        assert needs.per_token == 0
        return
    assert n == 0 or needs.nbytes(n_seq, n) <= room
    assert needs.nbytes(n_seq, n + 64) > room


@pytest.mark.parametrize("n_seq", [1, 4])
@pytest.mark.parametrize("kind", list(KV_TYPES))
def test_what_is_allocated(kind: str, n_seq: int) -> None:
    """The arrays of a memory without room for a cache equal the estimate, except rows for speculation."""
    needs = SequenceNeeds.of(SPECS, CACHE_TYPES[kind])
    memory = plan_memory(SPECS, n_seq, 1000, CACHE_TYPES[kind])
    kv = [*memory.attention.k.values(), *memory.attention.v.values(), memory.attention.table]
    rows = sum(array.nbytes for array in memory.recurrent.arrays())
    n_rows = memory.recurrent.pool.size
    assert rows == n_rows * needs.state
    assert sum(a.nbytes for a in kv) + rows * 2 * n_seq // n_rows == needs.nbytes(n_seq, 1000) - 1000 * 8 * 27


def room(available: int, *, weights: int = 0, working: int = 0, cache: int = 0, mappable: int = 1 << 62) -> Room:
    return Room(MachineMemory(available, available, mappable), weights, working, cache)


NEEDS = SequenceNeeds(per_token=1 << 14, state=1 << 20, per_position=512)


def test_what_is_left_for_sequences() -> None:
    assert margin(GIB) == LEAST_MARGIN == 128 * MIB and margin(8 * GIB) == GIB
    assert room(8 * GIB, weights=2 * GIB, working=GIB).of_sequences == 4 * GIB
    # the cache gets what it wants, or a quarter of the rest
    assert room(8 * GIB, weights=2 * GIB, working=GIB, cache=MIB).of_sequences == 4 * GIB - MIB
    assert room(8 * GIB, weights=2 * GIB, working=GIB, cache=9 * GIB).of_sequences == 3 * GIB
    assert room(8 * GIB, weights=9 * GIB, cache=9 * GIB).of_sequences < 0


def test_what_fits() -> None:
    assert fitting_context(131072, NEEDS, 1, room(8 * GIB)) == 131072
    n = fitting_context(131072, NEEDS, 9, room(8 * GIB))
    assert n % 1024 == 0 and 131072 > n > 40960
    assert NEEDS.nbytes(9, n) <= 7 * GIB < NEEDS.nbytes(9, n + 1024 + 64)
    # a short one in any case, but not more than the model was trained for
    assert fitting_context(131072, NEEDS, 9, room(GIB, weights=4 * GIB)) == LEAST_CONTEXT
    assert fitting_context(2048, NEEDS, 9, room(GIB, weights=4 * GIB)) == 2048
    assert fitting_context(1, NEEDS, 9, room(0)) == 1


def test_states_alone_fit_at_any_length() -> None:
    needs = SequenceNeeds(0, 1 << 20, 0)
    assert fitting_context(1 << 20, needs, 1, room(GIB)) == 1 << 20
    assert fitting_context(2**31 - 1, needs, 256, room(GIB, weights=100 * GIB)) == LEAST_CONTEXT


def test_what_can_be_mapped_counts() -> None:
    """Half of the mappable memory is for other mappings."""
    n = fitting_context(131072, NEEDS, 1, room(8 * GIB, mappable=GIB))
    assert NEEDS.nbytes(1, n) <= GIB // 2 < NEEDS.nbytes(1, n + 1024 + 64)
    assert fitting_context(131072, NEEDS, 1, room(8 * GIB, mappable=80 * MIB)) == LEAST_CONTEXT
    assert fitting_context(131072, NEEDS, 1, room(8 * GIB, mappable=20 * MIB)) < 1280
    assert fitting_context(131072, NEEDS, 1, room(8 * GIB, mappable=0)) == 1


def test_room_for_the_cache_is_mapped_twice() -> None:
    """As pages and as rows: under a limit on mappings, the cache gets less."""
    kind = CACHE_TYPES["f16"]
    plenty, little = (
        plan_memory(SPECS, 1, 512, kind, 64 * MIB, MachineMemory(GIB, GIB, mappable)) for mappable in (GIB, 20 * MIB)
    )
    pages = [memory.attention.pool.size - 8 for memory in (plenty, little)]
    page = SequenceNeeds.of(SPECS, kind).per_token * 64
    assert pages[0] == 64 * MIB // page
    assert 3 * MIB // page < pages[1] <= 5 * MIB // page
    none = plan_memory(SPECS, 1, 512, kind, 64 * MIB, MachineMemory(GIB, GIB, 0))
    assert none.attention.pool.size == 8


def test_more_than_the_machine_has() -> None:
    with pytest.raises(UsageError, match=r"2 sequences of 1000000 tokens need .* GiB, this machine has 1\.0 GiB"):
        plan_memory(SPECS, 2, 1_000_000, CACHE_TYPES["f32"], 0, MachineMemory(GIB, GIB))
