"""Which answers workers get next: all answers, a few at a time, divided fairly whatever the workers' speeds."""

import heapq
from collections import Counter

import numpy as np
import pytest

from hybrid.infer.answers.prompt_files.prompt_groups import Group, plan
from hybrid.infer.answers.prompt_files.schedule import DEPTH, GroupBranch, Schedule


def group(first: int, n: int, shared: int = 100, own: float = 50.0) -> Group:
    members = tuple(range(first, first + n))
    return Group(members, shared, shared + n * own, tuple((shared,) for _ in members))


def test_a_worker_has_two_answers_for_a_slot_and_the_client_the_rest() -> None:
    handing = Schedule([group(0, 10), group(10, 10), group(20, 10)])
    first = list(handing.next({"a": 1, "b": 2}, 0.0))
    on: dict[str | None, list[int]] = {"a": [], "b": []}
    for number, parts, branch in first:
        assert branch is not None and parts == (100,) and not branch.last
        on[branch.worker].append(number)
    assert on == {"a": [0, 1], "b": [10, 11, 12, 13]}
    assert list(handing.next({"a": 1, "b": 2}, 0.0)) == [] and handing.n_left == 24
    branch = first[0][2]
    assert branch is not None
    handing.over(branch)
    assert [number for number, _, _ in handing.next({"a": 1, "b": 2}, 0.0)] == [2], "the next of the same group"


def test_answers_that_take_no_time_are_asked_for_in_stock() -> None:
    """As many extra answers are requested as are drawn during one round trip."""
    handing = Schedule([group(0, 500), group(500, 500)])
    assert len(list(handing.next({"a": 1, "b": 1}, 1000.0))) == 2 * (DEPTH + 50)


def test_prompts_that_share_nothing_belong_to_nobody() -> None:
    handing = Schedule([Group((i,), 0, 9.0, ((),)) for i in range(9)])
    assert [branch for _, _, branch in handing.next({"a": 1, "b": 1}, 0.0)] == [None] * 2 * DEPTH
    handing.over(None)
    assert [number for number, _, _ in handing.next({"a": 1, "b": 1}, 0.0)] == [4]


def test_who_joins_late_gets_half_of_what_is_left() -> None:
    handing = Schedule([group(0, 12)])
    first = list(handing.next({"a": 1}, 0.0))
    assert [number for number, _, _ in first] == [0, 1]
    later = list(handing.next({"a": 1, "b": 1}, 0.0))
    assert [number for number, _, _ in later] == [7, 8]
    branch = later[0][2]
    assert branch is not None and (branch.worker, branch.last) == ("b", True)
    assert branch.group.members == tuple(range(7, 12)), "5 of the 10 that nobody had begun"


def test_a_long_beginning_is_not_read_again_for_few_answers() -> None:
    handing = Schedule([group(0, 8, shared=5000, own=1000.0)])
    list(handing.next({"a": 1}, 0.0))
    assert len(list(handing.next({"a": 1, "b": 1}, 0.0))) == DEPTH, "6 are left, which take longer than reading"
    handing = Schedule([group(0, 8, shared=7000, own=1000.0)])
    list(handing.next({"a": 1}, 0.0))
    assert list(handing.next({"a": 1, "b": 1}, 0.0)) == []


def test_what_a_lost_worker_had_not_begun_goes_to_another() -> None:
    handing = Schedule([group(0, 6), group(6, 2)])
    first = list(handing.next({"a": 1}, 0.0))
    branch = first[0][2]
    assert branch is not None
    for _ in first:  # both are asked again, alone
        handing.over(branch)
        handing.lost(branch)
        handing.asked_again()
    assert list(handing.next({"b": 1}, 0.0)) == [], "two are out"
    handing.over(None)
    handing.over(None)
    again = list(handing.next({"b": 1}, 0.0))
    assert [number for number, _, _ in again] == [2, 3]
    assert again[0][2] is not None and again[0][2].worker == "b" and again[0][2].group.work == 100 + 4 * 50


def test_without_any_worker_answers_wait_for_some() -> None:
    handing = Schedule([group(0, 3), group(3, 3)])
    asked = list(handing.next({}, 0.0))
    assert [number for number, _, _ in asked] == [0, 1]
    assert asked[0][2] is not None and asked[0][2].worker is None
    assert list(handing.next({}, 0.0)) == []


