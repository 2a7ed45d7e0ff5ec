"""Time mixing and channel mixing of RWKV-4 to RWKV-7. Peng et al. 2023, arXiv:2305.13048; Peng et al. 2024,
arXiv:2404.05892 (RWKV-5 and 6); Peng et al. 2025, arXiv:2503.14456

A layer keeps the last input of both parts in one row: time mixing's, then channel mixing's. Models distilled from
transformers have only the first: their feed-forward parts are another model's.
"""

from dataclasses import dataclass

import numpy as np

from ..kernels.build.jit import Kernel
from ..kernels.recurrent import rwkv
from ..kernels.recurrent.states import pad_channels
from ..kernels.recurrent.wkv import gla_scan, wkv5_scan, wkv6_scan, wkv7_scan
from ..kernels.recurrent.wkv4 import DEPTH, wkv4_scan
from ..kernels.rows import elementwise
from ..loading.weights import Weights
from ..memory import HybridMemory, RecurrentSpec
from ..program.builder import Builder, Rows, round_up
from ..program.record import OpFields
from .base import MemorySpec, add_bias, optional_bias

FIRST_VALUE = "rwkv7 first value"


def shifted(
    b: Builder, x: Rows, mu: int, n_mix: int, states: np.ndarray, first: int = 0, *, difference: bool = False
) -> list[Rows]:
    """n_mix mixtures of x and the token before, and with `difference` their difference. first: place in a state's
    row."""
    n, width = x.n, round_up(x.n, 16)
    y = b.rows(n_mix * width)
    mixtures = [y.columns(j * width, n) for j in range(n_mix)]
    more: OpFields = {"difference": b.rows(n)} if difference else {}
    b.op(
        rwkv.token_shift_difference if difference else rwkv.token_shift, name="token_shift", ctl=b.batch.ctl,
        seg=b.batch.seg, x=x, mu=mu, n_mix=n_mix, state=states.ctypes.data + 4 * first, stride=states.strides[0],
        y=y, part=4 * width, n_channel=n, **more,
    )  # fmt: skip
    return [*mixtures, *more.values()]


def _map(b: Builder, kernel: Kernel, x: Rows) -> Rows:
    b.op(kernel, count=b.batch.n_tok, x=x, n=x.n)
    return x


@dataclass
class _TimeMix:
    layer: int
    n_embd: int
    d_head: int
    n_shift: int  # number of inputs that the layer keeps
    head_eps: float  # epsilon of the heads' norm

    @property
    def n_head(self) -> int:
        return self.n_embd // self.d_head

    def _load(self, w: Weights) -> None:
        if self.n_embd % self.d_head:
            raise w.wrong("wkv.head_size", self.d_head, f"a divisor of embedding_length = {self.n_embd}")
        p, n = f"blk.{self.layer}.time_mix_", self.n_embd
        sizes = {"receptance": n, "key": self.n_value, "value": self.n_value}
        self.w = {part: w.matrix(f"{p}{part}.weight", rows, n) for part, rows in sizes.items()}
        self.w["output"] = w.matrix(p + "output.weight", n, n)
        self.norm = self.norm_bias = 0

    def _load_norm(self, w: Weights) -> None:
        p = f"blk.{self.layer}.time_mix_ln."
        self.norm, self.norm_bias = w.vector(p + "weight", self.n_embd), w.vector(p + "bias", self.n_embd)

    @property
    def n_value(self) -> int:
        """Width of keys and values."""
        return self.n_embd

    def memory(self) -> tuple[RecurrentSpec]:
        n_channel = self.n_shift * self.n_embd
        return (RecurrentSpec(self.layer, n_channel, 2, self.n_head, self.d_head, self.d_head, mixer="RWKV"),)

    def _matmul(self, b: Builder, x: Rows, part: str) -> Rows:
        return b.matmul(x, self.w[part], "time_mix_" + part)


