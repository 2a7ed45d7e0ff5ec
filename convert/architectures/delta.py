"""The gated delta rule of Qwen3-Next, shared by several families: matrices of all projections, by heads of keys."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from ..checkpoint import Config
from ..transforms import NEGATIVE_EXP, Transform
from .blocks import check_rows
from .family import Row, Shapes, TensorBlock, row

LINEAR_SIZES = ("linear_num_key_heads", "linear_key_head_dim", "linear_num_value_heads", "linear_value_head_dim")


def read_delta(config: Config, shapes: Shapes, usual: Sequence[int] = ()) -> dict[str, Any]:
    """Sizes of the delta rule: n_k_head, d_k, n_v_head, d_v, d_conv. usual: defaults of LINEAR_SIZES; without them the
    config must have these."""
    defaults = [{"default": size} for size in usual] or [{}] * len(LINEAR_SIZES)
    n_k_head, d_k, n_v_head, d_v = (
        config.integer(key, **more) for key, more in zip(LINEAR_SIZES, defaults, strict=True)
    )
    if n_v_head % n_k_head:
        raise config.wrong("linear_num_value_heads", f"a multiple of linear_num_key_heads = {n_k_head}")
    check_rows(config, max(n_k_head * d_k, n_v_head * d_v), shapes, *LINEAR_SIZES)
    d_conv = config.integer("linear_conv_kernel_dim", default=4, minimum=2)
    return {"n_k_head": n_k_head, "d_k": d_k, "n_v_head": n_v_head, "d_v": d_v, "d_conv": d_conv}


class GroupedDelta:
    """Tensors of a layer with n_v_head heads of d_v values on n_k_head heads of d_k keys; a base of families."""

    n_embd: int
    d_conv: int
    n_k_head: int
    n_v_head: int
    d_k: int
    d_v: int

    @property
    def n_key(self) -> int:
        """Rows of the delta rule's keys, and of its queries."""
        return self.n_k_head * self.d_k

    @property
    def n_value(self) -> int:
        """Rows of the delta rule's values."""
        return self.n_v_head * self.d_v

    @property
    def _piece(self) -> int:
        return math.gcd(self.d_k, self.d_v)

    def delta_parts(self, name: str, shape: tuple[int, ...]) -> Iterator[TensorBlock]:
        """in_proj_qkvz contains [q | k | v | z] per head of keys, and is split into pieces of one size."""
        n = self.n_embd
        if name.endswith(".in_proj_qkvz.weight") and shape == (2 * (self.n_key + self.n_value), n):
            for i in range(shape[0] // self._piece):
                yield TensorBlock(f"{name}.{i}", (i * self._piece, 0), (self._piece, n))

    def delta(self, hf: str, blk: str) -> Iterator[Row]:
        """The tensors of a layer with the delta rule."""
        n, share = self.n_embd, self.n_v_head // self.n_k_head
        # pieces of q, k, v, z of one head of keys
        sizes = [size // self._piece for size in (self.d_k, self.d_k, share * self.d_v, share * self.d_v)]
        pieces: list[list[str]] = [[], [], [], []]
        i = 0
        for _ in range(self.n_k_head):
            for names, size in zip(pieces, sizes, strict=True):
                names += [f"{hf}in_proj_qkvz.weight.{i + j}" for j in range(size)]
                i += size
        q, k, v, z = pieces
        piece = (self._piece, n)
        yield Row(blk + "attn_qkv.weight", (2 * self.n_key + self.n_value, n), (*q, *k, *v), source_shape=piece)
        yield Row(blk + "attn_gate.weight", (self.n_value, n), tuple(z), source_shape=piece)
        yield from self.beta_alpha(hf, blk)
        yield from self.delta_rest(hf, blk, NEGATIVE_EXP)

    def beta_alpha(self, hf: str, blk: str) -> Iterator[Row]:
        """The tensors of beta and alpha, by heads of keys in one matrix."""
        yield row(hf + "in_proj_ba.weight", blk + "ssm_ba.weight", 2 * self.n_v_head, self.n_embd)

    norm_transform: Transform | None = None

    def delta_rest(
        self,
        hf: str,
        blk: str,
        decay: Transform,
        bias: Transform | None = None,
        conv: Transform | None = None,
        out: Transform | None = None,
    ) -> Iterator[Row]:
        """The tensors that Qwen3.5 shares, with their transforms."""
        n, taps, mixed = self.n_embd, self.d_conv, 2 * self.n_key + self.n_value
        yield row(
            hf + "conv1d.weight", blk + "ssm_conv1d.weight", mixed, taps, source_shape=(mixed, 1, taps), transform=conv
        )
        yield row(hf + "A_log", blk + "ssm_a", self.n_v_head, transform=decay)
        yield row(hf + "dt_bias", blk + "ssm_dt.bias", self.n_v_head, transform=bias)
        yield row(hf + "norm.weight", blk + "ssm_norm.weight", self.d_v, transform=self.norm_transform)
        yield row(hf + "out_proj.weight", blk + "ssm_out.weight", n, self.n_value, transform=out)
