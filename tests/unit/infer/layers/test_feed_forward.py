"""The tensors of experts."""

import numpy as np

from hybrid.infer.kernels.rows.moe import Scoring
from hybrid.infer.layers.feed_forward import LatentExperts, MixtureOfExperts
from hybrid.infer.layers.router import ExpertGroups, Router


class File:
    """Weights as names and shapes only."""

    def matrix(self, name: str, *shape: int) -> tuple[str, tuple[int, ...]]:
        return name, shape

    def experts(self, name: str, *shape: int, factors: bool = True) -> tuple[str, tuple[int, ...]]:
        return self.matrix(name, *shape)

    def vector(self, name: str, n: int) -> int:
        return 1

    squeezed = vector

    def keep(self, values: int) -> int:
        return values

    def __contains__(self, name: str) -> bool:
        return False


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
