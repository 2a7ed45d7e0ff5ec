"""Passes of a head for multi-token prediction: in the threads of its model's engine, with a memory of its own.

The memory is separate because the head does not keep the same tokens as the model: it lags behind, begins where states
were first available, holds guesses that are taken back, and may be dropped at any time. Checkpoints, state files and
copies of sequences do not depend on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..memory import HybridMemory
from ..program.builder import Builder, Program, Rows, aligned_empty, round_up
from .engine import Engine
from .head import Head
from .ubatch import Control, Segment


@dataclass(frozen=True, eq=False)
class HeadSegment:
    """Tokens for a sequence of the head's memory, with the states of the token before each, f32 [n, width].

    The states are the model's, or the head's own. wanted: whether the last token's state and logits are needed.
    """

    slot: int
    tokens: Sequence[int]
    states: np.ndarray
    wanted: bool = True


@dataclass(frozen=True, eq=False)
class HeadOutputs:
    """Outputs of the `wanted` segments, in order: states f32 [n, width] and logits f32 [n, n_vocab]."""

    states: np.ndarray
    logits: np.ndarray


class HeadPasses:
    """The passes of the head of an engine's network."""

    def __init__(self, engine: Engine, head: Head) -> None:
        self.engine, self.head = engine, head
        n, self.n_ubatch = head.width, engine.n_ubatch
        kind = engine.memory.attention.kind
        self.memory = HybridMemory(head.specs, engine.memory.n_seq_max, engine.n_ctx, kind)
        self._control = Control(self.n_ubatch)
        ld = round_up(n, 16) * 4
        self._kept = [aligned_empty(ld * self.n_ubatch) for _ in range(2)]
        self._states, self._stream = (Rows(int(a.ctypes.data), n, ld) for a in self._kept)
        self._given = self._kept[0].view(np.float32).reshape(-1, ld // 4)[:, :n]
        self._blocks: dict[int, Program] = {}
        self._outputs: dict[int, tuple[Program, Rows, Rows]] = {}

    def run(self, segments: Sequence[HeadSegment]) -> HeadOutputs:
        """Run all segments in passes of at most n_ubatch tokens; the head's memory then has them."""
        states, logits = [], []
        for part in self._parts(segments):
            n_tok = sum(len(s.tokens) for s in part)
            moves = []
            first = 0
            for s in part:
                self._given[first : first + len(s.tokens)] = s.states
                first += len(s.tokens)
                moves.append(self.memory.begin(s.slot, len(s.tokens)))
                self.engine.reach(moves[-1])
            # a head reads the first token in place of a picture's: its guesses may only be worse
            ends = [
                Segment(s.slot, [max(t, 0) for t in s.tokens], (len(s.tokens) - 1,) if s.wanted else ()) for s in part
            ]
            rows, _ = self._control.fill(ends, moves)
            self.engine.run_program(self._block(n_tok))
            for move in moves:
                self.memory.finish(move)
            if rows:
                self._control.want(rows)
                program, own, out = self._output(len(rows))
                self.engine.run_program(program)
                states.append(program.view(own, len(rows)).copy())
                logits.append(program.view(out, len(rows)).copy())
        return HeadOutputs(
            np.concatenate(states) if states else np.zeros((0, self.head.width), np.float32),
            np.concatenate(logits) if logits else np.zeros((0, self.engine.n_vocab), np.float32),
        )

    def _parts(self, segments: Sequence[HeadSegment]) -> list[list[HeadSegment]]:
        """The segments of each pass; a long segment is split."""
        parts: list[list[HeadSegment]] = [[]]
        room, most_rows = self.n_ubatch, self.engine.n_out_max
        for s in segments:
            at = 0
            while at < len(s.tokens):
                if not room or sum(one.wanted for one in parts[-1]) == most_rows:
                    parts.append([])
                    room = self.n_ubatch
                end = min(at + room, len(s.tokens))
                is_last = end == len(s.tokens)
                parts[-1].append(HeadSegment(s.slot, s.tokens[at:end], s.states[at:end], s.wanted and is_last))
                room -= end - at
                at = end
                if not is_last:  # the rest reads the memory of this part, so it goes into the next pass
                    room = 0
        return parts

    def _builder(self, capacity: int) -> Builder:
        return Builder(capacity, self.engine.n_threads, exact=self.engine.exact, batch=self._control.batch)

    def _block(self, n: int) -> Program:
        capacity = self.engine.capacity(n, self.n_ubatch)
        if capacity not in self._blocks:
            b = self._builder(capacity)
            self.head.add_block(b, self._states, self._stream, self.memory)
            self._blocks[capacity] = self._ready(b)
        return self._blocks[capacity]

    def _output(self, n: int) -> tuple[Program, Rows, Rows]:
        capacity = self.engine.capacity(n, self.engine.n_out_max)
        if capacity not in self._outputs:
            b = self._builder(capacity)
            states, logits = self.head.add_output(b, self._stream)
            b.keep(states, logits)
            self._outputs[capacity] = self._ready(b), states, logits
        return self._outputs[capacity]

    def _ready(self, b: Builder) -> Program:
        program = b.build()
        self.engine.compile_program(program)
        return program
