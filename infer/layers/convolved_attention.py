"""Compressed convolutional attention: short convolutions mix queries and keys over time. arXiv:2510.04476

Half of the values come from the token before.
"""

from dataclasses import dataclass

import numpy as np

from ..kernels.recurrent.conv import conv1d
from ..kernels.recurrent.conv_windows import conv1d_windows
from ..kernels.rows import elementwise, heads
from ..kernels.rows.gated_norm import gated_norm
from ..kernels.rows.head_means import add_head_means
from ..loading.weights import Weights
from ..memory import HybridMemory, RecurrentSpec
from ..program.builder import FEW_COLUMNS, Builder, Columns, Ref, Rows, round_up
from .attention import Attention
from .base import MemorySpec, add_bias

SMALLEST = float(np.finfo(np.float32).eps)  # floor of the divisor, the length of a head


@dataclass
class ConvolvedAttention(Attention):
    """With [q | k] the projections of a token, side by side:

        q, k = conv2(conv1([q | k])) + means       conv1 by channels, conv2 by heads, both over time and causal
        means: of a query and the key that it shares; for a key, of the means of its queries
        q = q * sqrt(d_head) / |q|,  k = k * sqrt(d_head) / |k| * (a number per head of keys)
        v = [first half of the values of this token | second half of the values of the token before]

    and then attention. The length is sqrt(|q|^2 + SMALLEST^2), which in f32 differs from |q| only for heads of nearly
    0; transformers uses max(|q|, SMALLEST).

    taps  of conv1 and of conv2

    Per sequence it keeps, in addition to keys and values, [q | k] of the last taps[0] + taps[1] - 2 tokens before the
    convolutions ('conv'), and the second half of the last token's values before the bias ('ssm').
    """

    taps: tuple[int, int] = (2, 2)

    @property
    def n_mixed(self) -> int:
        """Width of [q | k]."""
        return (self.n_head + self.n_kv) * self.d_head

    @property
    def n_delayed(self) -> int:
        """Number of values that come from the token before."""
        return self.n_kv * self.d_head // 2

    def load(self, w: Weights) -> None:
        if self.n_kv * self.d_head % 2:
            raise w.wrong("attention.key_length", self.d_head, "an even number of values")
        if sum(self.taps) < 3:
            raise w.wrong("attention.conv_kernel", self.taps[1], "2 or more, where ssm.conv_kernel is 1")
        super().load(w)
        p, d, n_heads = f"blk.{self.layer}.", self.d_head, self.n_head + self.n_kv
        by_channel, by_head = p + "ssm_conv1d.", p + "attn_conv."
        self.w_channels = w.keep(np.ascontiguousarray(w.array(by_channel + "weight", self.n_mixed, self.taps[0]).T))
        self.channels_bias = w.vector(by_channel + "bias", self.n_mixed)
        self.w_heads = w.experts(by_head + "weight", n_heads, d, self.taps[1] * d)
        self.heads_bias = w.vector(by_head + "bias", self.n_mixed)
        factors = w.array(p + "attn_k_norm.weight", self.n_kv)
        self.lengths = w.keep(np.ones(d, np.float32)), w.keep(np.repeat(factors[:, None], d, 1))
        self.before = w.keep(
            np.repeat(np.array([[1], [0]], np.float32), self.n_delayed, 1)
        )  # taps that select the token before

    def memory(self) -> tuple[MemorySpec, ...]:  # type: ignore[override]
        mixed = RecurrentSpec(
            self.layer, self.n_mixed, sum(self.taps) - 1, 1, self.n_delayed, 1, mixer="convolved attention"
        )
        return (*super().memory(), mixed)

    def _project(self, b: Builder, x: Rows, memory: HybridMemory) -> tuple[Rows, Rows, Rows]:
        n_tok, n_q, n_k, d = b.batch.n_tok, self.n_head * self.d_head, self.n_kv * self.d_head, self.d_head
        mixed = b.rows(self.n_mixed)
        for part, first, n in (("q", 0, n_q), ("k", n_q, n_k)):
            rows = add_bias(b, b.matmul(x, self.w_in[part], f"attn_{part}"), self.bias[part])
            b.op(elementwise.take_parts, name="attn_join", count=n_tok, x=rows, out=mixed.columns(first, n), n_group=1,
                 n=n, stride=0)  # fmt: skip
        out = self._convolved(b, mixed, memory)
        q, k = out.columns(0, n_q), out.columns(n_q, n_k)
        b.op(
            add_head_means, count=n_tok, q=mixed.columns(0, n_q), k=mixed.columns(n_q, n_k), out_q=q, out_k=k,
            n_head=self.n_head, n_kv=self.n_kv, d_head=d,
        )  # fmt: skip
        for rows, n_head, weight, stride in (
            (q, self.n_head, self.lengths[0], 0),
            (k, self.n_kv, self.lengths[1], 4 * d),
        ):
            b.op(
                gated_norm, name="attn_norm", count=n_tok, y=rows, weight=weight, stride=stride, out=rows,
                n_group=n_head, n=d, eps=SMALLEST**2 / d,
            )  # fmt: skip
        return q, k, self._values(b, x, memory)

    def _convolved(self, b: Builder, mixed: Rows, memory: HybridMemory) -> Rows:
        """conv2(conv1(mixed)): conv2 as products of a matrix per head with windows of conv1."""
        batch, d, n_heads, n_tap = b.batch, self.d_head, self.n_head + self.n_kv, self.taps[1]
        width, state = round_up(self.n_mixed, 16), memory.recurrent.conv[self.layer]
        windows = b.rows(n_tap * width)
        b.op(
            conv1d_windows, ctl=batch.ctl, seg=batch.seg, x=mixed, w=self.w_channels, bias=self.channels_bias,
            state=state.ctypes.data, stride=state.strides[0], y=windows, part=4 * width, n_channel=self.n_mixed,
            d_conv=self.taps[0], n_window=n_tap,
        )  # fmt: skip
        few = b.capacity <= FEW_COLUMNS
        tile = b.products.width(few)
        n_columns = n_heads * round_up(b.capacity, tile)
        groups = Ref(b.buffer(8 + 24 * n_heads))
        b.op(heads.head_groups, count=batch.n_tok, n_head=n_heads, width=tile, groups=groups)
        apart = b.rows(n_tap * d, n_columns)
        for j in range(n_tap):
            b.op(
                heads.split_heads, name="attn_split", count=batch.n_tok, x=windows.columns(j * width, self.n_mixed),
                out=apart.columns(j * d, d), n_head=n_heads, n=d, stride=4 * d, width=tile,
            )  # fmt: skip
        y = b.matmul(apart, self.w_heads, "attn_conv", Columns(groups, n_columns, few=few))
        out = b.rows(self.n_mixed)
        b.op(
            heads.join_heads, name="attn_join", count=batch.n_tok, x=y, out=out, n_head=n_heads, n=d, stride=4 * d,
            width=tile,
        )  # fmt: skip
        return add_bias(b, out, self.heads_bias)

    def _values(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        """[half of this token | half of the one before] + bias; before the first token the half is 0."""
        batch, half, state = b.batch, self.n_delayed, memory.recurrent.ssm[self.layer]
        rows, v = b.matmul(x, self.w_in["v"], "attn_v"), b.rows(2 * half)
        b.op(elementwise.take_parts, name="attn_join", count=batch.n_tok, x=rows, out=v, n_group=1, n=half, stride=0)
        b.op(
            conv1d, name="attn_delay", ctl=batch.ctl, seg=batch.seg, x=rows.columns(half, half), w=self.before,
            state=state.ctypes.data, stride=state.strides[0], y=v.columns(half, half), n_channel=half, d_conv=2,
        )  # fmt: skip
        return add_bias(b, v, self.bias["v"])
