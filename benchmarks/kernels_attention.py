"""Attention alone: GB/s of keys and values and GFLOP/s, and their share of the machine's limits.

    python benchmarks/kernels_attention.py
    python benchmarks/kernels_attention.py --heads 20/1x128 --kv-type f16,q8_0 --depth 4096,16384,65536
    python benchmarks/kernels_attention.py --heads 16/1x576:512     (latent: values are the last 512 of the keys)

One token after `depth` others (tg), and 512 tokens (pp512). Enough layers run in a row for their keys and values to
exceed the caches, as in a model; the time is that of one layer, the best of the repetitions. Each key and value counts
once, in its stored type; a multiply-add counts as two operations, the softmax as none.
"""

import argparse
import math
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hybrid.infer.bench.machine import Machine, measure_machine
from hybrid.infer.bench.params import parse_ints
from hybrid.infer.bench.tables import duration, markdown_table
from hybrid.infer.kernels.attention.kv import KV_TYPES, cache_types
from hybrid.infer.kernels.build.jit import compile_kernels
from hybrid.infer.kernels.execute import EXECUTE
from hybrid.infer.layers.attention import Attention
from hybrid.infer.memory import HybridMemory
from hybrid.infer.program.builder import Batch, Builder, Program, Rows, aligned_empty
from hybrid.infer.program.threads import Pool, default_threads

PROMPT = 512
LARGE = 192 << 20  # bytes that do not stay in the caches between runs
MOST_LAYERS = 64
HEADS = ("32/8x64", "32/8x128", "20/1x128", "16/16x128")


@dataclass(frozen=True)
class Row:
    """Time of one layer, and its work."""

    heads: str
    kv_type: str
    depth: int
    n_tok: int
    seconds: float
    nbytes: int
    flops: int


def measure(heads: str, kv_type: str, depth: int, n_tok: int, n_threads: int, repetitions: int, cap: float) -> Row:
    """Time one layer. heads: query heads / KV heads x values of a head; with ":n" the last n of a key are its value."""
    kind, layer = cache_types(kv_type), _layer(0, heads, cap)
    n_ctx = depth + n_tok
    of_layer = layer.memory()[0].bytes_per_token(kind) * n_ctx
    n_layer = 1 if n_tok > 1 else min(MOST_LAYERS, math.ceil(LARGE / of_layer))
    layers = [_layer(i, heads, cap) for i in range(n_layer)]
    memory = HybridMemory([item.memory()[0] for item in layers], 1, n_ctx, kind)
    memory.fill(0, n_ctx)
    program, keep = _program(layers, memory, depth, n_tok, n_threads)
    pool = Pool(n_threads)
    try:
        best = math.inf
        for _ in range(repetitions + 1):
            start = time.perf_counter()
            pool.run(program, stoppable=True)
            best = min(best, time.perf_counter() - start)
    finally:
        pool.close()
    del keep
    n_scores = sum(range(depth + 1, depth + n_tok + 1))
    nbytes = (depth + n_tok) * layer.memory()[0].bytes_per_token(kind)
    flops = 2 * n_scores * layer.n_head * (layer.d_head + layer.d_value)
    return Row(heads, kv_type, depth, n_tok, best / n_layer, nbytes, flops)


def _layer(i: int, heads: str, cap: float) -> Attention:
    n_head, n_kv, d_head, *d_value = map(int, re.split("[/x:]", heads))
    return Attention(i, 1, n_head, n_kv, d_head, soft_cap=cap, d_value=sum(d_value), latent=bool(d_value))


def _program(
    layers: list[Attention], memory: HybridMemory, depth: int, n_tok: int, n_threads: int
) -> tuple[Program, object]:
    """The attention of all layers for one batch, and objects that have to stay alive for it."""
    control = np.zeros((6, max(8, n_tok)), np.int64)
    control[0, :3] = (n_tok, 1, 0)
    control[1, :n_tok] = np.arange(depth, depth + n_tok)
    control[3, :4] = (0, n_tok, 0, 0)
    at = [int(row.ctypes.data) for row in control]
    counts, pos, zeros = at[0], at[1], at[5]
    batch = Batch(
        n_tok=counts, n_seg=counts + 8, n_out=counts + 16, ctl=counts, tokens=zeros, pos=pos, slot=at[2], seg=at[3],
        out_index=zeros, targets=zeros, all_tokens=zeros, all_outputs=zeros, last=pos, rope_pos=pos,
    )  # fmt: skip
    b = Builder(n_tok, n_threads, exact=False, batch=batch)
    width = layers[0].n_head * layers[0].d_head
    queries = aligned_empty(4 * width * n_tok).view(np.float32)
    queries[:] = np.random.default_rng(0).standard_normal(width * n_tok)
    for layer in layers:
        layer.attend(b, Rows(int(queries.ctypes.data), width, 4 * width), memory)
    program = b.build()
    compile_kernels([EXECUTE, *program.kernels])
    program.link()
    return program, (control, queries, memory)


def cells(row: Row, machine: Machine) -> list[str]:
    """A row of the table: parameters, rates, and shares of the machine's limits."""
    gb_s, gflop_s = row.nbytes / row.seconds / 1e9, row.flops / row.seconds / 1e9
    return [
        row.heads,
        row.kv_type,
        str(row.depth),
        f"pp{row.n_tok}" if row.n_tok > 1 else "tg",
        duration(row.seconds),
        f"{gb_s:.1f}",
        f"{gb_s / machine.read_gb_s:.0%}",
        f"{gflop_s:.1f}",
        f"{gflop_s / machine.f32_gflop_s:.0%}",
    ]


def cases(arguments: argparse.Namespace) -> Iterator[tuple[str, str, int, int]]:
    for heads in arguments.heads.split(","):
        for kv_type in arguments.kv_type.split(","):
            for depth in parse_ints(arguments.depth, "--depth"):
                if depth:
                    yield heads, kv_type, depth, 1
                if PROMPT + depth <= arguments.most_prompt:
                    yield heads, kv_type, depth, PROMPT


def main() -> None:
    """Measure all requested sizes, cache types and depths, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--heads",
        default=",".join(HEADS),
        help="query heads / KV heads x values of a head, several",
    )
    parser.add_argument("--kv-type", default=",".join(KV_TYPES), help="f32, f16, q8_0, or several")
    parser.add_argument("--depth", default="0,4096,16384", help="tokens in memory beforehand")
    parser.add_argument("--most-prompt", type=int, default=20000, help="leave out prompts that end after this token")
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--soft-cap", type=float, default=0.0)
    parser.add_argument("-r", "--repetitions", type=int, default=5)
    arguments = parser.parse_args()
    machine = measure_machine(arguments.threads)
    rows = [
        cells(measure(*case, arguments.threads, arguments.repetitions, arguments.soft_cap), machine)
        for case in cases(arguments)
    ]
    header = ["heads", "kv", "depth", "test", "layer", "GB/s", "of read", "GFLOP/s", "of FMA"]
    print(markdown_table(header, rows, left=2), end="")
    print(
        f"{machine.cpu}, {machine.n_threads} threads: {machine.read_gb_s:.1f} GB/s read, "
        f"{machine.f32_gflop_s:.0f} GFLOP/s f32"
    )


if __name__ == "__main__":
    main()
