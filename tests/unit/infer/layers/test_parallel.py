"""Two parallel parts with norms of their own."""

import pytest

from hybrid.infer.layers.attention import Attention
from hybrid.infer.layers.feed_forward import FeedForward
from hybrid.infer.layers.parallel import NormedSum


@pytest.mark.parametrize("n_head", [1, 3])
def test_it_keeps_what_both_keep(n_head: int) -> None:
    attention = Attention(2, 12, n_head, n_head, 4)
    both = NormedSum(attention, FeedForward(2, 12, 20), ("blk.2.attn_norm", "blk.2.ffn_norm"), 12, 1e-5)
    assert both.memory() == attention.memory() != ()
