"""Pinned texts stay, take at most half of the budget, and are released by name."""

import numpy as np
import pytest
from test_cache import LOGITS, check, run, setup, text

from hybrid.infer.kernels.attention.kv import PAGE
from hybrid.infer.memory import HybridMemory, PromptCache
from hybrid.infer.memory.branches import Branch, branches, find_branch, kept
from hybrid.infer.memory.prefix_tree import Node
from hybrid.quant.ggml.errors import UsageError


def remembered(memory: HybridMemory, cache: PromptCache, ids: list[int], *cuts: int) -> None:
    """A text with checkpoints at some positions and at its end, held by no sequence."""
    memory.release(0)
    at = 0
    for cut in (*cuts, len(ids)):
        run(memory, 0, ids[:at], ids[at:cut])
        cache.keep(0, ids[:cut], boundary=True, logits=LOGITS)
        at = cut
    memory.release(0)


def pin(cache: PromptCache, ids: list[int], n_prompt: int = 70) -> Node | None:
    return cache.pins.add(np.asarray(ids, np.int32), n_prompt, cache.budget)


def named(cache: PromptCache, name: int) -> Node:
    found = find_branch(cache, name)
    assert found is not None and found[0].name == name
    return found[1]


@pytest.mark.parametrize("recurrent", [True, False])
def test_what_is_pinned_outlives_everything(recurrent: bool) -> None:
    memory, cache = setup(recurrent)
    kept_text = text((1, 100), (2, 30))
    remembered(memory, cache, kept_text, 40, 100)
    assert pin(cache, kept_text) is not None
    cache.budget = 2 * cache.pins.nbytes() + 1
    for i in range(3, 30):
        remembered(memory, cache, text((i, 90)), 50)
        cache.trim()  # the sequence that released it is no longer an owner
        assert cache.nbytes <= cache.budget
    known = cache.find([*kept_text, 5])
    assert known is not None and known.position == 130
    cache.restore(1, known)
    check(memory, 1, kept_text)
    memory.release(1)
    while cache._give_up_one():
        pass
    left = {p for node in cache.tree for p in node.checkpoints if node.tokens[0] in (1, 2)}
    assert left == ({100, 130} if recurrent else {40, 100, 130}), "of states the last two"
    # no longer pinned, it goes like any other
    node, _ = cache.tree.match(np.asarray(kept_text, np.int32))
    cache.pins.drop(node)
    assert cache.pins.nbytes() == 0
    for i in range(30, 60):
        remembered(memory, cache, text((i, 90)), 50)
    assert cache.find([*kept_text, 5]) is None
    cache.clear()
    assert memory.attention.pool.used == memory.recurrent.pool.used == 0


@pytest.mark.parametrize("recurrent", [True, False])
def test_at_most_half_of_the_budget(recurrent: bool) -> None:
    memory, cache = setup(recurrent)
    page, state = memory.attention.bytes_per_page, memory.bytes_state_per_seq
    one = 3 * page + 2 * (state + LOGITS.nbytes)  # 100 tokens with two checkpoints, the first within a page
    cache.budget = 2 * 2 * one
    for i in (1, 2, 3):
        remembered(memory, cache, text((i, 100)), 50)
    for i in (1, 2):
        assert pin(cache, text((i, 100))) is not None
        assert cache.pins.nbytes() == i * one
    said = r"keeping 100 tokens needs .*; .* are already kept, and the limit is .*: half of the budget"
    with pytest.raises(UsageError, match=said):
        pin(cache, text((3, 100)))
    for ids in (text((3, 100)), text((4, 100))):  # known and not known
        with pytest.raises(UsageError, match=said):
            cache.pins.check(np.asarray(ids, np.int32), len(LOGITS), cache.budget)
    again = np.asarray(text((2, 100)), np.int32)
    cache.pins.check(again, len(LOGITS), cache.budget)
    assert pin(cache, again.tolist()) is not None and len(cache.pins.nodes) == 2, "again, it needs no more"
    # a text that goes on from a pinned one takes its place, if there is room
    longer = text((2, 100), (9, 20))
    remembered(memory, cache, longer)
    with pytest.raises(UsageError, match="keeping 120 tokens"):
        pin(cache, longer)
    assert len(cache.pins.nodes) == 2, "what it goes on from is kept as before"
    cache.budget += 2 * page
    assert pin(cache, longer) is not None
    assert sorted(node.end for node in cache.pins.nodes) == [100, 120]
    cache.pins.drop(cache.tree.match(np.asarray(text((1, 100)), np.int32))[0])
    assert cache.pins.nbytes() == one + page
    remembered(memory, cache, text((3, 100)), 50)
    assert pin(cache, text((3, 100))) is not None


