"""What a file may say about its experts, before any kernel computes with it."""

import numpy as np
import pytest

from hybrid.infer.kernels.rows.moe import Scoring
from hybrid.infer.layers.feed_forward import LatentExperts, MixtureOfExperts
from hybrid.infer.layers.router import ExpertGroups, Router
from hybrid.quant.ggml.errors import FormatError


class File:
    """Weights of which nothing but the errors is wanted."""

    def wrong(self, key: str, value: int, expected: str) -> FormatError:
        return FormatError(f"{key} = {value}, expected {expected}")

    def matrix(self, name: str, *shape: int) -> tuple[str, tuple[int, ...]]:
        return name, shape

    experts = matrix

    def vector(self, name: str, n: int) -> int:
        return 1

    squeezed = vector

    def keep(self, values: int) -> int:
        return values

    def __contains__(self, name: str) -> bool:
        return False


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
    layer = MixtureOfExperts(0, 8, 4, Router(12, n_used, groups=ExpertGroups(n_group, n_group_used)))
    with pytest.raises(FormatError, match=message):
        layer.load(File())  # type: ignore[arg-type]


def test_shapes() -> None:
    router = Router(12, 5, scoring=Scoring.SIGMOID, groups=ExpertGroups(4, 2))
    layer = MixtureOfExperts(3, 8, 4, router, gated=False, latent=LatentExperts(6))
    layer.load(File())  # type: ignore[arg-type]
    assert layer.w_in == {"up": ("blk.3.ffn_up_exps.weight", (12, 4, 6))}
    assert layer.w_down == ("blk.3.ffn_down_exps.weight", (12, 6, 4))
    assert layer.w_into == ("blk.3.ffn_latent_down.weight", (6, 8))
    assert layer.w_back == ("blk.3.ffn_latent_up.weight", (8, 6))
    assert layer.latent_bias == (0, 0)
    np.testing.assert_array_equal(layer.w_router[1], (12, 8))
