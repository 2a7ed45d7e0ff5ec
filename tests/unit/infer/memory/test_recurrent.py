"""Recurrent states: sizes, export without padding, rows and their owners."""

import numpy as np
import pytest
from reference.run_kernel import same_bits

from hybrid.infer.memory.recurrent import RecurrentMemory, RecurrentSpec
from hybrid.quant.ggml.errors import StateError

SPECS = [
    RecurrentSpec(0, 23, 4, 1, 19, 7),  # Mamba-1
    RecurrentSpec(2, 31, 3, 3, 20, 5),  # Mamba-2, delta rule: heads whose lanes are padded
    RecurrentSpec(3, 11, 3),  # a short convolution
]


def filled(n_slots: int = 3) -> RecurrentMemory:
    memory = RecurrentMemory(SPECS, n_slots)
    rng = np.random.default_rng(0)
    for slot in range(n_slots):
        arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in memory.shapes().items()}
        memory.put(slot, memory.pool.take())
        memory.load(memory.row[slot], arrays)
    return memory


def state(memory: RecurrentMemory, slot: int) -> list[bytes]:
    return [array[memory.row[slot]].tobytes() for array in memory.arrays()]


def test_shapes_and_sizes() -> None:
    memory = RecurrentMemory(SPECS, 2)
    assert memory.shapes() == {
        "blk.0.conv": (3, 23),
        "blk.0.ssm": (19, 7),
        "blk.2.conv": (2, 31),
        "blk.2.ssm": (60, 5),
        "blk.3.conv": (2, 11),
    }
    assert memory.ssm[2].shape == (4, 3, 2, 5, 16), "two rows for each sequence"
    assert 3 not in memory.ssm
    exported = sum(4 * int(np.prod(shape)) for shape in memory.shapes().values())
    assert memory.bytes_per_sequence == sum(s.nbytes for s in SPECS) == exported


def test_what_is_exported_can_be_loaded() -> None:
    memory, other = filled(), RecurrentMemory(SPECS, 1)
    arrays = dict(memory.export(memory.row[1]))
    assert {name: a.shape for name, a in arrays.items()} == memory.shapes()
    other.put(0, other.pool.take())
    other.load(other.row[0], arrays)
    assert state(other, 0) == state(memory, 1)
    assert all(same_bits(a, arrays[name]) for name, a in other.export(other.row[0]))


def test_a_shared_row_is_nobodys_own() -> None:
    memory = filled()
    before = [state(memory, slot) for slot in range(3)]
    assert memory.own(0) == memory.row[0] >= 0
    memory.put(2, memory.pool.share(memory.row[0]))
    assert memory.own(0) == memory.own(2) == -1
    assert [state(memory, slot) for slot in range(3)] == [before[0], before[1], before[0]]
    memory.put(2, -1)
    assert memory.own(0) >= 0
    assert memory.pool.used == 2
    with pytest.raises(StateError, match="all 6 rows of recurrent states are in use"):
        memory.pool.take_many(5)
    assert memory.pool.used == 2
