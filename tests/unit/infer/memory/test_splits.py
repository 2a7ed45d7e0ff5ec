"""Plans of ubatches: every token once, in order, and the shapes of llama.cpp's PR #13979."""

import numpy as np
import pytest

from hybrid.infer.memory.picture_tokens import is_inside, picture_tokens, runs
from hybrid.infer.memory.splits import SPLITS, split_equal, split_seq, split_simple, split_whole

LENGTHS = [16, 7, 1, 1]


def shapes(plan: object) -> list[list[int]]:
    return [[end - begin for _, begin, end in pieces] for pieces in plan]  # type: ignore[attr-defined]


def test_the_shapes_of_the_issue() -> None:
    assert shapes(split_equal(LENGTHS, 512)) == [[1, 1, 1, 1], [6, 6], [9]]
    assert shapes(split_simple(LENGTHS, 512)) == [LENGTHS]
    assert shapes(split_simple(LENGTHS, 10)) == [[10], [6, 4], [3, 1, 1]]
    assert shapes(split_seq(LENGTHS, 10)) == [[10], [6], [7], [1], [1]]
    assert shapes(split_equal([5, 5, 5], 2)) == [[1, 1]] * 5 + [[2], [2], [1]]


@pytest.mark.parametrize("name", SPLITS)
def test_every_token_once_and_in_order(name: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        lengths, n = rng.integers(0, 30, rng.integers(0, 9)).tolist(), int(rng.integers(1, 40))
        begun = [0] * len(lengths)
        for pieces in SPLITS[name](lengths, n):
            assert 0 < sum(end - begin for _, begin, end in pieces) <= n
            assert len({i for i, _, _ in pieces}) == len(pieces)
            for i, begin, end in pieces:
                assert begun[i] == begin < end
                begun[i] = end
        assert begun == lengths


def test_pictures_are_not_split() -> None:
    rng = np.random.default_rng(1)
    for _ in range(100):
        texts = []
        for i in range(int(rng.integers(1, 4))):
            ids: list[int] = []
            for j in range(int(rng.integers(0, 5))):
                ids += [7] * int(rng.integers(0, 6))
                ids += picture_tokens(bytes([i, j]), n := int(rng.integers(1, 9)), int(rng.integers(1, n + 1)))
            texts.append(np.array([*ids, 7], np.int64))
        n = int(rng.integers(1, 20))
        longest = max([n, *(end - begin for ids in texts for begin, end in runs(ids))])
        begun = [0] * len(texts)
        for pieces in split_whole(texts, n):
            assert 0 < sum(end - begin for _, begin, end in pieces) <= longest
            for i, begin, end in pieces:
                assert begin == begun[i] < end and not is_inside(texts[i], end)
                begun[i] = end
        assert begun == [len(ids) for ids in texts]