def test_each_party_has_its_share() -> None:
    """However much one party has pinned, under any number of owners, another has room for its own."""
    memory, cache = setup()
    cache.pins.n_parties = 2
    mine, others = (b"mine 1", b"mine 2"), b"your 1"
    for owner in (*mine, others):
        memory.release(0)
        ids = text((1, PAGE))
        run(memory, 0, [], ids)
        cache.keep(0, ids, boundary=True, logits=LOGITS, owner=owner)
    memory.release(0)
    tokens = np.asarray(ids, np.int32)
    size = cache.pins.nbytes([cache.tree.match(tokens, mine[0])[0]])
    cache.budget = 2 * 2 * size + 2
    assert cache.pins.add(tokens, PAGE, cache.budget, mine[0]) is not None
    for pinned in (cache.pins.add, cache.pins.check):
        with pytest.raises(UsageError, match="half of the budget for checkpoints, the share of one of 2 keys"):
            pinned(tokens, PAGE, cache.budget, mine[1])
    assert cache.pins.add(tokens, PAGE, cache.budget, others) is not None
    assert cache.pins.nbytes() == 2 * size <= cache.budget // 2


def test_what_pins_hold_is_no_room_that_sequences_need() -> None:
    """All sequences at full length fit beside as much as may be pinned."""
    memory, cache = setup(spare=16)
    cache.budget = 16 * max(memory.attention.bytes_per_page, memory.bytes_state_per_seq)
    for i in range(1, 30):
        remembered(memory, cache, text((i, PAGE)), 20)
        try:
            pin(cache, text((i, PAGE)))
        except UsageError:
            break
    assert cache.pins.nodes
    for seq in range(3):
        check(memory, seq, run(memory, seq, [], text((99, 4 * PAGE))))
    assert all(cache.find([*text((int(node.tokens[0]), PAGE)), 5]) for node in cache.pins.nodes)


def test_branches_as_people_see_them() -> None:
    memory, cache = setup()
    stem = text((1, 70))
    remembered(memory, cache, stem + text((2, 40)), 70, 80)
    first = kept(cache, stem + text((2, 40)), 70, None)
    assert first is not None and not first.pinned
    remembered(memory, cache, stem + text((2, 40), (3, 9)))
    assert kept(cache, stem + text((2, 40), (3, 9)), 70, None) == first, "it got longer"
    remembered(memory, cache, stem + text((4, 30)))
    second = kept(cache, stem + text((4, 30)), 70, True)
    assert second is not None and second.pinned and second.name != first.name
    listed = {branch.name: branch for branch in branches(cache).listed}
    few = branches(cache, 1)
    assert [branch.name for branch in few.listed] == [second.name] and few.total == 3
    assert (few.n_tokens, few.n_checkpoints) == (cache.n_tokens, cache.n_checkpoints) == (149, 5)
    assert len(listed) == 3 and next(iter(listed)) == second.name, "the one used last first"
    shared = next(branch for branch in listed.values() if branch.parent == 0)
    assert (shared.start, shared.n_tokens, shared.n_checkpoints) == (0, 70, 1)
    a, b = listed[first.name], listed[second.name]
    assert (a.parent, a.start, a.n_tokens, a.n_checkpoints, a.pinned) == (shared.name, 70, 49, 3, False)
    assert (b.parent, b.start, b.n_tokens, b.n_checkpoints, b.pinned) == (shared.name, 70, 30, 1, True)
    assert a.beginning.tolist() == [2] * 32 and b.beginning.tolist() == [4] * 30 and 0 <= b.age <= a.age < 60
    assert sum(_nbytes(memory, one) for one in (a, b, shared)) == a.nbytes + b.nbytes + shared.nbytes
    assert kept(cache, [77], 70, None) is None and find_branch(cache, 12345) is None
    # the shared part keeps its name while branches come and go
    cache.forget(named(cache, first.name))
    assert {branch.name for branch in branches(cache).listed} == {second.name}, "one text is left, in one piece"
    assert cache.find(stem + text((2, 40))).position == 70  # type: ignore[union-attr]
    assert named(cache, second.name).start == 0
    cache.forget(named(cache, second.name))
    assert cache.n_tokens == cache.n_checkpoints == cache.nbytes == 0 and branches(cache).listed == []
    assert memory.attention.pool.used == memory.recurrent.pool.used == 0