@dataclass
class Rwkv4:
    """A state of three values per channel; decay, bonus and the weights of the token shift are constants."""

    layer: int
    n_embd: int

    def load(self, w: Weights) -> None:
        p, n = f"blk.{self.layer}.time_mix_", self.n_embd
        self.w = {part: w.matrix(f"{p}{part}.weight", n, n) for part in ("key", "value", "receptance", "output")}
        self.mu = w.keep(w.array(p + "lerp_fused.weight", 3, 1, 1, n))
        self.first = w.keep(pad_channels(w.array(p + "first.weight", n)))
        rate = np.exp(w.array(p + "decay.weight", n).astype(np.float64))
        self.decay = w.keep(pad_channels(-rate))

    def memory(self) -> tuple[RecurrentSpec]:
        return (RecurrentSpec(self.layer, 2 * self.n_embd, 2, 1, self.n_embd, DEPTH, mixer="RWKV"),)

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        batch, state = b.batch, memory.recurrent.ssm[self.layer]
        parts = shifted(b, x, self.mu, 3, memory.recurrent.conv[self.layer])
        k, v, r = (
            b.matmul(rows, self.w[part], "time_mix_" + part)
            for rows, part in zip(parts, ("key", "value", "receptance"), strict=True)
        )
        b.op(
            wkv4_scan, nbytes=2 * state[0].nbytes, ctl=batch.ctl, seg=batch.seg, k=k, v=v, u=self.first, w=self.decay,
            state=state.ctypes.data, stride=state.strides[0], y=v, n_channel=self.n_embd,
        )  # fmt: skip
        b.op(elementwise.gate_rows, count=batch.n_tok, x=v, gate=r, n=v.n)
        return b.matmul(v, self.w["output"], "time_mix_output")


@dataclass
class Rwkv5(_TimeMix):
    """Decay and the weights of the token shift are constants; otherwise as RWKV-6."""

    def load(self, w: Weights) -> None:
        self._load(w)
        self._load_norm(w)
        p, n = f"blk.{self.layer}.time_mix_", self.n_embd
        self.w["gate"] = w.matrix(p + "gate.weight", n, n)
        self.mu = w.keep(w.array(p + "lerp_fused.weight", 4, 1, 1, n))
        self.first = w.keep(w.array(p + "first.weight", self.n_head, self.d_head))
        self.decay = w.vector(p + "decay.weight", n, lambda x: np.exp(-np.exp(x)))

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        batch, n = b.batch, self.n_embd
        state = memory.recurrent.ssm[self.layer]
        parts = shifted(b, x, self.mu, 4, memory.recurrent.conv[self.layer])
        k, v, r, gate = (
            self._matmul(b, rows, part)
            for rows, part in zip(parts, ("key", "value", "receptance", "gate"), strict=True)
        )
        y = b.rows(n)
        b.op(
            wkv5_scan, nbytes=2 * state[0].nbytes, flops=6 * n * self.d_head, ctl=batch.ctl, seg=batch.seg, r=r, k=k,
            v=v, w=self.decay, u=self.first, state=state.ctypes.data, stride=state.strides[0], y=y,
            n_head=self.n_head, d=self.d_head,
        )  # fmt: skip
        b.op(
            rwkv.wkv6_output, count=batch.n_tok, y=y, gate=gate, weight=self.norm, bias=self.norm_bias,
            n_head=self.n_head, d=self.d_head, eps=self.head_eps,
        )  # fmt: skip
        return self._matmul(b, y, "output")


