"""Recurrent kernels alone: time per token, and the share of the machine's limits.

    python benchmarks/kernels_recurrent.py                       all kernels, on all cores
    python benchmarks/kernels_recurrent.py --kernel mamba2_scan --threads 1

Every kernel runs as in a model: one op per layer, each with its own state, so that states of a model that exceeds the
caches come from memory. `prompt` is 512 tokens of one sequence, `1 seq` and `16 seqs` one token of each.

    ops      multiplications, additions and multiply-adds per token, without divisions and the like; an exponential
             counts as its parts; `of FMA` is the share of the multiply-adds that the cores do in registers
    memory   states read and written (decoding), or rows read and written (prompts), compared with a loop that
             multiplies a large array in place, counted likewise
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hybrid.infer.bench.machine import cpu_name, measure_machine
from hybrid.infer.bench.tables import markdown_table
from hybrid.infer.kernels.build.jit import Kernel, compile_kernels, kernel
from hybrid.infer.kernels.emit.emitter import F32, I64, Vec, const, emit
from hybrid.infer.kernels.emit.fields import Address, Int
from hybrid.infer.kernels.recurrent import conv, delta, mamba1, mamba2, rglru, wkv
from hybrid.infer.kernels.recurrent.states import state_shape
from hybrid.infer.program.builder import Batch, Builder
from hybrid.infer.program.operands import Rows
from hybrid.infer.program.threads import Pool, default_threads

EXP, SILU, SOFTPLUS = 12, 14, 24  # operations of Emitter.exp2, sigmoid_times, softplus
MOST_STATE = 256 << 20  # bytes of all states of a measurement
LARGE = 128 << 20  # bytes, more than any cache holds
BATCHES = {"prompt": (512, 1), "1 seq": (1, 1), "16 seqs": (1, 16)}  # tokens of each sequence, sequences
Fields = dict[str, np.ndarray | int | float]


@dataclass(frozen=True)
class Case:
    """A kernel at a model's sizes. `ops` and `row_bytes` are per token; `state`: shape of one sequence's state, in
    floats."""

    kernel: Kernel
    model: str
    n_layer: int
    state: tuple[int, ...]
    ops: int
    row_bytes: int
    fields: Callable[[int], Fields]
    """Tokens -> the op's fields but for batch control and states."""


def rows(n_tok: int, width: int, low: float = -1.0, high: float = 1.0) -> np.ndarray:
    """f32 [n_tok, width], uniform between low and high, the same in every run."""
    return np.random.default_rng(width).uniform(low, high, (n_tok, width)).astype(np.float32)


def conv_case(item: Kernel, model: str, n_layer: int, channels: int, taps: int, gates: int, activation: int) -> Case:
    """A convolution of `taps` taps over `channels`, with `gates` rows of gates; `activation` operations per value."""

    def fields(n: int) -> Fields:
        x, y = rows(n, channels), rows(n, channels)
        w, bias = rows(taps, channels), rows(1, channels)
        gated = {name: rows(n, channels) for name in ("before", "after")[:gates]}
        return {"x": x, "w": w, "bias": bias, "y": y, "n_channel": channels, "d_conv": taps, **gated}

    ops = channels * (taps + activation + gates)
    return Case(item, model, n_layer, (taps - 1, channels), ops, 4 * channels * (2 + 2 * gates), fields)


def mamba1_case(model: str, n_layer: int, channels: int, d_state: int) -> Case:
    """The selective scan of `channels` with d_state states each."""

    def fields(n: int) -> Fields:
        x, dt, z, y = (rows(n, channels) for _ in range(4))
        bias, skip = rows(1, channels, -7, -2), rows(1, channels)
        decay = mamba1.scan_decay(-np.tile(np.arange(1.0, d_state + 1), (channels, 1)))
        B, C = rows(n, d_state), rows(n, d_state)
        return {
            "x": x, "dt": dt, "dt_bias": bias, "decay": decay, "skip": skip, "b": B, "c": C, "z": z, "y": y,
            "n_channel": channels, "d_state": d_state,
        }  # fmt: skip

    ops = channels * (d_state * (EXP + 4) + SOFTPLUS + SILU + 5)
    return Case(mamba1.mamba1_scan, model, n_layer, state_shape(1, channels, d_state), ops, 4 * 4 * channels, fields)