def _nbytes(memory: HybridMemory, branch: Branch) -> int:
    pages = (branch.start + branch.n_tokens - 1) // PAGE - branch.start // PAGE + 1
    edges = 3 if branch.n_checkpoints == 3 else 1  # of the longest one, which share the page they meet in
    logits = LOGITS.nbytes * branch.n_checkpoints
    return (
        (pages + edges - 1) * memory.attention.bytes_per_page
        + logits
        + (memory.bytes_state_per_seq * branch.n_checkpoints)
    )


def test_a_branch_goes_with_all_that_goes_on_from_it() -> None:
    memory, cache = setup(recurrent=False)
    stem = text((1, 70))
    for i in (2, 3):
        remembered(memory, cache, stem + text((i, 40)))
    pin(cache, stem + text((2, 40)))
    shared = next(branch for branch in branches(cache).listed if branch.parent == 0)
    cache.forget(named(cache, shared.name))
    assert cache.n_tokens == cache.nbytes == 0 and cache.pins.nodes == []


def test_without_recurrent_layers_what_is_shared_stays() -> None:
    memory, cache = setup(recurrent=False)
    stem = text((1, 70))
    for i in (2, 3):
        remembered(memory, cache, stem + text((i, 40)))
    name = kept(cache, stem + text((2, 40)), 70, None)
    assert name is not None
    cache.forget(named(cache, name.name))
    assert cache.find(stem + text((2, 40))).position == 70  # type: ignore[union-attr]
    assert cache.find(stem + text((3, 40))).position == 110  # type: ignore[union-attr]


def ends(cache: PromptCache) -> list[int]:
    return sorted(node.end for node in cache.pins.nodes)


def test_a_conversation_is_pinned_once() -> None:
    """Also if the template writes its last answer differently, or it is answered again."""
    memory, cache = setup()
    system, first = text((1, 40)), text((1, 40), (2, 10))
    remembered(memory, cache, system)
    pin(cache, system, 40)
    remembered(memory, cache, first + text((3, 20)), 50)
    pin(cache, first + text((3, 20)), 50)
    assert ends(cache) == [70], "the beginning was nobody else's"
    remembered(memory, cache, first + text((3, 9), (4, 20), (5, 6)), 79)
    pin(cache, first + text((3, 9), (4, 20), (5, 6)), 79)
    assert ends(cache) == [85], "it goes on from another form of the answer"
    other = text((1, 40), (6, 10))
    remembered(memory, cache, other + text((7, 5)), 50)
    pin(cache, other + text((7, 5)), 50)
    assert ends(cache) == [55, 85], "another conversation that begins alike"
    pin(cache, system, 40)
    assert ends(cache) == [40, 55, 85]
    remembered(memory, cache, other + text((7, 5), (8, 30)))
    pin(cache, other + text((7, 5), (8, 30)), 70)
    assert ends(cache) == [40, 85, 85], "what others go on from, too, stays pinned"
    node, _ = cache.tree.match(np.asarray(other + text((7, 5), (8, 30)), np.int32))
    cache.pins.drop(node)
    assert ends(cache) == [40, 85]
