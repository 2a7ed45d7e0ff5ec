"""The prompt cache: what it finds, shares, and gives up first. A state is a number that identifies its text."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from hybrid.infer.kernels.attention.kv import CACHE_TYPES, PAGE
from hybrid.infer.memory import AttentionSpec, HybridMemory, PromptCache, RecurrentSpec
from hybrid.infer.memory.moves import seq_rm
from hybrid.infer.memory.parking import ParkedType
from hybrid.infer.memory.prefix_tree import Checkpoint, PrefixTree
from hybrid.quant.ggml.errors import StateError, UsageError

KV, STATE = AttentionSpec(0, 1, 16), RecurrentSpec(1, 5, 4)
BUDGET = 1 << 20


def setup(recurrent: bool = True, budget: int = BUDGET, spare: int = 64) -> tuple[HybridMemory, PromptCache]:
    specs = [KV, STATE] if recurrent else [KV]
    memory = HybridMemory(specs, 3, 4 * PAGE, CACHE_TYPES["f32"], spare, spare)
    return memory, PromptCache(memory, budget)


def text(*parts: tuple[int, int]) -> list[int]:
    """(token, times), one after another."""
    return [token for token, n in parts for _ in range(n)]


def mark(ids: Sequence[int]) -> float:
    return float(sum((i + 1) * t for i, t in enumerate(ids)) % 9973)


def run(memory: HybridMemory, seq: int, held: list[int], more: list[int]) -> list[int]:
    """Acts like a program: writes keys of the new positions and a state that identifies the whole text."""
    move = memory.begin(seq, len(more), keep=True)
    ids = held + more
    past = int(memory.n_past[seq])
    assert past == len(held)
    for i in range(past, len(ids)):
        memory.attention.k[0][memory.attention.table[seq, i // PAGE], 0, i % PAGE // 16, i % 16] = ids[i]
    if memory.is_recurrent:
        memory.recurrent.conv[1][move.rows[-1]] = mark(ids)
    memory.n_past[seq] = len(ids)
    memory.finish(move)
    return ids


def check(memory: HybridMemory, seq: int, ids: list[int]) -> None:
    """The sequence holds exactly this text."""
    assert memory.n_past[seq] == len(ids)
    pages = memory.attention.table[seq]
    for i, token in enumerate(ids):
        assert memory.attention.k[0][pages[i // PAGE], 0, i % PAGE // 16, i % 16] == token, i
    if ids and memory.is_recurrent:
        assert memory.recurrent.conv[1][memory.recurrent.row[seq], 0, 0] == mark(ids)


def counted(memory: HybridMemory, cache: PromptCache) -> tuple[int, int]:
    """The values of `PromptCache.sizes`, counted: bytes that only the cache owns."""
    loose, pages = 0, Counter(page for node in cache.tree for page in node.pages)
    for node in cache.tree:
        for point in node.checkpoints.values():
            if point.row >= 0 and memory.recurrent.pool.owners(point.row) == 1:
                loose += memory.bytes_state_per_seq
            loose += sum(part.nbytes for part in (point.logits, point.parked) if part is not None)
    alone = sum(memory.attention.pool.owners(page) == n for page, n in pages.items())
    return loose, alone * memory.attention.bytes_per_page


LOGITS = np.ones(3, np.float32)


def test_the_longest_known_beginning_is_found() -> None:
    memory, cache = setup()
    ids = run(memory, 0, [], text((1, 70)))
    cache.keep(0, ids, boundary=True)
    a = run(memory, 0, ids, text((2, 50)))
    cache.keep(0, a, boundary=True, logits=LOGITS)
    # another end, on another sequence, that begins with the first checkpoint
    known = cache.find(ids + text((3, 9)))
    assert known is not None and known.position == 70
    cache.restore(1, known)
    check(memory, 1, ids)
    b = run(memory, 1, ids, text((3, 60)))
    cache.keep(1, b, boundary=True)
    check(memory, 0, a)
    check(memory, 1, b)
    assert cache.n_tokens == 70 + 50 + 60 and cache.n_checkpoints == 3
    for wanted, position in (
        (a, 120),
        (a[:119], 70),
        (b, 70),
        ([*b, 5], 130),
        (ids, None),
        (text((1, 69)), None),
        (text((4, 9)), None),
        (text((1, 80)), 70),
    ):
        known = cache.find(wanted)
        assert (known and known.position) == position, (len(wanted), position)
    assert cache.find(a).checkpoint.logits is not None  # type: ignore[union-attr]
    # divergence cleared nothing: everything can still be restored
    for wanted in (a, b):
        cache.restore(2, cache.find([*wanted, 9]))  # type: ignore[arg-type]
        check(memory, 2, wanted)


@pytest.mark.parametrize("recurrent", [True, False])
def test_a_text_is_found_by_its_owner_alone(recurrent: bool) -> None:
    memory, cache = setup(recurrent=recurrent)
    mine = run(memory, 0, [], text((1, 70)))
    cache.keep(0, mine, boundary=True, logits=LOGITS, owner=b"me")
    for owner in (b"", b"you"):
        assert cache.find(mine, owner) is None
    other = run(memory, 1, [], text((1, 70)))
    cache.keep(1, other, boundary=True, logits=LOGITS, owner=b"you")
    assert cache.n_tokens == 140, "nothing is shared"
    for owner in (b"me", b"you"):
        known = cache.find(mine, owner)
        assert known is not None and known.position == 70 and known.node.root.owner == owner
    cache.forget(cache.tree.match(np.asarray(mine, np.int32), b"me")[0])
    assert cache.find(mine, b"me") is None and [*cache.tree.roots] == [b"you"], "an owner without texts is forgotten"


def test_owners_take_no_memory_beyond_their_texts() -> None:
    memory, cache = setup()
    for i in range(300):
        cache.keep(0, run(memory, 0, [], text((i % 7, 40))), boundary=True, owner=b"%d" % i)
        memory.release(0)
        cache.budget = 4 * max(cache.sizes()) // max(1, cache.n_checkpoints)
        cache.trim()
    assert 0 < len(cache.tree.roots) <= cache.n_checkpoints < 20
    cache.clear()
    assert not cache.tree.roots


def test_without_recurrent_layers_any_position_will_do() -> None:
    memory, cache = setup(recurrent=False)
    a = run(memory, 0, [], text((1, 100), (2, 40)))
    cache.keep(0, a, boundary=True, logits=LOGITS)
    for wanted, position in ((a, 140), (a[:99], 98), (text((1, 100), (3, 5)), 100), ([5], None)):
        known = cache.find(wanted)
        assert (known and known.position) == position
        if known:
            cache.restore(1, known)
            check(memory, 1, wanted[: known.position])
    check(memory, 1, run(memory, 1, text((1, 100)), text((7, 3))))
    check(memory, 0, a)


def test_a_state_is_not_copied_until_it_is_written() -> None:
    memory, cache = setup()
    ids = run(memory, 0, [], text((1, 10)))
    used = memory.recurrent.pool.used
    cache.keep(0, ids, boundary=True)
    memory.seq_cp(0, 1)
    assert memory.recurrent.pool.used == used and memory.attention.pool.used == 1
    assert memory.writable[0] == 0
    assert cache.nbytes == 0, "what the sequences hold themselves does not count"
    run(memory, 0, ids, [2])
    check(memory, 1, ids)
    memory.release(0)
    memory.release(1)
    assert cache.nbytes == memory.bytes_state_per_seq + memory.attention.bytes_per_page
    cache.clear()
    assert memory.recurrent.pool.used == memory.attention.pool.used == cache.nbytes == 0


def test_rungs_of_the_ladder_go_before_boundaries() -> None:
    memory, cache = setup(budget=0)
    cache.budget = BUDGET
    ids: list[int] = []
    for i in range(6):
        ids = run(memory, 0, ids, text((i + 1, 30)))
        cache.keep(0, ids, boundary=i in (1, 4))
    memory.release(0)
    left = []
    while cache.n_checkpoints:
        cache.budget = cache.nbytes - 1
        other = run(memory, 1, [], [99])
        point = cache.keep(1, other, boundary=False)
        memory.release(1)
        points = {p for node in cache.tree for p in node.checkpoints} - {point.position}
        left.append(points)
        if not points:
            break
    assert left[0] < {30, 60, 90, 120, 150, 180} and {60, 150} <= left[3]
    assert cache.n_tokens <= 1, "texts without a checkpoint go with it"


def test_the_text_not_used_for_longest_goes_first() -> None:
    memory, cache = setup(recurrent=False)
    for i in (1, 2, 3):
        cache.keep(0, run(memory, 0, [], text((i, 64))), boundary=True)
        memory.release(0)
    cache.restore(1, cache.find(text((1, 65))))  # type: ignore[arg-type]
    memory.release(1)
    cache.budget = 2 * memory.attention.bytes_per_page
    cache.keep(0, run(memory, 0, [], text((4, 64))), boundary=True)
    assert [cache.find(text((i, 65))) is not None for i in (1, 2, 3, 4)] == [True, False, True, True]


def test_a_text_that_is_too_large_gets_shorter_from_its_end() -> None:
    """Giving up all its states would not make enough room."""
    memory, cache = setup()
    ids: list[int] = []
    for i in range(4):
        ids = run(memory, 0, ids, text((i, PAGE)))
        cache.keep(0, ids, boundary=i == 3)
    memory.release(0)
    cache.budget = 2 * memory.attention.bytes_per_page + 2 * memory.bytes_state_per_seq
    cache.trim()
    assert cache.nbytes == cache.budget and cache.n_tokens == 2 * PAGE
    assert {p for node in cache.tree for p in node.checkpoints} == {PAGE, 2 * PAGE}
    known = cache.find(ids)
    assert known is not None and known.position == 2 * PAGE
    assert cache.given_up.last(np.asarray(ids, np.int32), 2 * PAGE) == 4 * PAGE
    cache.restore(1, known)
    check(memory, 1, ids[: 2 * PAGE])
    run(memory, 1, ids[: 2 * PAGE], text((5, PAGE)))


def test_one_node_gets_shorter() -> None:
    """A text kept at once loses the part after its last state first, then that state."""
    memory, cache = setup()
    ids = run(memory, 0, [], text((1, 4 * PAGE)))
    cache.keep(0, ids, boundary=True)
    (node,) = cache.tree
    for position in (PAGE, 2 * PAGE + 1):
        memory.release(1)
        run(memory, 1, [], ids[:position])
        cache.place(node, Checkpoint(position, memory.recurrent.pool.share(int(memory.recurrent.row[1])), False))
    memory.release(0)
    memory.release(1)
    ends = []
    while cache._shorten():
        ends.append((node.end if cache.n_tokens else 0, sorted(node.checkpoints)))
        assert cache.sizes() == counted(memory, cache)
    assert ends == [(2 * PAGE + 1, [PAGE, 2 * PAGE + 1]), (PAGE, [PAGE]), (0, [])]
    assert memory.recurrent.pool.used == memory.attention.pool.used == 0


def test_room_for_keys_costs_no_states_elsewhere() -> None:
    """The memory is full: the least recently used text loses its end, other texts lose nothing."""
    memory, cache = setup(spare=0)
    cache.kind = "f16"  # states apart from the rows of sequences
    for token in (1, 2):
        ids: list[int] = []
        for _ in range(4):
            ids = run(memory, 0, ids, text((token, PAGE)))
            cache.keep(0, ids, boundary=True)
        memory.release(0)
    run(memory, 1, [], text((9, 4 * PAGE)))
    run(memory, 2, [], text((8, 2 * PAGE)))
    points = [{p for node in cache.tree for p in node.checkpoints if node.tokens[0] == token} for token in (1, 2)]
    assert points == [{PAGE, 2 * PAGE}, {PAGE, 2 * PAGE, 3 * PAGE, 4 * PAGE}]


def test_sequences_take_what_the_cache_holds_when_the_memory_is_full() -> None:
    memory, cache = setup(spare=0)
    ids: list[int] = []
    for i in range(40):
        ids = run(memory, 0, ids, text((i, 5)))
        cache.keep(0, ids, boundary=True)
    for seq in (1, 2):
        check(memory, seq, run(memory, seq, [], text((9, 4 * PAGE))))
    check(memory, 0, ids)


def test_a_budget_of_almost_nothing_keeps_nothing_and_breaks_nothing() -> None:
    memory, cache = setup(budget=1)
    ids = run(memory, 0, [], text((1, 100)))
    cache.keep(0, ids, boundary=True, logits=LOGITS)
    memory.release(0)
    other = run(memory, 0, [], text((2, 10)))
    cache.keep(0, other, boundary=True)
    assert cache.find(ids) is None
    check(memory, 0, other)


def test_an_interrupted_run_is_settled_by_what_it_wrote() -> None:
    memory, _ = setup()
    ids = run(memory, 0, [], text((1, 10)))
    move = memory.begin(0, 5, keep=True)
    memory.begin(0, 5, keep=True)  # the first one never ran
    check(memory, 0, ids)
    move = memory.begin(0, 5, keep=True)
    memory.recurrent.conv[1][move.rows[-1]] = 5.0
    memory.n_past[0] = 15  # it ran, but was not reported
    memory.begin(0, 1, keep=True)
    assert memory.recurrent.row[0] == move.rows[-1]
    memory.abandon(memory._moves[0])
    assert memory.n_past[0] == 15 and memory.recurrent.pool.used == 1
    memory.release(0)
    assert memory.recurrent.pool.used == memory.attention.pool.used == 0


def test_going_back_to_a_state_after_a_piece() -> None:
    memory, _ = setup()
    ids = run(memory, 0, [], text((1, 10)))
    move = memory.begin(0, 4, pieces=4)
    for i, row in enumerate(move.rows):
        memory.recurrent.conv[1][row] = mark(ids + text((2, i + 1)))
    memory.attention.k[0][memory.attention.table[0, 0], 0, 0, 10:14] = 2
    memory.n_past[0] = 14
    memory.finish(move, 1)
    check(memory, 0, ids + text((2, 2)))
    assert memory.recurrent.pool.used == 1


def test_random_texts_are_found_as_a_list_would_find_them() -> None:
    rng = np.random.default_rng(4)
    memory, cache = setup()
    tree, texts = cache.tree, []
    for _ in range(120):
        base = texts[rng.integers(len(texts))] if texts and rng.random() < 0.8 else []
        ids = base[: rng.integers(len(base) + 1)] + rng.integers(0, 3, rng.integers(1, 40)).tolist()
        ids = ids[: 4 * PAGE]
        known = cache.find(ids)
        best = max((len(k) for k in texts if len(k) < len(ids) and ids[: len(k)] == k), default=0)
        assert (known.position if known else 0) == best
        memory.release(0)
        if known:
            cache.restore(0, known)
        run(memory, 0, ids[:best], ids[best:])
        check(memory, 0, ids)
        cache.keep(0, ids, boundary=True)
        texts = [[*k] for k in texts if cache.find([*k, 7]) and cache.find([*k, 7]).position == len(k)]  # type: ignore
        if ids not in texts:
            texts.append(ids)
        node, n = tree.match(np.asarray(ids, np.int32))
        assert n == len(ids) == node.end
    assert len(texts) > 20
    memory.release(0)
    cache.clear()
    assert memory.attention.pool.used == memory.recurrent.pool.used == 0


@pytest.mark.parametrize("recurrent", [True, False])
@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_the_size_is_that_of_what_nobody_else_has(recurrent: bool, kind: ParkedType) -> None:
    """Whatever is kept, restored, released, forgotten and given up."""
    rng = np.random.default_rng(8)
    memory, cache = setup(recurrent)
    cache.kind = kind
    texts: list[list[int]] = [[], [], []]
    for step in range(400):
        seq = int(rng.integers(3))
        if rng.random() < 0.3:
            memory.release(seq)
            known = cache.find(texts[(seq + 1) % 3] + [7]) if rng.random() < 0.7 else None
            texts[seq] = texts[(seq + 1) % 3][: known.position] if known else []
            if known:
                cache.restore(seq, known)
        more = rng.integers(0, 3, rng.integers(1, 40)).tolist()
        if len(texts[seq]) + len(more) <= 4 * PAGE:
            texts[seq] = run(memory, seq, texts[seq], more)
            logits = LOGITS if rng.random() < 0.5 else None
            cache.keep(seq, texts[seq], boundary=rng.random() < 0.5, logits=logits)
        if step % 40 == 39:
            cache.forget(list(cache.tree)[int(rng.integers(cache.n_checkpoints))])
        if step % 100 == 99:
            cache.budget = cache.nbytes // 2
            cache.trim()
            cache.budget = BUDGET
        assert cache.sizes() == counted(memory, cache), step
        if recurrent and (least := cache._least()) is not None:
            worths = [cache.worth(node, c) for node in cache.tree for c in node.checkpoints.values()]
            assert cache.worth(*least) == min(worths)
    for seq in range(3):
        memory.release(seq)
    assert cache.nbytes == sum(counted(memory, cache)) > 0
    cache.clear()
    assert cache.nbytes == memory.attention.pool.used == memory.recurrent.pool.used == 0
    assert memory.attention.pool.alone == memory.recurrent.pool.alone == 0


def test_wrong_sequences_are_named() -> None:
    memory, _ = setup()
    for call in (lambda: seq_rm(memory, 3, 0), lambda: memory.seq_cp(0, -1), lambda: memory.release(9)):
        with pytest.raises(UsageError, match=r"there is no sequence .*: this memory has sequences 0 to 2"):
            call()
    with pytest.raises(UsageError, match=r"sequence 1: 300 tokens do not fit the context of 256"):
        memory.begin(1, 300)
    ids = run(memory, 0, [], text((1, 10)))
    with pytest.raises(StateError, match="sequence 0: cannot remove tokens 2 to 5 of 10: the recurrent state"):
        seq_rm(memory, 0, 2, 5)
    check(memory, 0, ids)
    assert seq_rm(memory, 0, 4) == 0, "a recurrent state cannot be cut"


def test_an_empty_tree_knows_nothing() -> None:
    memory, cache = setup()
    assert cache.find([1, 2]) is None
    assert PrefixTree(memory.attention.pool).match(np.array([1], np.int32))[1] == 0
