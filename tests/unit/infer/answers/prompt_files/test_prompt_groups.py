"""Which prompts are grouped on one worker."""

import numpy as np
import pytest

from hybrid.infer.answers.prompt_files.prompt_groups import SHARES, WORTH_SHARING, Group, plan

DOCUMENT = 200  # tokens


def prompts_about(n_documents: int, n_questions: int, seed: int = 1) -> list[list[int]]:
    """Questions about documents, shuffled; all begin with BOS."""
    rng = np.random.default_rng(seed)
    documents = [[1, *rng.integers(10, 1000, DOCUMENT).tolist()] for _ in range(n_documents)]
    prompts = [[*d, *rng.integers(1000, 2000, 7).tolist()] for d in documents for _ in range(n_questions)]
    return [prompts[i] for i in rng.permutation(len(prompts))]


def members(groups: list[Group]) -> list[int]:
    return sorted(i for group in groups for i in group.members)


def test_questions_about_a_document_meet() -> None:
    prompts = prompts_about(40, 5)
    groups = plan(prompts, 1, 2)
    assert members(groups) == list(range(200))
    assert len(groups) == 40
    for group in groups:
        assert group.shared == DOCUMENT + 1
        assert len({tuple(prompts[i][: DOCUMENT + 1]) for i in group.members}) == 1
        assert group.work == group.shared + 5 * (7 + 8)
    assert [g.members[0] for g in groups] == sorted(g.members[0] for g in groups), "in the order of the file"
    assert {n for group in groups for parts in group.parts for n in parts} == {DOCUMENT + 1}


def test_what_all_begin_with_divides_nothing() -> None:
    """Every worker reads the system prompt before all documents; groups form by document."""
    system = list(range(3000, 3300))
    prompts = [system + p for p in prompts_about(40, 5)]
    groups = plan(prompts, 1, 2)
    assert members(groups) == list(range(200)) and len(groups) == 40
    assert {g.shared for g in groups} == {300 + DOCUMENT + 1}
    assert {parts for group in groups for parts in group.parts} == {(301, 300 + DOCUMENT + 1)}


def test_one_document_for_all_is_cut_so_that_the_work_divides() -> None:
    prompts = prompts_about(1, 300)
    groups = plan(prompts, 10, 3)
    assert members(groups) == list(range(300))
    total = DOCUMENT + 1 + 300 * (7 + 80)
    assert max(g.work for g in groups) <= total / (3 * SHARES) + 7 + 80
    assert len(groups) >= 3 * SHARES


def test_prompts_with_nothing_in_common_are_alone() -> None:
    prompts = [[1, *range(100 * i, 100 * i + 30)] for i in range(1, 20)]
    groups = plan(prompts, 5, 4)
    assert [g.members for g in groups] == [(i,) for i in range(19)]
    assert {g.shared for g in groups} == {0}


def test_fewer_tokens_than_are_worth_it() -> None:
    prompts = [[*range(WORTH_SHARING - 1), 500 + i] for i in range(6)]
    assert len(plan(prompts, 100, 1)) == 6
    prompts = [[*range(WORTH_SHARING), 500 + i] for i in range(60)]
    assert len(plan(prompts, 1, 1)) < 60


def test_the_same_prompt_many_times() -> None:
    """Samples share their whole prompt, and are still divided into groups."""
    groups = plan([[*range(100)]] * 64, 50, 2)
    assert members(groups) == list(range(64)) and len(groups) >= 2 * SHARES


def test_what_would_take_long_at_the_end_goes_first() -> None:
    prompts = [[1, 100 + i] for i in range(50)] + [[2] * 5000]
    groups = plan(prompts, 1, 4)
    assert groups[0].members == (50,)
    assert [g.members[0] for g in groups[1:]] == list(range(50))


def test_a_prompt_in_another_and_thousands_of_those() -> None:
    nested = [[*range(n)] for n in range(1, 1500)]
    assert members(plan(nested, 3, 2)) == list(range(1499))
    assert plan([], 3, 2) == []
    assert plan([[5]], 3, 0) == [Group((0,), 0, 25.0, ((),))]


def test_a_part_of_a_group_begins_as_the_whole_does() -> None:
    group = plan(prompts_about(9, 4), 10, 1)[0]
    own = 7 + 80  # tokens of a question, and 10 drawn at 8 each
    assert len(group.members) == 4 and group.work == DOCUMENT + 1 + 4 * own
    assert group.reading == pytest.approx((DOCUMENT + 1) / own)
    rest = group.part(1)
    assert (rest.members, rest.parts, rest.shared) == (group.members[1:], group.parts[1:], group.shared)
    assert rest.work == DOCUMENT + 1 + 3 * own and rest.reading == group.reading
    assert group.part(1, 2).members == group.members[1:2]
    assert Group((0,), 0, 83, ((),)).reading == 0
