"""Hyper-connections as a program against float64: consecutive sublayers, and both kinds of ends."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from reference.hyper_connections import hyper_connected, learned_collapse
from reference.run_kernel import run, worst

from hybrid.infer.layers.hyper_connections import HyperConnected, HyperSizes, LearnedMixOfStreams, MeanOfStreams
from hybrid.infer.layers.streams import Streams
from hybrid.infer.program.builder import Batch, Builder, Columns, Rows, Weight, aligned_empty, round_up
from hybrid.quant.ggml.errors import FormatError
from hybrid.quant.ggml.types import GGMLType

N_EMBD, EPS, FLOOR, N_ITER = 24, 3e-4, 1e-3, 4


class Drawn:
    """Random weights by name, for a seed."""

    def __init__(self) -> None:
        self.rng, self.all = np.random.default_rng(7), {}

    def _draw(self, name: str, *shape: int) -> np.ndarray:
        self.all[name] = 0.5 * self.rng.standard_normal(shape, np.float32)
        return self.all[name]

    def vector(self, name: str, n: int) -> int:
        return int(self._draw(name, n).ctypes.data)

    def matrix(self, name: str, rows: int, n: int) -> Weight:
        padded = aligned_empty(4 * rows * round_up(n, 16)).view(np.float32).reshape(rows, -1)
        padded[:] = 0
        padded[:, :n] = self._draw(name, rows, n)
        return Weight(name, GGMLType.F32, rows, padded.shape[1], padded.ctypes.data, padded.strides[0], keep=padded)

    def keep(self, values: np.ndarray) -> int:
        self.all[str(len(self.all))] = values
        return int(values.ctypes.data)

    def wrong(self, key: str, value: int, expected: str) -> FormatError:
        return FormatError(f"{key} = {value}, expected {expected}")

    def doubles(self, name: str) -> list[np.ndarray]:
        return [self.all[f"{name}_{part}.weight"].astype(np.float64) for part in ("fn", "base", "scale")]


class Same:
    """A layer that returns its input."""

    def load(self, w: Any) -> None: ...

    def memory(self) -> tuple[()]:
        return ()

    def build(self, b: Builder, x: Rows, memory: Any) -> Rows:
        return x


def sizes(n_stream: int, n_iter: int = N_ITER) -> HyperSizes:
    return HyperSizes(N_EMBD, n_stream, n_iter, FLOOR, EPS)


# one column at a time, few, and tiles, for which columns are packed
@pytest.mark.parametrize("n_tok", [2, 7, 21])
@pytest.mark.parametrize(("n_stream", "end"), [(3, MeanOfStreams), (4, LearnedMixOfStreams)])
def test_program(n_tok: int, n_stream: int, end: Any) -> None:
    w: Any = Drawn()
    parts = [HyperConnected(Same(), f"hc{i}", f"norm{i}", sizes(n_stream)) for i in range(2)]  # type: ignore[arg-type]
    streams: Streams = end(sizes(n_stream))
    for part in (*parts, streams):
        part.load(w)
    count, groups = np.array([n_tok]), np.array([1, 0, 0, n_tok])
    batch = Batch(**dict.fromkeys(Batch.__match_args__, 0))
    batch = Batch(**vars(batch) | {"n_tok": count.ctypes.data, "all_tokens": groups.ctypes.data})
    b = Builder(n_tok, 1, exact=True, batch=batch)
    x = np.zeros((n_tok, n_stream, N_EMBD), np.float32)
    x[:, 0] = np.random.default_rng(n_tok).standard_normal((n_tok, N_EMBD))
    rows = Rows(x.ctypes.data, n_stream * N_EMBD, x.strides[0])
    streams.begin(b, rows)
    for part in parts:
        part.build(b, rows, SimpleNamespace())  # type: ignore[arg-type]
    left = streams.end(b, rows, Columns(groups.ctypes.data, n_tok), count.ctypes.data)
    b.keep(left)
    program = b.build()
    program.counters[:] = 0
    want = np.repeat(x[:, :1].astype(np.float64), n_stream, 1)
    for op, record in zip(program.ops, program.records, strict=True):
        run(op.kernel, record[1:].copy())
    for i in range(2):
        weight = w.all[f"norm{i}"].astype(np.float64)

        def normed(v: np.ndarray, weight: np.ndarray = weight) -> np.ndarray:
            return v / np.sqrt((v * v).mean(1, keepdims=True) + EPS) * weight

        want = hyper_connected(want, *w.doubles(f"hc{i}"), N_ITER, EPS, FLOOR, normed)
    assert worst(x, want) < 5e-6
    learned = end is LearnedMixOfStreams
    ended = learned_collapse(want, *w.doubles("output_hc"), EPS, FLOOR) if learned else want.mean(1)
    assert worst(program.view(left, n_tok), ended) < 5e-6


@pytest.mark.parametrize(
    ("n_stream", "n_iter", "message"),
    [
        (0, 4, "hyper_connection.count = 0, expected 1 to 8"),
        (9, 4, "hyper_connection.count = 9, expected 1 to 8"),
        (4, 0, "hyper_connection.sinkhorn_iterations = 0, expected 1 to 1000"),
        (4, 2**31 - 1, "hyper_connection.sinkhorn_iterations = 2147483647, expected 1 to 1000"),
    ],
)
def test_refused(n_stream: int, n_iter: int, message: str) -> None:
    part = HyperConnected(Same(), "hc", "norm", sizes(n_stream, n_iter))  # type: ignore[arg-type]
    with pytest.raises(FormatError, match=message):
        part.load(Drawn())  # type: ignore[arg-type]
