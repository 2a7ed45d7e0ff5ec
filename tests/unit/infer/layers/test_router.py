"""Keys that a file may have for its experts, and the fields of the kernel."""

import pytest

from hybrid.infer.architectures.experts import groups_of
from hybrid.infer.kernels.rows import moe
from hybrid.infer.kernels.rows.moe import ChosenBy, Scoring
from hybrid.infer.layers.router import ExpertGroups, Router
from hybrid.quant.ggml.errors import FormatError


class File:
    """Weights for tests of errors only."""

    def wrong(self, key: str, value: int, expected: str) -> FormatError:
        return FormatError(f"{key} = {value}, expected {expected}")


@pytest.mark.parametrize(
    ("n_used", "n_group", "n_group_used", "message"),
    [
        (0, 1, 1, "expert_used_count = 0, expected 1 to 12"),
        (13, 1, 1, "expert_used_count = 13, expected 1 to 12"),
        (2, 5, 1, "expert_group_count = 5, expected groups of two or more of the 12 experts"),
        (2, 12, 1, "expert_group_count = 12, expected groups of two or more"),
        (2, 24, 1, "expert_group_count = 24, expected groups of two or more"),
        (2, 3, 0, "expert_group_used_count = 0, expected 1 to 3"),
        (2, 3, 4, "expert_group_used_count = 4, expected 1 to 3"),
        (5, 3, 1, "expert_used_count = 5, expected 1 to 4"),
    ],
)
def test_refused(n_used: int, n_group: int, n_group_used: int, message: str) -> None:
    router = Router(12, n_used, groups=groups_of(n_group, n_group_used))
    with pytest.raises(FormatError, match=message):
        router.check(File())  # type: ignore[arg-type]


def test_fields_are_those_of_the_kernel() -> None:
    router = Router(
        12, 3, True, Scoring.SIGMOID, ChosenBy.LOGIT, 2.5, ExpertGroups(4, 2, by_two=False), n_idle=1, jitter=0.5
    )
    fields = router.fields()
    assert fields == {
        "n_expert": 13, "n_used": 3, "scoring": 1, "chosen_by": 1, "renormalize": True, "scale": 2.5, "n_group": 4,
        "n_group_used": 2, "n_group_best": 1, "n_idle": 1, "jitter": 0.5,
    }  # fmt: skip
    assert all(moe.moe_route.layout.find(name) for name in fields)


@pytest.mark.parametrize("n_group_used", [0, 1])
def test_one_group_is_no_choice_among_groups(n_group_used: int) -> None:
    """Files of models without groups may have either number."""
    router = Router(12, 3, groups=groups_of(1, n_group_used))
    router.check(File())  # type: ignore[arg-type]
    fields = router.fields()
    assert fields["n_group"] == fields["n_group_used"]
