"""After a fault all owners agree with the books; sequences and texts with inconsistent books are empty."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest

from hybrid.infer.kernels.attention.kv import CACHE_TYPES, PAGE
from hybrid.infer.memory import AttentionSpec, HybridMemory, PromptCache, RecurrentSpec
from hybrid.infer.memory.held_text import hold
from hybrid.infer.memory.pool import IndexPool
from hybrid.infer.memory.recount import recount

N_SEQ, N_CTX = 4, 4 * PAGE
ATTENTION, RECURRENT = AttentionSpec(0, 1, 16), RecurrentSpec(1, 8, 4)


def texts() -> tuple[HybridMemory, PromptCache]:
    """Three sequences, two with a common prefix; the prompt cache has all of them."""
    memory = HybridMemory([ATTENTION, RECURRENT], N_SEQ, N_CTX, CACHE_TYPES["f16"], n_spare_pages=16, n_spare_rows=16)
    cache = PromptCache(memory, 1 << 30)
    for seq, ids in enumerate(([1] * 70 + [2] * 9, [1] * 70 + [3] * 90, [4] * 5)):
        for part in (ids[:70], ids[70:]):
            if part:
                move = memory.begin(seq, len(part))
                memory.n_past[seq] += len(part)
                memory.finish(move)
                cache.keep(seq, ids[: int(memory.n_past[seq])], boundary=True)
    return memory, cache


def owners(pool: IndexPool) -> list[int]:
    return [pool.owners(place) for place in range(pool.touched)]


def books(memory: HybridMemory) -> tuple[list[int], list[int], int, int]:
    pages, rows = memory.attention.pool, memory.recurrent.pool
    return owners(pages), owners(rows), pages.alone, rows.alone


def test_true_books_stay() -> None:
    memory, cache = texts()
    text = hold(cache, np.array([1] * 70 + [3] * 90, np.int32))
    assert text is not None
    before = books(memory)
    size = cache.nbytes
    assert recount(memory, cache, ()) == [] and books(memory) == before and cache.nbytes == size
    memory.end_loan(text)
    for seq in range(N_SEQ):
        memory.release(seq)
    cache.clear()
    assert memory.attention.pool.used == memory.recurrent.pool.used == 0


def test_what_was_lost_is_free_again() -> None:
    memory, cache = texts()
    pages, rows = memory.attention.pool, memory.recurrent.pool
    pages.take_many(3)  # their owner has gone
    rows.share(memory.recurrent.row[0])
    pages.hold(memory.attention.pages(1)[0])
    move = memory.begin(2, 40, keep=True, pieces=2)  # nobody finishes it
    assert recount(memory, cache, (2,)) == []
    assert memory.n_past[2] == 0 and not memory.attention.pages(2) and move.seq == 2
    for seq in range(N_SEQ):
        memory.release(seq)
    cache.clear()
    assert pages.used == rows.used == 0


def test_a_run_that_goes_on_keeps_its_rows() -> None:
    memory, cache = texts()
    move = memory.begin(0, 4, keep=True, pieces=4)
    memory.n_past[0] += 4
    before = books(memory)
    assert recount(memory, cache, ()) == [] and books(memory) == before
    memory.finish(move, 1)
    assert memory.n_past[0] == 79 + 2
    recount(memory, cache, range(N_SEQ))
    cache.clear()
    assert memory.attention.pool.used == memory.recurrent.pool.used == 0


@pytest.mark.parametrize("wrong", ["pages", "table", "row", "length"])
def test_a_sequence_whose_books_do_not_agree(wrong: str) -> None:
    memory, cache = texts()
    if wrong == "pages":
        memory.attention.wipe(1)
    elif wrong == "table":
        memory.attention.table[1, 0] += 1
    elif wrong == "row":
        memory.recurrent.row[1] = -1
    else:
        memory.n_past[1] = N_CTX + 1
    assert recount(memory, cache, ()) == [1]
    assert memory.n_past.tolist() == [79, 0, 5, 0]
    assert cache.n_tokens == 79 + 90 + 5, "texts are not touched"


@pytest.mark.parametrize("wrong", ["start", "child", "page", "position"])
def test_a_tree_that_is_not_whole_is_forgotten(wrong: str) -> None:
    memory, cache = texts()
    node = next(node for node in cache.tree if len(node.tokens) == 90)
    if wrong == "start":
        node.start += 1
    elif wrong == "child":
        assert node.parent is not None
        node.parent.children[77] = node.parent.children.pop(3)
    elif wrong == "page":
        node.pages.pop()
    else:
        node.checkpoints[100] = node.checkpoints.pop(160)
    assert recount(memory, cache, ()) == [] and cache.n_tokens == cache.n_checkpoints == cache.nbytes == 0
    assert memory.n_past.tolist() == [79, 160, 5, 0]
    for seq in range(N_SEQ):
        memory.release(seq)
    assert memory.attention.pool.used == memory.recurrent.pool.used == 0


def test_a_checkpoint_without_its_state_goes_alone() -> None:
    memory, cache = texts()
    node = next(node for node in cache.tree if len(node.tokens) == 90)
    node.checkpoints[160].row = -1
    n = cache.n_checkpoints
    recount(memory, cache, ())
    assert cache.n_checkpoints == n - 1 and cache.n_tokens == 79 + 90 + 5


def test_the_prefix_of_all_sequences_is_no_place_of_the_pools() -> None:
    """Its pages stand before each row of the table, its state is where texts begin; neither is handed out or freed."""
    specs = [replace(ATTENTION, prefix=2 * PAGE), RECURRENT]
    memory = HybridMemory(specs, N_SEQ, N_CTX, CACHE_TYPES["f16"])
    own, pages, rows = memory.attention, memory.attention.pool, memory.recurrent.pool
    for row in own.table:
        assert list((ctypes.c_int64 * 2).from_address(row.ctypes.data - 2 * row.itemsize)) == own.prefix
    computed = memory.for_prefix()
    move = computed.begin(0, 2 * PAGE)
    assert (move.before, computed.first_position, computed.n_ctx) == (-1, -2 * PAGE, 2 * PAGE)
    assert not computed.attention.prefix
    computed.n_past[0] = 2 * PAGE
    computed.finish(move)
    for page, i in zip(computed.attention.pages(0), range(2), strict=True):
        computed.attention.k[0][page] = 7 + i
    computed.recurrent.conv[1][computed.recurrent.row[0]] = 3.5
    memory.keep_prefix(computed)
    assert [int(own.k[0][page].min()) for page in own.prefix] == [7, 8]
    assert (memory.recurrent.conv[1][memory.recurrent.start] == 3.5).all()
    taken = memory.attention.pool.take_many(pages.size)
    assert not {*taken} & {*own.prefix} and memory.recurrent.start not in rows.take_many(rows.size)
    recount(memory, None, range(N_SEQ))
    assert pages.used == rows.used == 0
    assert memory.begin(1, 3).before == memory.recurrent.start