# --- a hundred workers ---
def makespan(
    groups: list[Group], speeds: np.ndarray, deaths: dict[int, float], work: list[float]
) -> tuple[float, Counter[int]]:
    """Seconds until all answers are there, and how many workers read each prefix. A worker draws its answers one after
    the other, in the order received. One that dies comes back at once and begins its answers again.

    speeds: tokens per second; deaths: worker -> time; work: tokens of each answer with its whole prompt
    """
    slots = {str(w): 1 for w in range(len(speeds))}
    handing = Schedule(groups)
    shared = {number: g.shared for g in groups for number in g.members}
    name = {number: g.members[0] for g in groups for number in g.members}
    mine: list[list[tuple[int, GroupBranch | None]]] = [[] for _ in speeds]
    known: list[set[int]] = [set() for _ in speeds]
    alone: list[int] = []  # to be asked for again
    readers: Counter[int] = Counter()
    ends = [(when, w, False) for w, when in deaths.items()]
    heapq.heapify(ends)
    begun: list[int | None] = [None] * len(speeds)
    n_lives = [0] * len(speeds)
    lives: dict[tuple[float, int], int] = {}
    now = 0.0

    def draw(w: int) -> None:
        if begun[w] is None and mine[w]:
            number = mine[w][0][0]
            reads = name[number] not in known[w]
            readers[name[number]] += reads
            known[w].add(name[number])
            begun[w] = number
            end = now + (work[number] - (0 if reads else shared[number])) / speeds[w]
            lives[end, w] = n_lives[w]
            heapq.heappush(ends, (end, w, True))

    def hand_out() -> None:
        while alone:
            handing.asked_again()
            w = min(range(len(speeds)), key=lambda w: len(mine[w]))
            mine[w].append((alone.pop(), None))
            draw(w)
        for number, _, branch in handing.next(slots, 0.0):
            given = branch.worker if branch is not None else None
            w = int(given) if given is not None else min(range(len(speeds)), key=lambda w: len(mine[w]))
            mine[w].append((number, branch))
            draw(w)

    hand_out()
    n_done, end = 0, 0.0
    while n_done < len(work):
        now, w, drawn = heapq.heappop(ends)
        if drawn and lives.pop((now, w)) != n_lives[w]:
            continue
        begun[w] = None
        if drawn:
            handing.over(mine[w].pop(0)[1])
            n_done, end = n_done + 1, now
        else:
            for number, branch in mine[w]:
                handing.over(branch)
                if branch is not None:
                    handing.lost(branch)
                alone.append(number)
            mine[w], known[w] = [], set()
            n_lives[w] += 1
        hand_out()
        draw(w)
    assert not any(mine) and not handing.n_left
    return end, readers


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("n", "n_documents", "length", "most"), [(100, 2000, 200, 1.05), (10, 120, 200, 1.10), (30, 300, 3000, 1.15)]
)
def test_workers_of_all_speeds_some_of_which_die(n: int, n_documents: int, length: int, most: float) -> None:
    """Against a lossless division of the work by speed, although speeds and lengths are unknown beforehand."""
    rng = np.random.default_rng(n)
    speeds = rng.lognormal(np.log(100), 0.5, n)
    documents = [np.concatenate([[i], rng.integers(10, 1000, length)]) for i in range(n_documents)]
    asked = rng.permutation(np.repeat(np.arange(n_documents), 8))
    prompts = [np.concatenate([documents[d], rng.integers(1000, 2000, 7)]).tolist() for d in asked]
    drawn = 8.0 * rng.integers(20, 129, len(prompts))  # tokens of a prompt; the plan knows only the limit, 128
    groups = plan(prompts, 128, n)
    assert sorted(i for g in groups for i in g.members) == list(range(len(prompts)))
    work = [len(p) + float(d) for p, d in zip(prompts, drawn, strict=True)]
    ideal = (sum(work) - sum(g.shared * (len(g.members) - 1) for g in groups)) / float(speeds.sum())
    deaths = {int(w): float(rng.uniform(0, 0.9 * ideal)) for w in rng.choice(n, n // 10, replace=False)}
    took, readers = makespan(groups, speeds, deaths, work)
    print(f"{took / ideal:.3f} of the ideal {ideal:.0f} s, {readers.total() / len(groups):.2f} workers read each")
    assert ideal <= took <= most * ideal
    assert readers.total() <= 1.15 * len(groups)
