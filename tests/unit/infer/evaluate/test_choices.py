"""Multiple-choice tasks: the texts that the model reads for them, and which tasks are drawn."""

from pathlib import Path

import numpy as np
import pytest
import tiny_models

from hybrid.infer import LoadedModel
from hybrid.infer.evaluate.choices import Ending, common_prefix, score, some_of, standard_error
from hybrid.infer.evaluate.windows import log_likelihood

TASKS = [  # 3, 2 and 4 texts with common prefixes, within a task and across tasks
    [[1, 5, 6, 7, 8], [1, 5, 6, 9, 9, 9], [1, 5, 6, 9, 9, 4]],
    [[1, 5, 2], [1, 5, 2, 3]],
    [[1, 8, 8, 8], [1, 8, 8, 9], [1, 8, 8, 10], [1, 8, 8, 11]],
]


@pytest.fixture(scope="module", params=[tiny_models.llama, tiny_models.jamba], ids=["attention", "hybrid"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return request.param().write(tmp_path_factory.mktemp("tiny") / "model.gguf")


def tasks() -> list[list[Ending]]:
    return [[Ending(ids, range(2, len(ids))) for ids in texts] for texts in TASKS]


@pytest.mark.parametrize("n_seq_max", [1, 2, 3, 5, 9])
def test_processed_tokens_are_those_that_went_through(
    n_seq_max: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many texts fit: the same scores to the bit, and every token given to the model is counted."""
    with LoadedModel.load(path, n_ctx=32, n_seq_max=n_seq_max) as model:
        n_given = 0
        evaluate = model.eval

        def counted(works):  # type: ignore[no-untyped-def]
            nonlocal n_given
            n_given += sum(len(work.ids) for work in works)
            return evaluate(works)

        alone = []
        for texts in TASKS:
            seq = model.sequence()
            for ids in texts:
                seq.clear()
                alone.append(float(log_likelihood(seq.logits_of(ids[:-1])[1:], ids[2:]).mean()))
            seq.close()
        monkeypatch.setattr(model, "eval", counted)
        scored = list(score(model, tasks()))
        assert [len(one.means) for one in scored] == [3, 2, 4]
        assert np.concatenate([one.means for one in scored]).tolist() == alone
        assert sum(one.n_processed for one in scored) == n_given
        assert [one.n_tokens for one in scored] == [17, 7, 16]
        assert model.n_free == n_seq_max
        if n_seq_max == 9:
            assert n_given == 6 + 1 + 2, "1 5 6 [7] [9 9]; [2]; 8 8: what all nine have in common is read once"


def test_tasks_are_drawn_as_a_mersenne_twister_of_seed_1_draws() -> None:
    """std::mt19937 with seed 1 begins with 1791095845, 4282876139, 3093770124."""
    assert some_of(range(10), 3) == [4, 8, 5]  # place .417 * 10 of 0-9; .997 * 9 of 0-3 9 5-8; .720 * 8 of 0-3 9 5-7
    assert some_of([1, 2], 2) == [1, 2] and some_of([1, 2], None) == [1, 2] and some_of([1, 2], 5) == [1, 2]
    assert sorted(some_of(range(1000), 999)) == sorted(set(some_of(range(1000), 999)))


def test_common_prefix_leaves_a_token() -> None:
    assert common_prefix([[1, 2, 3], [1, 2, 4], [1, 2], [1, 2, 3]]) == 1
    assert common_prefix([[1, 2], [1, 2]]) == 1 and common_prefix([[1, 2], [3, 2]]) == 0


def test_standard_error() -> None:
    assert standard_error(0.8, 101) == pytest.approx(0.04)
    assert standard_error(1.0, 1) is None and standard_error(1.0, 2) == 0
