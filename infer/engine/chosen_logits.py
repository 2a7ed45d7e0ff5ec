"""Logits of a few tokens alone, from the rows after the last norm: the same bits as among all logits."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hybrid.quant.ggml.errors import UnsupportedError

from ..program.builder import Builder, Program, Rows, Weight, aligned_empty
from .engine import Engine
from .network import FixedRows
from .ubatch import Control

MOST_ROWS = 32  # of one run


class ChosenLogits:
    """Multiplies with the rows `tokens` of the model's output matrix. UnsupportedError: an adapter changes it."""

    def __init__(self, engine: Engine, tokens: Sequence[int]) -> None:
        net, chosen = engine.network, list(tokens)
        if net.output.adapters is not None:
            raise UnsupportedError("an adapter changes the output matrix: single rows of it cannot be computed then.")
        self.engine, self.tokens = engine, chosen
        self._matrix = _rows_of(net.output, chosen)
        bias = net.weights.array("output.bias", net.n_vocab)[chosen] if net.output_bias else None
        self._bias = 0 if bias is None else net.weights.keep(bias)
        self._given, self._control = FixedRows(engine.hparams.n_embd, MOST_ROWS), Control(MOST_ROWS)
        self._made: tuple[Program, Rows] | None = None

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """The logits, f32 [n, tokens], of hidden states f32 [n, n_embd] (`Runner.hidden_states`)."""
        return np.concatenate([self._of(rows[i : i + MOST_ROWS]) for i in range(0, len(rows), MOST_ROWS)])

    def _of(self, rows: np.ndarray) -> np.ndarray:
        n = len(rows)
        program, logits = self._program()
        self._given.values[:n] = rows
        self._control.want(range(n))
        self.engine.run_program(program)
        return program.view(logits, n).copy()

    def _program(self) -> tuple[Program, Rows]:
        if self._made is None:
            engine, batch = self.engine, self._control.batch
            b = Builder(MOST_ROWS, engine.n_threads, exact=engine.exact, batch=batch)
            logits = engine.network.add_logits(b, self._given.rows, self._matrix, self._bias)
            b.keep(logits)
            program = b.build()
            engine.compile_program(program)
            self._made = program, logits
        return self._made


def _rows_of(w: Weight, rows: Sequence[int]) -> Weight:
    """The matrix of some rows of a matrix."""
    values = np.asarray(w.keep).reshape(w.rows, -1)[list(rows)]
    copy = aligned_empty(values.nbytes).view(values.dtype).reshape(values.shape)
    copy[...] = values
    address, stride = int(copy.ctypes.data), int(copy.strides[0])
    return replace(w, rows=len(copy), address=address, stride=stride, keep=copy)