def mamba2_case(model: str, n_layer: int, n_head: int, d_head: int, d_state: int, n_group: int = 1) -> Case:
    """The scan of n_head heads of d_head x d_state; n_group groups of B and C."""
    inner = n_head * d_head

    def fields(n: int) -> Fields:
        xbc, z, y = rows(n, inner + 2 * n_group * d_state), rows(n, inner), rows(n, inner)
        delta, decay = rows(n, n_head, 0.001, 0.1), rows(n, n_head, 0.5, 1.0)
        b = xbc.ctypes.data + 4 * inner
        return {
            "x": xbc, "b": b, "c": b + 4 * n_group * d_state, "ld": xbc.strides[0], "delta": delta, "decay": decay,
            "skip": rows(1, n_head), "z": z, "y": y, "n_head": n_head, "d_head": d_head, "d_state": d_state,
            "n_group": n_group,
        }  # fmt: skip

    ops = inner * (3 * d_state + SILU + 3)
    state = state_shape(n_head, d_head, d_state)
    return Case(mamba2.mamba2_scan, model, n_layer, state, ops, 4 * 3 * inner, fields)


def delta_case(model: str, n_layer: int, n_head: int, n_k_head: int, d_k: int, d_v: int, n_channel: int) -> Case:
    """The delta rule: n_head values of d_v, n_k_head keys of d_k, n_channel gates per head (1 or d_k)."""

    def fields(n: int) -> Fields:
        qkv, y = rows(n, 2 * n_k_head * d_k + n_head * d_v, -0.1, 0.1), rows(n, n_head * d_v)
        gate, beta = rows(n, n_head * n_channel, 0.9, 1.0), rows(n, n_head, 0.0, 1.0)
        k = qkv.ctypes.data + 4 * n_k_head * d_k
        return {
            "q": qkv, "k": k, "v": k + 4 * n_k_head * d_k, "ld": qkv.strides[0], "gate": gate, "beta": beta, "y": y,
            "n_head": n_head, "n_k_head": n_k_head, "repeat": n_head // n_k_head, "d_k": d_k, "d_v": d_v,
            "n_channel": n_channel,
        }  # fmt: skip

    ops = n_head * d_v * (4 * d_k + 3)
    return Case(delta.delta_scan, model, n_layer, state_shape(n_head, d_v, d_k), ops, 4 * 2 * n_head * d_v, fields)


def rg_lru_case(model: str, n_layer: int, channels: int) -> Case:
    """The recurrence of RG-LRU over `channels`."""

    def fields(n: int) -> Fields:
        x, r, i, y = (rows(n, channels) for _ in range(4))
        bias, rate = rows(1, channels), rglru.lru_rate(rows(1, channels)[0])
        return {
            "x": x,
            "gate_r": r,
            "bias_r": bias,
            "gate_i": i,
            "bias_i": bias,
            "rate": rate,
            "y": y,
            "n_channel": channels,
        }

    ops = channels * (2 * SILU + 2 * EXP + 8)
    return Case(rglru.rg_lru, model, n_layer, state_shape(1, channels, 1), ops, 4 * 4 * channels, fields)


def wkv_case(item: Kernel, model: str, n_layer: int, n_head: int, d: int) -> Case:
    """RWKV's recurrence: n_head heads of d x d. Decays are near 1; the vectors that RWKV-7 removes have norm 1 / 16."""
    width, parts, fma = n_head * d, 4, 3
    if item is wkv.wkv7_scan:
        parts, fma = 6, 5

    def fields(n: int) -> Fields:
        y, w = rows(n, width), rows(n, width, 0.9, 1.0)
        own: Fields = {"u": rows(1, width)}
        if item is wkv.wkv7_scan:
            own = {name: rows(n, width, -0.03, 0.03) for name in ("rate", "kk")} | {"dots": rows(n, 3 * n_head)}
        r, k, v = rows(n, width, -0.1, 0.1), rows(n, width, -0.1, 0.1), rows(n, width)
        return {"r": r, "k": k, "v": v, "w": w, "ld": y.strides[0], "y": y, "n_head": n_head, "d": d, **own}

    ops = width * (fma * d + 4)
    return Case(item, model, n_layer, state_shape(n_head, d, d), ops, 4 * (parts + 1) * width, fields)


CASES = [
    conv_case(conv.conv1d_silu, "jamba-3b", 26, 5120, 4, 0, SILU),
    conv_case(conv.conv1d_gated, "lfm2-1.2b", 10, 2048, 3, 2, 0),
    conv_case(conv.conv1d, "recurrent-gemma-2b", 18, 2560, 4, 0, 0),
    mamba1_case("jamba-3b", 26, 5120, 16),
    mamba2_case("granite-h-tiny", 36, 48, 64, 128),
    mamba2_case("mamba2-2.7b", 64, 80, 64, 128),
    delta_case("qwen3-next-80b", 36, 32, 16, 128, 128, 1),
    delta_case("kimi-linear-48b", 20, 32, 32, 128, 128, 128),
    rg_lru_case("recurrent-gemma-2b", 18, 2560),
    wkv_case(wkv.wkv6_scan, "rwkv6-1.6b", 24, 32, 64),
    wkv_case(wkv.wkv7_scan, "rwkv7-1.5b", 24, 32, 64),
]