@dataclass
class Rwkv6(_TimeMix):
    """Data-dependent token shift (five low-rank maps of rank n_mix) and decay (rank n_decay).

    n_kv: heads of keys and values where heads share them. Without the tensor `time_mix_first` the recurrence is gated
    linear attention: keys are multiplied by 1 - decay, and no norm follows.
    """

    n_mix: int
    n_decay: int
    n_kv: int = 0

    @property
    def n_value(self) -> int:
        return self.n_kv * self.d_head or self.n_embd

    def load(self, w: Weights) -> None:
        self._load(w)
        p, n = f"blk.{self.layer}.time_mix_", self.n_embd
        if self.n_kv and self.n_head % self.n_kv:
            raise w.wrong("attention.head_count_kv", self.n_kv, f"a divisor of the {self.n_head} heads")
        self.bias = {
            part: optional_bias(w, f"{p}{part}.weight", matrix.rows)
            for part, matrix in self.w.items()
            if part != "output"
        }
        self.w["gate"] = w.matrix(p + "gate.weight", n, n)
        self.mu_x = w.vector(p + "lerp_x.weight", n)
        self.w1 = w.matrix(p + "w1.weight", 5 * self.n_mix, n)
        self.w2 = w.experts(p + "w2.weight", 5, n, self.n_mix)
        if p + "lerp_fused.weight" in w:
            self.mu = w.keep(w.array(p + "lerp_fused.weight", 5, 1, 1, n))
        else:  # older files
            self.mu = w.keep(np.stack([w.array(f"{p}lerp_{part}.weight", n) for part in "wkvrg"]))
        self.decay = w.vector(p + "decay.weight", n)
        self.decay_w1 = w.matrix(p + "decay_w1.weight", self.n_decay, n)
        self.decay_w2 = w.matrix(p + "decay_w2.weight", n, self.n_decay)
        self.first = 0
        if p + "first.weight" in w:
            self._load_norm(w)
            self.first = w.keep(w.array(p + "first.weight", self.n_head, self.d_head))

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        batch, n = b.batch, self.n_embd
        state = memory.recurrent.ssm[self.layer]
        mixed, difference = shifted(b, x, self.mu_x, 1, memory.recurrent.conv[self.layer], difference=True)
        ranks = _map(b, rwkv.tanh_rows, b.matmul(mixed, self.w1, "time_mix_w1"))
        parts = []
        for i in range(5):
            part = b.matmul(ranks.columns(i * self.n_mix, self.n_mix), self.w2.one(i), "time_mix_w2")
            b.op(rwkv.mix_rows, count=batch.n_tok, x=x, difference=difference, mu=self.mu + 4 * i * n, y=part, n=n)
            parts.append(part)
        for_decay, for_key, for_value, for_receptance, for_gate = parts
        r, k, v = (
            add_bias(b, self._matmul(b, rows, part), self.bias[part])
            for rows, part in ((for_receptance, "receptance"), (for_key, "key"), (for_value, "value"))
        )
        gate = self._matmul(b, for_gate, "gate")
        ranks = _map(b, rwkv.tanh_rows, b.matmul(for_decay, self.decay_w1, "time_mix_decay_w1"))
        decay = b.matmul(ranks, self.decay_w2, "time_mix_decay_w2")
        b.op(rwkv.decay_rows, count=batch.n_tok, x=decay, bias=self.decay, n=decay.n)
        repeat = self.n_head // self.n_kv if self.n_kv else 1
        if not self.first:
            keys = b.rows(n)
            b.op(
                rwkv.gla_keys,
                count=batch.n_tok,
                k=k,
                w=decay,
                out=keys,
                n_head=self.n_head,
                repeat=repeat,
                d=self.d_head,
            )
            k = keys
        y = b.rows(n)
        own: OpFields = {"u": self.first} if self.first else {"scale": float(self.d_head**-0.5)}
        b.op(
            wkv6_scan if self.first else gla_scan, nbytes=2 * state[0].nbytes, flops=6 * n * self.d_head,
            ctl=batch.ctl, seg=batch.seg, r=r, k=k, v=v, w=decay, state=state.ctypes.data, stride=state.strides[0], y=y,
            n_head=self.n_head, d=self.d_head, repeat=repeat, **own,
        )  # fmt: skip
        if self.first:
            b.op(
                rwkv.wkv6_output, count=batch.n_tok, y=y, gate=gate, weight=self.norm, bias=self.norm_bias,
                n_head=self.n_head, d=self.d_head, eps=self.head_eps,
            )  # fmt: skip
        else:
            b.op(elementwise.gate_rows, count=batch.n_tok, x=y, gate=gate, n=n)
        return self._matmul(b, y, "output")


