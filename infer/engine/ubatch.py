"""The control block: the description of a ubatch that the ops of programs read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..memory import Move
from ..program.builder import Batch, aligned_empty
from .applied import NONE, AdapterLists, Applied
from .pictures import Shown


@dataclass(frozen=True)
class Segment:
    """Tokens for a sequence in one ubatch.

    outputs   indices of the tokens whose logits are wanted
    each      leave a state after every token, so that the sequence can go back to any of them: see `Engine.settle`
    pictures  the pictures of all tokens below 0
    applied   the sequence's adapters
    """

    slot: int
    tokens: Sequence[int]
    outputs: Sequence[int]
    targets: Sequence[int] | None = None
    each: bool = False
    pictures: Sequence[Shown] = ()
    applied: Applied = NONE


class Control:
    """i64 arrays for up to `n` tokens; `batch` has their addresses and describes them.

    padding     the token that programs read in place of a picture's
    n_adapters  that a token may have
    """

    def __init__(self, n: int, padding: int = 0, n_adapters: int = 0) -> None:
        self._padding, self._adapters = padding, AdapterLists(n, n_adapters)
        sizes = {
            "ctl": 8, "tokens": n, "pos": n, "rope_pos": n, "slot": n, "seg": 4 * n, "out_index": n, "targets": n,
            "all_tokens": 4, "all_outputs": 4,
        }  # fmt: skip
        self._arrays = {name: aligned_empty(8 * size).view(np.int64) for name, size in sizes.items()}
        for array in self._arrays.values():
            array[:] = 0
        self._arrays |= self._adapters.arrays
        address = {name: int(array.ctypes.data) for name, array in self._arrays.items()}
        counts = {name: address["ctl"] + 8 * i for i, name in enumerate(("n_tok", "n_seg", "n_out"))}
        self.batch = Batch(**counts, **address, last=address["pos"], pictures=None)
        c = self._arrays
        self._one = c["tokens"], c["pos"], c["rope_pos"], c["slot"], c["seg"], c["ctl"]
        self._groups = c["all_tokens"], c["all_outputs"]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._arrays.values())

    def fill(self, segments: Sequence[Segment], moves: Sequence[Move]) -> tuple[list[int], list[int]]:
        """Write the segments and their moves; returns the output rows and their targets."""
        c = self._arrays
        first, n_seg, out_rows, targets = 0, 0, [], []
        for segment, move in zip(segments, moves, strict=True):
            n = len(segment.tokens)
            tokens = c["tokens"][first : first + n]
            tokens[:] = segment.tokens
            if segment.pictures:
                tokens[tokens < 0] = self._padding
            c["pos"][first : first + n] = np.arange(move.past, move.past + n)
            c["rope_pos"][first : first + n] = np.arange(move.position, move.position + n)
            c["slot"][first : first + n] = segment.slot
            before, step = move.before, n // len(move.rows)
            for i, row in enumerate(move.rows):
                c["seg"][4 * n_seg : 4 * n_seg + 4] = (first + i * step, step, row, before)
                before, n_seg = row, n_seg + 1
            out_rows += [first + o for o in segment.outputs]
            targets += list(segment.targets) if segment.targets is not None else []
            first += n
        self._adapts = any(segment.applied for segment in segments)
        if self._adapts:
            self._adapters.fill([segment.applied for segment in segments], moves)
        c["ctl"][:2] = (first, n_seg)
        c["all_tokens"][:] = (1, 0, 0, first)
        return out_rows, targets

    def copied(self) -> dict[str, np.ndarray]:
        """A copy of the values that `fill` wrote."""
        c = self._arrays
        n_tok, n_seg = (int(n) for n in c["ctl"][:2])
        sizes = {"tokens": n_tok, "pos": n_tok, "rope_pos": n_tok, "slot": n_tok, "seg": 4 * n_seg}
        more = self._adapters.copied(n_tok) if self._adapts else {}
        return {"ctl": c["ctl"][:2].copy(), **{name: c[name][:n].copy() for name, n in sizes.items()}, **more}

    def put(self, copied: Mapping[str, np.ndarray]) -> None:
        """Inverse of `copied`."""
        for name, values in copied.items():
            self._arrays[name][: len(values)] = values
        self._arrays["all_tokens"][:] = (1, 0, 0, copied["ctl"][0])

    def want(self, rows: Sequence[int], targets: Sequence[int] = ()) -> None:
        """Write the output rows and targets."""
        c = self._arrays
        n = len(rows)
        c["ctl"][2] = n
        c["all_outputs"][:] = (1, 0, 0, n)
        c["out_index"][:n] = rows
        if targets:
            c["targets"][:n] = targets

    def fill_one(self, slot: int, token: int, past: int, position: int, row: int, before: int) -> None:
        """`fill` and `want` for one token: its state goes from row `before` to `row`."""
        tokens, pos, rope_pos, slots, seg, ctl = self._one
        tokens[0], pos[0], rope_pos[0], slots[0] = token, past, position, slot
        seg[0], seg[1], seg[2], seg[3] = 0, 1, row, before
        ctl[0] = ctl[1] = ctl[2] = 1
        for groups in self._groups:
            groups[0], groups[1], groups[2], groups[3] = 1, 0, 0, 1
        self._arrays["out_index"][0] = 0
