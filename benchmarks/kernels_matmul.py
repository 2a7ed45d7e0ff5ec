"""Products of weights and activations alone: GB/s and Gop/s, and their share of the machine's limits.

    python benchmarks/kernels_matmul.py                          every weight type, on all cores
    python benchmarks/kernels_matmul.py --type Q4_K,Q6_K --threads 1 --columns 1,8,512

`cached` multiplies matrices that fit the second-level cache, `GB/s` matrices from memory, as in a model: there the
limit is the read bandwidth, measured in the same run. With many columns arithmetic is the limit: `of peak` is the share
of the rate of a loop of the same instructions on registers only (see infer/bench/machine.py). A multiplication and an
addition count as two operations. Packing the activations is not included.
"""

import argparse
import time

import numpy as np

from hybrid.infer.bench.machine import Machine, default_threads, measure_machine
from hybrid.infer.bench.tables import markdown_table
from hybrid.infer.kernels.build.jit import compile_kernels
from hybrid.infer.kernels.emit.isa import host
from hybrid.infer.kernels.products import gemm
from hybrid.infer.kernels.weights import FLOAT_BLOCKS, INT_BLOCKS
from hybrid.infer.program.builder import Batch, Builder, Rows, Weight
from hybrid.infer.program.threads import Pool
from hybrid.quant.ggml.formats.random_blocks import random_blocks
from hybrid.quant.ggml.types import GGMLType, row_nbytes

ROWS, LENGTH = 8192, 2560  # as in a model of 3 billion weights
MEMORY = 160 << 20  # bytes of weights, more than the caches hold
CACHE = 128 << 10  # bytes of weights that fit a core's second-level cache


class Bench:
    """Programs of products on `n_threads` threads."""

    def __init__(self, n_threads: int, seconds: float, exact: bool) -> None:
        self.pool, self.n_threads, self.seconds, self.exact = Pool(n_threads), n_threads, seconds, exact
        self._control = np.zeros(16, np.int64)

    def seconds_of(self, kind: GGMLType, rows: int, length: int, columns: int, n_matrix: int, times: int = 1) -> float:
        """Seconds of one product of [rows, length] with `columns` columns: the minimum of some runs, as for the limits.

        Every run multiplies `n_matrix` matrices `times` times.
        """
        some = random_blocks(kind, (16, length), np.random.default_rng(1), 0.02)
        raw = np.tile(some, (n_matrix * rows // 16 + 1, 1))[: n_matrix * rows]
        x = np.random.default_rng(2).standard_normal((columns, length)).astype(np.float32)
        self._control[:5] = (columns, 1, 0, 0, columns)
        at = int(self._control.ctypes.data)
        batch = Batch(*[at] * 10, all_tokens=at + 8, all_outputs=at + 8)
        b = Builder(columns, self.n_threads, exact=self.exact, batch=batch)
        source = Rows(int(x.ctypes.data), length, x.strides[0])
        for i in range(n_matrix * times):
            address = int(raw.ctypes.data) + i % n_matrix * rows * raw.strides[0]
            b.matmul(source, Weight("w", kind, rows, length, address, raw.strides[0], keep=raw), "product")
        program = b.build()
        compile_kernels(program.kernels)
        program.link()
        stamps = np.zeros(len(program.ops) + 1, np.int64)
        products = [i for i, op in enumerate(program.ops) if op.name == "product"]
        measured: list[float] = []
        begin = time.perf_counter()
        while len(measured) < 3 or time.perf_counter() - begin < self.seconds:
            start = time.perf_counter()
            self.pool.run(program, stoppable=True, stamps=int(stamps.ctypes.data))
            seconds = time.perf_counter() - start
            spent = np.diff(stamps)
            measured.append(seconds * float(spent[products].sum() / spent.sum()) / (n_matrix * times))
        return min(measured[1:])


def peak_of(kind: GGMLType, machine: Machine, exact: bool) -> float | None:
    """Gop/s of the instructions that multiply this type in a prompt."""
    if kind is GGMLType.BF16 and host().bf16 and not exact:
        return machine.dot_gop_s.get("pairs")
    if exact or kind not in INT_BLOCKS:
        return machine.f32_gflop_s
    return machine.dot_gop_s.get(gemm.scheme(kind, host()).name)


def row(bench: Bench, kind: GGMLType, columns: list[int], machine: Machine) -> list[str]:
    """A row of the table: the type, and its rates for each number of columns with their shares of the limits."""
    nbytes = ROWS * row_nbytes(kind, LENGTH)
    cells = [kind.name]
    for n in columns:
        if n == 1:
            small = max(32, CACHE * bench.n_threads // row_nbytes(kind, 2560) // 32 * 32)
            cached = small * row_nbytes(kind, 2560) / bench.seconds_of(kind, small, 2560, 1, 1, 200) / 1e9
            rate = nbytes / bench.seconds_of(kind, ROWS, LENGTH, 1, max(1, MEMORY // nbytes)) / 1e9
            cells += [f"{cached:.1f}", f"{rate:.1f}", f"{100 * rate / machine.read_gb_s:.0f} %"]
        elif n <= 64:
            rate = nbytes / bench.seconds_of(kind, ROWS, LENGTH, n, max(1, MEMORY // nbytes)) / 1e9
            cells += [f"{rate:.1f}"]
        else:
            rate = 2 * n * ROWS * LENGTH / bench.seconds_of(kind, ROWS, LENGTH, n, 1) / 1e9
            peak = peak_of(kind, machine, bench.exact)
            cells += [f"{rate:.0f}", f"{100 * rate / peak:.0f} %" if peak else "-"]
    return cells


def main() -> None:
    """Measure all requested types and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--type", default=",".join(k.name for k in FLOAT_BLOCKS), help="weight types, with commas")
    parser.add_argument("--columns", default="1,4,8,16,512", help="columns of activations, with commas")
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--seconds", type=float, default=0.3, help="seconds per measurement")
    parser.add_argument("--exact", action="store_true", help="products in f32, as --exact of the commands")
    args = parser.parse_args()
    machine = measure_machine(args.threads)
    peaks = ", ".join(f"{name} {rate:.0f}" for name, rate in machine.dot_gop_s.items())
    print(f"{machine.cpu}, {machine.isa}, {args.threads} threads: read {machine.read_gb_s:.1f} GB/s, f32 ", end="")
    print(f"{machine.f32_gflop_s:.0f} GFLOP/s, 8-bit products in Gop/s: {peaks or '-'}\n")
    bench = Bench(args.threads, args.seconds, args.exact)
    columns = [int(n) for n in args.columns.split(",")]
    header = ["type"]
    for n in columns:
        header += ["cached", "GB/s", "of read"] if n == 1 else [f"{n}: GB/s"] if n <= 64 else [f"{n}: Gop/s", "of peak"]
    print(markdown_table(header, [row(bench, GGMLType[k], columns, machine) for k in args.type.split(",")]), end="")


if __name__ == "__main__":
    main()