@dataclass
class Rwkv7(_TimeMix):
    """Low-rank maps of decay (n_decay), in-context learning rate (n_rate), share of the first layer's value (n_first),
    gate.

    n_gate 0: no gate. Some models have no norm of the heads.
    """

    n_decay: int
    n_rate: int
    n_first: int
    n_gate: int

    @property
    def by_number(self) -> bool:
        return self.layer == 0

    def load(self, w: Weights) -> None:
        self._load(w)
        p, n = f"blk.{self.layer}.time_mix_", self.n_embd
        if p + "ln.weight" in w:
            self._load_norm(w)
        ranks = {"w": self.n_decay, "a": self.n_rate, "v": self.n_first}
        if self.n_gate:
            ranks["g"] = self.n_gate
        if self.layer == 0:  # it makes the first value; llama.cpp still requires the tensors
            ranks.pop("v")
            w.ignore(*(f"{p}v{j}.weight" for j in range(3)))
        self.low = {
            part: (w.matrix(f"{p}{part}1.weight", rank, n), w.matrix(f"{p}{part}2.weight", n, rank))
            for part, rank in ranks.items()
        }
        names = ("w0", "a0", "v0") if self.layer else ("w0", "a0")
        self.bias = {name: w.vector(f"{p}{name}.weight", n) for name in (*names, "k_k", "k_a", "r_k")}
        self.mu = w.keep(w.array(p + "lerp_fused.weight", 6 if self.n_gate else 5, 1, 1, n))

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        batch, n, n_head = b.batch, self.n_embd, self.n_head
        state = memory.recurrent.ssm[self.layer]
        n_mix = 6 if self.n_gate else 5
        for_r, for_w, for_k, for_v, for_a, *for_g = shifted(b, x, self.mu, n_mix, memory.recurrent.conv[self.layer])
        r, k, v = (
            self._matmul(b, rows, part) for rows, part in ((for_r, "receptance"), (for_k, "key"), (for_v, "value"))
        )
        decay = b.matmul(_map(b, rwkv.tanh_rows, self._down(b, for_w, "w")), self.low["w"][1], "time_mix_w2")
        rate = b.matmul(self._down(b, for_a, "a"), self.low["a"][1], "time_mix_a2")
        gate = None
        if for_g:
            gate = b.matmul(_map(b, rwkv.sigmoid_rows, self._down(b, for_g[0], "g")), self.low["g"][1], "time_mix_g2")
        removed, dots, y = b.rows(n), b.rows(3 * n_head), b.rows(n)
        per: OpFields = {name: self.bias[name] for name in ("w0", "a0", "k_k", "k_a", "r_k")}
        if self.layer == 0:
            b.named[FIRST_VALUE], kernel = v, rwkv.wkv7_prepare_first
        else:
            share = b.matmul(self._down(b, for_v, "v"), self.low["v"][1], "time_mix_v2")
            kernel = rwkv.wkv7_prepare
            per |= {"mix": share, "first": b.named[FIRST_VALUE], "v0": self.bias["v0"]}
        b.op(
            kernel, name="wkv7_prepare", count=batch.n_tok, r=r, k=k, v=v, w=decay, rate=rate, kk=removed, dots=dots,
            n_head=n_head, d=self.d_head, **per,
        )  # fmt: skip
        b.op(
            wkv7_scan, nbytes=2 * state[0].nbytes, flops=10 * n * self.d_head, ctl=batch.ctl, seg=batch.seg, r=r, k=k,
            v=v, w=decay, rate=rate, kk=removed, dots=dots, state=state.ctypes.data, stride=state.strides[0], y=y,
            n_head=n_head, d=self.d_head,
        )  # fmt: skip
        finish: OpFields = {"gate": gate} if gate else {}
        if self.norm:
            finish |= {"weight": self.norm, "bias": self.norm_bias, "eps": self.head_eps}
        b.op(
            rwkv.WKV7_OUTPUT[gate is not None, bool(self.norm)], name="wkv7_output", count=batch.n_tok, y=y, v=v,
            dots=dots, n_head=n_head, d=self.d_head, **finish,
        )  # fmt: skip
        return self._matmul(b, y, "output")

    def _down(self, b: Builder, x: Rows, part: str) -> Rows:
        return b.matmul(x, self.low[part][0], f"time_mix_{part}1")


@dataclass
class ChannelMix:
    """relu(key)^2 on the shifted input; `gated` (RWKV-4 to 6): the result is multiplied by a sigmoid."""

    layer: int
    n_embd: int
    n_ff: int
    gated: bool

    def load(self, w: Weights) -> None:
        p, n = f"blk.{self.layer}.channel_mix_", self.n_embd
        parts = "kr" if self.gated else "k"
        self.mu = w.keep(np.stack([w.array(f"{p}lerp_{part}.weight", n) for part in parts]))
        self.key, self.value = w.matrix(p + "key.weight", self.n_ff, n), w.matrix(p + "value.weight", n, self.n_ff)
        if self.gated:
            self.receptance = w.matrix(p + "receptance.weight", n, n)

    def memory(self) -> tuple[MemorySpec, ...]:
        return ()  # its state is part of time mixing's row

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows:
        mixed = shifted(b, x, self.mu, 2 if self.gated else 1, memory.recurrent.conv[self.layer], x.n)
        k = b.matmul(mixed[0], self.key, "channel_mix_key")
        b.op(elementwise.relu_squared, count=b.batch.n_tok, x=k, n=k.n)
        self.change_hidden(b, x, k)
        out = b.matmul(k, self.value, "channel_mix_value")
        if self.gated:
            gate = b.matmul(mixed[1], self.receptance, "channel_mix_receptance")
            b.op(elementwise.gate_rows, count=b.batch.n_tok, x=out, gate=gate, n=out.n)
        return out

    def change_hidden(self, b: Builder, x: Rows, k: Rows) -> None:
        """Change the hidden values k, in place; x: the layer's input."""
