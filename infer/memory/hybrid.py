"""The memory of a hybrid model: an attention memory and a recurrent memory under one set of sequences.

Vocabulary of llama.cpp (PRs #7531, #13979): `seq_rm`, `seq_cp`, `seq_keep`. The first two return the position at which
the sequence goes on, which may lie before the one asked for: attention can be cut anywhere, a recurrent state cannot.
A sequence id is the index of its row in every array, so any set of ids, in any order, costs the same.
"""

import os
from collections.abc import Iterator

import numpy as np

from ...quant.ggml.errors import StateError, UsageError
from ..kernels.kv import KVType
from .attention import AttentionMemory, AttentionSpec, Layout
from .recurrent import RecurrentMemory, RecurrentSpec


def require_room(specs: list[AttentionSpec | RecurrentSpec], n_seq_max: int, n_ctx: int, kind: KVType) -> None:
    """UsageError when the memory, fully used, is larger than the machine's: to be known before it is half used.

    Pages are only taken when they are written, so the system itself says yes to almost any size.
    """
    per_token = sum(s.bytes_per_token(kind) for s in specs if isinstance(s, AttentionSpec))
    state = sum(s.nbytes for s in specs if isinstance(s, RecurrentSpec))
    # cos and sin of every position, and what computing them takes for a moment
    rotary = max((32 * s.d_head for s in specs if isinstance(s, AttentionSpec)), default=0)
    need = n_seq_max * (n_ctx * per_token + state) + n_ctx * rotary
    have = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if need > have:
        raise UsageError(
            f"{n_seq_max} sequence{'s' * (n_seq_max > 1)} of {n_ctx} tokens need {need / 2**30:.1f} GiB, this machine "
            f"has {have / 2**30:.1f}. Use a smaller context (-c){' or batch (-b)' * (n_seq_max > 1)}."
        )


class HybridMemory:
    """Memory for `n_seq_max` sequences of up to `n_ctx` tokens; `kind` is how keys and values are kept."""

    def __init__(self, specs: list[AttentionSpec | RecurrentSpec], n_seq_max: int, n_ctx: int, kind: KVType) -> None:
        self.attention = AttentionMemory([s for s in specs if isinstance(s, AttentionSpec)], n_seq_max, n_ctx, kind)
        self.recurrent = RecurrentMemory([s for s in specs if isinstance(s, RecurrentSpec)], n_seq_max)
        self.n_seq_max, self.n_ctx = n_seq_max, n_ctx
        # tokens that the memory of each sequence covers; written by the last op of every program, so that it is true
        # whatever interrupts the Python code around the run
        self.n_past = np.zeros(n_seq_max, np.int64)

    @property
    def is_recurrent(self) -> bool:
        return bool(self.recurrent.specs)

    @property
    def bytes_state_per_seq(self) -> int:
        return self.recurrent.bytes_per_sequence

    @property
    def bytes_kv_per_token(self) -> int:
        return self.attention.bytes_per_token

    def seq_rm(self, seq: int, p0: int, p1: int = -1) -> int:
        """Forget positions p0..p1 (-1: to the end). Returns the position at which the sequence goes on.

        Only a tail can be removed; the middle of a sequence stays in the recurrent state and in what later tokens saw.
        """
        n = int(self.n_past[seq])
        if p0 >= n:
            return n
        if 0 <= p1 < n:
            raise StateError(
                f"sequence {seq}: cannot remove positions {p0} to {p1} of {n}: later tokens have seen them. "
                "Remove up to the end and process the rest again."
            )
        # the state at p0 is gone unless nothing recurrent has to know it
        self.n_past[seq] = max(0, p0) if not self.is_recurrent else 0
        return int(self.n_past[seq])

    def seq_cp(self, source: int, target: int, p1: int = -1) -> int:
        """Make `target` a copy of the first p1 positions of `source` (-1: all). Returns where it goes on."""
        n = int(self.n_past[source])
        wanted = n if p1 < 0 else min(p1, n)
        if wanted < n and self.is_recurrent:
            wanted = 0
        if source != target:
            if wanted:
                self.attention.copy(source, target, wanted)
                self.recurrent.copy(source, target)
            self.n_past[target] = wanted
        return wanted

    def seq_keep(self, seq: int) -> None:
        """Forget every sequence but one."""
        kept = self.n_past[seq]
        self.n_past[:] = 0
        self.n_past[seq] = kept

    def export(self, seq: int) -> Iterator[tuple[str, np.ndarray]]:
        """Named arrays that hold everything the memory knows of a sequence, in a layout without padding."""
        yield from self.attention.export(seq, int(self.n_past[seq]))
        if self.n_past[seq]:
            yield from self.recurrent.export(seq)

    def layout(self, n: int) -> Layout:
        """Names, dtypes and shapes of `export` for a sequence of n tokens."""
        recurrent = self.recurrent.shapes() if n else {}
        return self.attention.layout(n) | {name: (np.dtype(np.float32), shape) for name, shape in recurrent.items()}

    def load(self, seq: int, n: int, arrays: dict[str, np.ndarray]) -> None:
        """Inverse of `export`; `arrays` has the names, dtypes and shapes of `layout(n)`."""
        self.n_past[seq] = 0
        self.attention.load(seq, n, arrays)
        if n:
            self.recurrent.load(seq, arrays)
        self.n_past[seq] = n

    def fill(self, seq: int, n: int, seed: int = 0) -> None:
        """Random contents, finite, as if the sequence had n tokens: to measure at a depth without computing it."""
        rng = np.random.default_rng(seed)
        self.n_past[seq] = 0
        self.attention.fill(seq, n, rng)
        self.recurrent.fill(seq, rng)
        self.n_past[seq] = n