# --- measuring --------------------------------------------------------------------------------------------------------
@emit("i64,i64->void")
def _scale_floats(e, x, n):
    half = const(Vec(F32, 16), 0.5)

    def one(o, _):
        e.store(e.b.fmul(e.load(Vec(F32, 16), x, o), half), x, o)

    e.loop(e.b.shl(n, const(I64, 2)), one, step=64)


@kernel
def bench_update(a, tid, nth, *, x: Address, n: Int):
    """x /= 2, n floats, a multiple of 16 * nth."""
    share = n // nth
    _scale_floats(x + 4 * tid * share, share)


class Bench:
    """Programs of one op per layer on `n_threads` threads."""

    def __init__(self, n_threads: int, seconds: float) -> None:
        self.pool, self.n_threads, self.seconds = Pool(n_threads), n_threads, seconds

    def time(self, item: Kernel, layers: list[Fields]) -> float:
        """Seconds of one op: the minimum of some runs, as for the limits."""
        b = Builder(1, self.n_threads, exact=True, batch=Batch(*[0] * 12))
        for fields in layers:
            b.op(item, **{name: self._operand(item, name, value) for name, value in fields.items()})
        program = b.build()
        compile_kernels(program.kernels)
        program.link()
        times: list[float] = []
        begin = time.perf_counter()
        while len(times) < 3 or time.perf_counter() - begin < self.seconds:
            start = time.perf_counter()
            self.pool.run(program, stoppable=True)
            times.append((time.perf_counter() - start) / len(layers))
        return min(times[1:])

    @staticmethod
    def _operand(item: Kernel, name: str, value: np.ndarray | int | float) -> Rows | int | float:
        """Arrays become rows if the kernel has a field for their stride, otherwise their address."""
        if not isinstance(value, np.ndarray):
            return value
        if item.layout.find("ld" + name):
            return Rows(value.ctypes.data, value.shape[-1], value.strides[0])
        return int(value.ctypes.data)

    def update_rate(self) -> float:
        """Bytes per second, read and written."""
        x = np.ones(LARGE // 4, np.float32)
        return (
            2
            * x.nbytes
            / self.time(bench_update, [{"x": x, "n": x.size // (16 * self.n_threads) * 16 * self.n_threads}])
        )

    def case(self, case: Case, n_tok: int, n_seq: int) -> float:
        """Seconds per call of a kernel: `n_seq` sequences of `n_tok` tokens, states from memory."""
        size = 4 * int(np.prod(case.state)) * n_seq
        n_layer = max(1, min(case.n_layer, MOST_STATE // size))
        ctl = np.array([n_tok * n_seq, n_seq, 0], np.int64)
        seg = np.array([(i * n_tok, n_tok, i, i) for i in range(n_seq)], np.int64)
        states = [np.zeros((n_seq, *case.state), np.float32) for _ in range(n_layer)]
        fields = case.fields(n_tok * n_seq) | {"ctl": ctl, "seg": seg}
        layers = [fields | {"state": state, "stride": state.strides[0]} for state in states]
        return self.time(case.kernel, layers)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", default="", help="only kernels whose names contain this")
    parser.add_argument("--model", default="", help="only the sizes of this model")
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--seconds", type=float, default=0.3, help="seconds per measurement")
    args = parser.parse_args()
    machine, bench = measure_machine(args.threads), Bench(args.threads, args.seconds)
    rate = bench.update_rate()
    print(f"{cpu_name()}, {args.threads} threads, {machine.f32_gflop_s:.0f} GFLOP/s, update {rate / 1e9:.1f} GB/s\n")
    table = []
    for case in CASES:
        if args.kernel not in case.kernel.name or args.model not in case.model:
            continue
        for name, (n_tok, n_seq) in BATCHES.items():
            seconds, n = bench.case(case, n_tok, n_seq), n_tok * n_seq
            nbytes = case.row_bytes * n if n_tok > 1 else 8 * int(np.prod(case.state)) * n_seq
            gops = case.ops * n / seconds / 1e9
            table.append(
                [
                    case.kernel.name,
                    case.model,
                    name,
                    f"{seconds * 1e6:.1f}",
                    f"{seconds / n * 1e9:.0f}",
                    f"{gops:.1f}",
                    f"{200 * gops / machine.f32_gflop_s:.0f} %",
                    f"{nbytes / seconds / 1e9:.1f}",
                    f"{100 * nbytes / seconds / rate:.0f} %",
                ]
            )
    header = ["kernel", "model", "batch", "us/op", "ns/token", "Gop/s", "of FMA", "GB/s", "of memory"]
    print(markdown_table(header, table, left=3))


if __name__ == "__main__":
    main()
