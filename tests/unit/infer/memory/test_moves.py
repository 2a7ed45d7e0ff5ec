"""Moved positions: keys rotated as if computed there, tokens and positions as in a list, and refused moves."""

from collections.abc import Callable

import numpy as np
import pytest
from reference import attention as reference

from hybrid.infer.kernels.attention.kv import CACHE_TYPES, KV_TYPES, PAGE
from hybrid.infer.kernels.attention.rope import rope_turns
from hybrid.infer.memory import AttentionSpec, HybridMemory, RecurrentSpec, Rotation
from hybrid.infer.memory.attention import AttentionMemory
from hybrid.infer.memory.kv_codec import encoded
from hybrid.infer.memory.moves import seq_add, seq_div, seq_rm, shift
from hybrid.infer.memory.positions import Positions, first_moved
from hybrid.quant.ggml.errors import StateError, UsageError

STATE = RecurrentSpec(1, 5, 4)


@pytest.mark.parametrize("kind", list(KV_TYPES))
@pytest.mark.parametrize("neox", [False, True])
@pytest.mark.parametrize(("d_head", "n_rot"), [(80, 80), (48, 20), (16, 2)])
def test_keys_are_turned_as_if_computed_at_their_new_position(kind: str, neox: bool, d_head: int, n_rot: int) -> None:
    rng = np.random.default_rng(5)
    n, n_kv, base, scale = 3 * PAGE - 7, 3, 500.0, 0.5
    factors = rng.uniform(1, 4, n_rot // 2)
    rotation = Rotation(rope_turns(n_rot, base, scale, factors), neox)
    memory = AttentionMemory([AttentionSpec(2, n_kv, d_head, rotation)], 2, 4 * PAGE, CACHE_TYPES[kind])
    x = rng.standard_normal((n, n_kv, d_head)) * 3

    def at(keys: np.ndarray, places: np.ndarray) -> np.ndarray:
        return reference.rope(keys, places, n_rot, base, scale, factors, neox)

    old = np.arange(n)
    stored(memory, at(x, old), kind)
    before, block = read(memory, n, kind), memory.pairs[0].blocks(memory.kind)[0]
    start, deltas = 30, np.where(np.arange(n - 30) % 5 == 0, 0, -rng.integers(1, 30, n - 30))
    memory.turn(0, start, deltas)
    after = read(memory, n, kind)
    assert np.array_equal(after[:start], before[:start])
    # exactly the stored keys, rotated in float64 and stored again
    whole = np.concatenate([np.zeros(start, np.int64), deltas])
    wanted = at(before.astype(np.float64), whole)
    if block:  # rounded in the basis of the transform, where a code that lies half way may fall to the other side
        wanted = reference.kept(reference.hadamard(wanted, block).astype(np.float32), kind)
        turned = reference.hadamard(after, block)
        assert np.isclose(turned, wanted, rtol=1e-5, atol=1e-5)[whole != 0].mean() > 0.998
    else:
        wanted = reference.kept(wanted.astype(np.float32), kind)
        assert np.array_equal(after[whole != 0], wanted[whole != 0])
    assert np.array_equal(after[whole == 0], before[whole == 0]), "what stays where it is does not change"
    # and close to keys that were never moved
    there = at(x, old + whole)
    error = np.linalg.norm(after - there) / np.linalg.norm(there)
    print(f"{kind}: {error:.1e}")
    assert error < {"f32": 2e-7, "f16": 5e-4, "bf16": 4e-3, "q8_0": 0.011, "q5_1": 0.06, "q5_0": 0.07}.get(kind, 0.13)


@pytest.mark.parametrize("neox", [False, True])
def test_keys_that_were_normalized_behind_rope_are_turned(neox: bool) -> None:
    """As if computed at their new position; a value whose weight is 0 stays 0."""
    rng = np.random.default_rng(8)
    n, n_kv, d_head, n_rot, base = 40, 2, 24, 20, 300.0
    weight = rng.standard_normal(d_head)
    weight[[3, 21]] = 0
    memory = AttentionMemory(
        [AttentionSpec(2, n_kv, d_head, Rotation(rope_turns(n_rot, base), neox, weight))], 1, PAGE, CACHE_TYPES["f32"]
    )
    x = rng.standard_normal((n, n_kv, d_head))
    x[..., [3, 21]] = 0  # a value lost to a weight of 0 cannot be rotated; the other of its pair is set apart below

    def at(places: np.ndarray) -> np.ndarray:
        keys = reference.rope(x, places, n_rot, base, 1.0, None, neox)
        return keys / np.sqrt((keys * keys).mean(-1, keepdims=True) + 1e-6) * weight

    places, deltas = np.arange(n), rng.integers(1, 30, n)
    stored(memory, at(places), "f32")
    memory.turn(0, 0, deltas)
    pair = [3 + n_rot // 2] if neox else [2]
    kept = np.setdiff1d(np.arange(d_head), pair)
    error = np.abs(read(memory, n, "f32") - at(places + deltas))[..., kept].max()
    print(f"{error:.1e}")
    assert error < 3e-6


def stored(memory: AttentionMemory, keys: np.ndarray, kind: str) -> None:
    """The keys as sequence 0, with the keys of another time as values."""
    n, spec = len(keys), memory.pairs[0]
    memory.extend(0, 0, n)
    arrays = {}
    for part, x, block in zip("kv", (keys, keys[::-1]), spec.blocks(memory.kind), strict=True):
        turned = reference.hadamard(x, block) if block else x
        for plane, values in encoded(turned, KV_TYPES[kind]).items():
            arrays[f"blk.{spec.layer}.{part}{plane}"] = values
    assert {name: (a.dtype, a.shape) for name, a in arrays.items()} == memory.layout(n)
    memory.load(memory.pages(0), n, arrays)


def read(memory: AttentionMemory, n: int, kind: str, part: str = "k") -> np.ndarray:
    """f32 [n, head, d_head] as kernels read them."""
    arrays, spec = dict(memory.export(memory.pages(0), n)), memory.pairs[0]
    planes = {plane.name: arrays[f"blk.{spec.layer}.{part}{plane.name}"] for plane in KV_TYPES[kind].planes}
    x = reference.read_back(planes, kind, spec.d_head)
    block = spec.blocks(memory.kind)["kv".index(part)]
    return reference.hadamard(x, block) if block else x


@pytest.mark.parametrize("kind", list(KV_TYPES))
def test_keys_that_are_no_numbers_stay_none(kind: str) -> None:
    rotation = Rotation(rope_turns(4, 100.0), False)
    memory = AttentionMemory([AttentionSpec(2, 1, 40, rotation)], 1, PAGE, CACHE_TYPES[kind])
    x = np.ones((3, 1, 40))
    stored(memory, x, kind)
    views = memory._views(memory.specs[0])
    if KV_TYPES[kind].quantized:
        views["blk.2.k.scale"][memory.table[0, 0], 0, 1] = np.nan
    else:
        infinite, large = encoded(np.array([np.inf, 65504]), KV_TYPES[kind])[""]
        views["blk.2.k"][memory.table[0, 0], 0, 1, 0, 0] = infinite
        views["blk.2.k"][memory.table[0, 0], 0, 2, 0, :4] = large
    memory.turn(0, 0, np.array([5, 5, 5]))
    after = read(memory, 3, kind)
    assert np.isfinite(after[0]).all() and not np.isfinite(after[1, 0, :4]).all()
    assert np.isfinite(after[2]).all(), "f16 has no infinity where there was none"


def test_positions_are_those_of_a_list() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        n = int(rng.integers(1, 30))
        listed = np.sort(rng.integers(0, 40, int(rng.integers(0, n + 1)))) if rng.random() < 0.8 else np.arange(n)
        positions = Positions(listed)
        end = int(listed[-1]) + 1 if len(listed) else 0
        wanted = [*map(int, listed), *range(end, end + n - len(listed))]
        assert positions.of(0, n).tolist() == wanted and positions.plain == (wanted == [*range(n)])
        assert positions.of(n // 2, n - n // 2).tolist() == wanted[n // 2 :]
        assert positions.at(n) == wanted[-1] + 1 and [positions.at(i) for i in range(n)] == wanted
        p0, p1 = (int(p) for p in rng.integers(-2, 45, 2))
        first, last = positions.indices(p0, p1, n)
        assert [*range(first, last)] == [i for i, p in enumerate(wanted) if p >= p0 and (p1 < 0 or p < p1)]
        assert first_moved(np.array(wanted)) == next((i for i, p in enumerate(wanted) if p != i), n)
        cut = int(rng.integers(0, n + 1))
        positions.cut(cut)
        assert positions.of(0, cut).tolist() == wanted[:cut] and positions.at(cut) == (
            wanted[cut - 1] + 1 if cut else 0
        )


def memory_of(*specs: AttentionSpec | RecurrentSpec, n_seq: int = 3) -> HybridMemory:
    return HybridMemory([*specs], n_seq, 4 * PAGE, CACHE_TYPES["f32"])


def append(memory: HybridMemory, seq: int, labels: list[int]) -> None:
    """Run with each token's label as its value."""
    for label in labels:
        move = memory.begin(seq, 1)
        past = move.past
        page = memory.attention.table[seq, past // PAGE]
        memory.attention._views(memory.attention.specs[0])["blk.0.v"][page, past % PAGE // 16, past % 16] = label
        memory.n_past[seq] = past + 1
        memory.finish(move)


def held(memory: HybridMemory, seq: int) -> list[int]:
    n = int(memory.n_past[seq])
    return dict(memory.attention.export(memory.attention.pages(seq), n))["blk.0.v"][:, 0, 0].astype(int).tolist()


def test_random_moves_are_those_of_a_list() -> None:
    """Three sequences that share pages; each equals a list of (label, position)."""
    rng = np.random.default_rng(8)
    memory = memory_of(AttentionSpec(0, 1, 16))
    texts: list[list[tuple[int, int]]] = [[], [], []]
    counts: dict[str, int] = {}
    for label in range(900):
        seq = int(rng.integers(3))
        text = texts[seq]
        do = str(rng.choice(["append", "rm", "add", "div", "cp", "shift"], p=[0.5, 0.14, 0.12, 0.08, 0.08, 0.08]))
        p0, p1 = sorted(int(p) for p in rng.integers(0, max(1, text[-1][1] + 3 if text else 1), 2))
        p1 = -1 if rng.random() < 0.3 else p1
        inside = [p0 <= p and (p1 < 0 or p < p1) for _, p in text]
        goes_on: int | None = None
        if do == "append" or not text:
            do = "append"
            new = [label * 100 + i for i in range(int(rng.integers(1, 50)))][: memory.room(seq)]
            append(memory, seq, new)
            first = text[-1][1] + 1 if text else 0
            text += [(x, first + i) for i, x in enumerate(new)]
        elif do == "rm":
            goes_on = seq_rm(memory, seq, p0, p1)
            text = [item for item, gone in zip(text, inside, strict=True) if not gone]
        elif do in ("add", "div"):
            by = int(rng.integers(-30, 30)) if do == "add" else int(rng.integers(1, 4))
            new_text = [
                (x, (p + by if do == "add" else p // by) if moved else p)
                for (x, p), moved in zip(text, inside, strict=True)
            ]
            negative = [p < 0 for _, p in new_text]
            places = [p for _, p in new_text]
            fine = places == sorted(places) and places[-1] < memory.n_ctx and not (any(negative) and not inside[0])
            if not fine:
                with pytest.raises(UsageError, match="cannot be"):
                    seq_add(memory, seq, p0, p1, by) if do == "add" else seq_div(memory, seq, p0, p1, by)
                do = "refused"
            else:
                goes_on = seq_add(memory, seq, p0, p1, by) if do == "add" else seq_div(memory, seq, p0, p1, by)
                text = [item for item, gone in zip(new_text, negative, strict=True) if not gone]
        elif do == "cp":
            target = (seq + 1) % 3
            goes_on = memory.seq_cp(seq, target, p1)
            texts[target] = text = [item for item in text if p1 < 0 or item[1] < p1]
            seq = target
        elif len(text) > 3:
            keep = int(rng.integers(0, len(text) - 2))
            n = int(rng.integers(1, len(text) - keep))
            goes_on = shift(memory, seq, keep, n)
            by = text[keep + n][1] - text[keep][1]
            text = text[:keep] + [(x, p - by) for x, p in text[keep + n :]]
        counts[do] = counts.get(do, 0) + 1
        texts[seq] = text
        for s, wanted in enumerate(texts):
            assert held(memory, s) == [x for x, _ in wanted], (label, do)
            assert memory.positions[s].of(0, len(wanted)).tolist() == [p for _, p in wanted], (label, do)
        end = text[-1][1] + 1 if text else 0
        assert goes_on in (None, end) and memory.next_position(seq) == end
    print(counts)
    assert min(counts.values()) > 10 and len(counts) == 7
    for seq in range(3):
        memory.release(seq)
        assert memory.positions[seq].plain and not memory.is_moved(seq)
    assert memory.attention.pool.used == 0, "nothing leaks"


def test_what_is_computed_is_known() -> None:
    memory = memory_of(AttentionSpec(0, 1, 16))
    append(memory, 0, [*range(40)])
    assert memory.computed(0) == 40 and not memory.is_moved(0)
    shift(memory, 0, 10, 5)
    append(memory, 0, [50, 51])
    assert memory.computed(0) == 10 and memory.is_moved(0)
    memory.seq_cp(0, 1)
    assert memory.computed(1) == 10 and memory.is_moved(1)
    seq_rm(memory, 0, 4, 6)
    assert memory.computed(0) == 4
    assert memory.truncate(1, 12) == 12 and memory.is_moved(1)
    assert memory.truncate(1, 10) == 10 and not memory.is_moved(1), "what is left was never touched"
    seq_add(memory, 0, 0, -1, 3)
    assert memory.computed(0) == 0 and memory.next_position(0) == 40
    hybrid = memory_of(AttentionSpec(0, 1, 16), STATE)
    append(hybrid, 0, [*range(40)])
    row = hybrid.recurrent.row[0]
    assert shift(hybrid, 0, 10, 5) == 35
    assert hybrid.computed(0) == 0, "the state has seen what left"
    assert hybrid.recurrent.row[0] == row, "and goes on"
    assert hybrid.truncate(0, 10) == 0


@pytest.mark.parametrize("recurrent", [False, True])
def test_what_cannot_be_done_changes_nothing(recurrent: bool) -> None:
    memory = memory_of(AttentionSpec(0, 1, 16, None, 8), *([STATE] if recurrent else []))
    append(memory, 0, [*range(40)])
    before = held(memory, 0)
    refusals: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: shift(memory, 0, 10, 30), UsageError, "cannot remove 30 tokens after the first 10 of 40"),
        (lambda: shift(memory, 0, -1, 3), UsageError, "cannot remove 3 tokens after"),
        (lambda: seq_add(memory, 0, 3, 6, 5), UsageError, r"positions 3 to 5 cannot be shifted by 5: .*beyond others"),
        (lambda: seq_add(memory, 0, 3, -1, 300), UsageError, "beyond the context of 256"),
        (lambda: seq_add(memory, 0, 3, -1, -5), UsageError, "cannot be shifted by -5, below 0"),
        (lambda: seq_div(memory, 0, 20, -1, 2), UsageError, "cannot be divided by 2: tokens would lie beyond others"),
        (lambda: seq_div(memory, 0, 20, -1, 0), UsageError, "cannot be divided by 0"),
        (lambda: seq_add(memory, 7, 0, -1, 1), UsageError, "there is no sequence 7"),
    ]
    if recurrent:
        refusals.append((lambda: seq_rm(memory, 0, 3, 6), StateError, "the recurrent state has seen them"))
        refusals.append((lambda: seq_add(memory, 0, 0, -1, -5), UsageError, "below 0"))
    for call, kind, says in refusals:
        with pytest.raises(kind, match=says):
            call()
        assert held(memory, 0) == before and memory.positions[0].plain and not memory.is_moved(0)
    memory.learned_positions = True
    for call in (lambda: shift(memory, 0, 10, 5), lambda: seq_add(memory, 0, 0, -1, 1)):
        with pytest.raises(UsageError, match="its model has learned positions"):
            call()
    assert held(memory, 0) == before and memory.n_past[0] == 40


def test_a_window_needs_positions_without_gaps() -> None:
    memory = memory_of(AttentionSpec(0, 1, 16, None, 8))
    append(memory, 0, [*range(20)])
    assert seq_rm(memory, 0, 5, 9) == 20
    with pytest.raises(UsageError, match="gaps between its positions, and its model has attention windows"):
        memory.begin(0, 1)
    assert seq_add(memory, 0, 9, -1, -4) == 16
    append(memory, 0, [20])
    assert held(memory, 0) == [*range(5), *range(9, 21)]


def test_gaps_count_against_the_context() -> None:
    memory = memory_of(AttentionSpec(0, 1, 16))
    append(memory, 0, [*range(20)])
    assert seq_add(memory, 0, 10, -1, 200) == 220 and memory.room(0) == 36
    append(memory, 0, [*range(36)])
    with pytest.raises(UsageError, match=r"56 tokens and 1 more, from position 256 on, do not fit the context of 256"):
        memory.begin(0, 1)
    assert seq_div(memory, 0, 0, -1, 4) == 64 and memory.room(0) == 192, "more tokens than positions"
    append(memory, 0, [*range(192)])
    assert memory.n_past[0] == 248 and memory.room(0) == 0


def test_an_interrupted_move_leaves_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    for specs, left in (((AttentionSpec(0, 1, 16),), 10), ((AttentionSpec(0, 1, 16), STATE), 0)):
        memory = memory_of(*specs)
        append(memory, 0, [*range(40)])
        monkeypatch.setattr(memory.attention, "remove", interrupted)
        with pytest.raises(KeyboardInterrupt):
            shift(memory, 0, 10, 5)
        assert memory.n_past[0] == left and held(memory, 0) == [*range(left)]
        append(memory, 0, [7])
        assert held(memory, 0) == [*range(left), 7]
