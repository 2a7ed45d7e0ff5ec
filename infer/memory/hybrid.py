"""The memory of a hybrid model: an attention memory and a recurrent memory under one set of sequences.

Names are from llama.cpp (PRs #5328, #7531, #13979): `seq_cp` here; `seq_rm`, `seq_add` and `seq_div`, which change
positions, in moves.py. All return the position at which the sequence continues. It may lie before the requested one:
attention can be cut anywhere, a recurrent state cannot. A sequence id is the index of its row in every table, so any
set of ids, in any order, costs the same. Sequences share pages and state rows, which are copied before one of them
writes.

A run has three steps: `begin` finds the pages and rows to write and changes nothing that the sequence holds; the
program runs and writes `n_past` at its very end; `finish` or `abandon` follows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from hybrid.quant.ggml.byte_sizes import size_text
from hybrid.quant.ggml.errors import Remedy, UsageError
from hybrid.quant.ggml.machine_memory import MachineMemory, machine_memory

from ..kernels.attention.kv import PAGE, CacheTypes, pages_of
from .attention import ArrayLayout, AttentionMemory
from .needs import SequenceNeeds, Specs, split_specs
from .picture_tokens import Ids, has_pictures, places_of
from .positions import Places, Positions
from .recurrent import RecurrentMemory

MOST_PIECES = 32  # states that one run can leave for a sequence
SPARE_SHARE = 4  # spare memory takes at most 1 / SPARE_SHARE of the bytes that can still be mapped


def plan_memory(
    specs: Specs,
    n_seq_max: int,
    n_ctx: int,
    kind: CacheTypes,
    spare: int = 0,
    machine: MachineMemory | None = None,
    make: "Callable[[Specs, int, int, CacheTypes, int, int], HybridMemory] | None" = None,
) -> "HybridMemory":
    """A memory with room for the sequences and up to `spare` more bytes.

    Raises UsageError when full sequences would need more than the machine's memory. The system grants almost any size,
    since it takes pages only when they are written: without this check the error would come late.
    """
    machine = machine or machine_memory()
    needs = SequenceNeeds.of(specs, kind)
    need, have = needs.nbytes(n_seq_max, n_ctx), machine.total
    if need > have:
        raise UsageError(
            f"{n_seq_max} sequence{'s' * (n_seq_max > 1)} of {n_ctx} tokens need {size_text(need)}, this machine "
            f"has {size_text(have)}.",
            remedy=Remedy.SMALLER_MEMORY if n_seq_max > 1 else Remedy.SMALLER_CONTEXT,
        )
    # the spare bytes are mapped twice: as pages, and as rows of states
    spare = max(0, min(spare, have - need, (machine.mappable - need) // SPARE_SHARE))
    page = PAGE * needs.per_token
    n_rows = MOST_PIECES + (spare // needs.state if needs.state else 0)
    return (make or HybridMemory)(specs, n_seq_max, n_ctx, kind, spare // page if page else 0, n_rows)


@dataclass(frozen=True, eq=False)
class Move:
    """A run that appends `n` tokens to the `past` tokens of a sequence.

    before    row of the state before the run; -1: zeros
    rows      rows of the states after each piece of the tokens
    reach     number of tokens up to which single tokens can be appended without another `begin`
    position  of the first new token; the others follow it, unless `places` lists their positions
    """

    seq: int
    past: int
    n: int
    reach: int
    before: int
    rows: tuple[int, ...]
    position: int
    places: Places | None = field(default=None, compare=False)


class Loan(Protocol):
    """Pages, and a row or -1, that somebody outside the sequences and the prompt cache reads or fills."""

    pages: list[int]
    row: int


class HybridMemory:
    """Memory for `n_seq_max` sequences of up to `n_ctx` tokens; `kind` is the type of keys and values.

    n_spare_pages, n_spare_rows: additional room for the prompt cache (cache.py).
    """

    def __init__(
        self,
        specs: Specs,
        n_seq_max: int,
        n_ctx: int,
        kind: CacheTypes,
        n_spare_pages: int = 0,
        n_spare_rows: int = 0,
    ) -> None:
        self.attention, self.recurrent = self._parts(specs, n_seq_max, n_ctx, kind, n_spare_pages, n_spare_rows)
        self.n_seq_max, self.n_ctx = n_seq_max, n_ctx
        # number of tokens in memory per sequence; the last op of every program writes it, so it is right whatever
        # interrupts the Python code around the run
        self.n_past = np.zeros(n_seq_max, np.int64)
        # up to here single tokens can be appended without `begin`: pages are there, and nothing is shared
        self.writable = [0] * n_seq_max
        self.positions = [Positions() for _ in range(n_seq_max)]
        # moved sequences -> number of leading tokens whose memory the model has computed for this text
        self._computed: dict[int, int] = {}
        self.learned_positions = False  # whether the memory depends on learned position embeddings
        self.has_axes = False  # whether the tokens of a picture have positions on three axes (picture_tokens.py)
        self.first_position = 0  # of a sequence; below 0 in a memory of `for_prefix`
        self.is_together = False  # whether the tokens of a picture see each other, so that it is read whole
        self._moves: dict[int, Move] = {}  # begun, neither finished nor abandoned
        self.loans: set[Loan] = set()

    def _parts(
        self, specs: Specs, n_seq_max: int, n_ctx: int, kind: CacheTypes, n_spare_pages: int, n_spare_rows: int
    ) -> tuple[AttentionMemory, RecurrentMemory]:
        kv, states = split_specs(specs)
        attention = AttentionMemory(kv, n_seq_max, n_ctx, kind, n_spare_pages)
        return attention, RecurrentMemory(states, n_seq_max, n_spare_rows, prefixed=bool(attention.prefix))

    @property
    def is_recurrent(self) -> bool:
        return bool(self.recurrent.specs)

    @property
    def immovable(self) -> str:
        """Why tokens cannot be moved to other positions; empty if they can."""
        if self.learned_positions:
            return "learned positions, which affect everything in its memory"
        if self.attention.row_specs:
            return "rows in memory that stand for groups of tokens, counted from the beginning of the text"
        if any(spec.turned for spec in self.recurrent.specs):
            return "states with rotated keys, which stay at their positions"
        return ""

    @property
    def bytes_state_per_seq(self) -> int:
        return self.recurrent.bytes_per_sequence

    @property
    def bytes_kv_per_token(self) -> int:
        return self.attention.bytes_per_token

    def room(self, seq: int) -> int:
        """Number of tokens that can still be appended to a sequence."""
        past = int(self.n_past[seq])
        return self.n_ctx - max(past, self.positions[seq].at(past))

    def size_of(self, seq: int, n: int) -> str:
        """Size of a sequence with n more tokens, in words, for error messages."""
        at = "" if self.positions[seq].plain else f", from position {self.next_position(seq)} on,"
        past = int(self.n_past[seq])
        return f"{past} tokens and {n} more{at}" if past else f"{n} tokens{at}"

    def computed(self, seq: int) -> int:
        """Number of leading tokens whose memory the model has computed for this text: all, unless tokens were moved."""
        past = int(self.n_past[seq])
        return min(past, self._computed.get(seq, past))

    def is_moved(self, seq: int) -> bool:
        """Whether `computed` is less than all: tokens were moved."""
        return seq in self._computed

    def next_position(self, seq: int) -> int:
        """The position of the next token of a sequence."""
        return self.positions[seq].at(int(self.n_past[seq]))

    def mark(self, seq: int, listed: Places | None = None, computed: int | None = None) -> None:
        """Set the positions of the first tokens (None: 0, 1, 2...) and the number of `computed` tokens (None: all)."""
        self.positions[seq] = Positions() if listed is None else Positions(listed)
        self._computed.pop(seq, None)
        if computed is not None and computed < self.n_past[seq]:
            self._computed[seq] = computed

    def _check_windows(self, seq: int) -> None:
        """Raises UsageError if positions have gaps and the model has layers with a window, which count tokens."""
        if self.positions[seq].has_gaps and any(s.window for s in self.attention.pairs):
            raise UsageError(
                f"sequence {seq} has gaps between its positions, and its model has attention windows. "
                "Close them first (seq_add)."
            )

    # --- runs ---
    def begin(
        self, seq: int, n: int, *, keep: bool = False, pieces: int = 1, pictures: Sequence[int] | None = None
    ) -> Move:
        """Make room for n more tokens. keep: preserve the state before them, so that the run can be abandoned.

        pieces: number of equal parts of the tokens; a state is left after each part. pictures: the tokens, if some are
        of pictures.
        """
        self._settle(seq)
        past = int(self.n_past[seq])
        if n > self.room(seq):
            raise UsageError(f"sequence {seq}: {self.size_of(seq, n)} do not fit the context of {self.n_ctx}.")
        self._check_windows(seq)
        reach = min(self.attention.extend(seq, past, n), past + self.room(seq))
        rows, before, pool = [0] * pieces, -1, self.recurrent.pool
        if self.is_recurrent:
            own = self.recurrent.own(seq)
            in_place = own >= 0 and pieces == 1 and not (keep and past)
            before = self.recurrent.row[seq] if past else self.recurrent.start
            rows = [own] if in_place else pool.take_many(pieces)
        places, position = None, self.next_position(seq)
        if pictures is not None and self.has_axes:
            places = places_of(pictures, position, self.positions[seq].at(past - 1) if past else 0)
        self._moves[seq] = move = Move(seq, past, n, reach, before, tuple(rows), position, places)
        return move

    def finish(self, move: Move, piece: int = -1) -> None:
        """After a run: continue the sequence from the state after `piece`, and give up the other states."""
        del self._moves[move.seq]
        if self.is_recurrent:
            kept = move.rows[piece]
            self._drop_rows(move, kept)
            if kept != self.recurrent.row[move.seq]:
                self.recurrent.put(move.seq, kept)
        self.n_past[move.seq] = past = move.past + move.n * (piece % len(move.rows) + 1) // len(move.rows)
        if move.places is not None:
            known = self.positions[move.seq]
            known.set(np.concatenate([known.of(0, move.past), move.places[: past - move.past]]))
        self.attention.cut(move.seq, past)
        self.writable[move.seq] = move.reach if past == move.past + move.n else 0

    def keep_pieces(self, seq: int, n: int) -> None:
        """`finish` the sequence's open move, if any, after piece n - 1."""
        if seq in self._moves:
            self.finish(self._moves[seq], n - 1)

    def abandon(self, move: Move) -> None:
        """Undo a move whose run never began, or was begun with `keep` and stopped anywhere."""
        del self._moves[move.seq]
        if self.is_recurrent:
            self._drop_rows(move, self.recurrent.row[move.seq])
        self.n_past[move.seq] = move.past
        self.trim(move.seq)

    def _drop_rows(self, move: Move, kept: int) -> None:
        for row in move.rows:
            if row not in (kept, self.recurrent.row[move.seq]):
                self.recurrent.pool.drop(row)

    def _settle(self, seq: int) -> None:
        """Finish or abandon a move that was interrupted: `n_past` says whether its program ran to the end."""
        move = self._moves.get(seq)
        if move is not None:
            if self.n_past[seq] == move.past:
                self.abandon(move)
            else:
                self.finish(move)

    # --- sequences ---
    def check(self, seq: int) -> None:
        """Raises UsageError if there is no such sequence. Otherwise settles an interrupted run."""
        if not 0 <= seq < self.n_seq_max:
            raise UsageError(f"there is no sequence {seq}: this memory has sequences 0 to {self.n_seq_max - 1}.")
        self._settle(seq)

    def release(self, seq: int) -> None:
        """Forget a sequence."""
        self.check(seq)
        self.n_past[seq] = 0
        self.trim(seq)

    def hold(self, seq: int) -> tuple[list[int], int]:
        """Pages and row of a sequence, to be shared: the sequence copies them before it writes again."""
        self.check(seq)
        self.writable[seq] = 0
        return self.attention.pages(seq), self.recurrent.row[seq]

    def trim(self, seq: int) -> None:
        """Give back the memory after `n_past`."""
        n = int(self.n_past[seq])
        self.attention.cut(seq, n)
        if not n:
            self.recurrent.put(seq, -1)
        self.positions[seq].cut(n)
        if n <= self._computed.get(seq, n):
            self._computed.pop(seq, None)
        self.writable[seq] = 0

    def truncate(self, seq: int, n: int) -> int:
        """Keep at most the first n tokens; returns how many are left: 0 if a recurrent state would have to be cut."""
        self.check(seq)
        if n < self.n_past[seq]:
            # the recurrent state at n is gone
            self.n_past[seq] = max(0, n) if not self.is_recurrent else 0
            self.trim(seq)
        return int(self.n_past[seq])

    def seq_cp(self, source: int, target: int, p1: int = -1) -> int:
        """Make `target` a copy of `source` up to position p1 (-1: all of it), sharing its memory.

        Returns the position at which `target` continues.
        """
        self.check(source)
        self.check(target)
        n = int(self.n_past[source])
        wanted = self.positions[source].indices(0, p1, n)[1]
        if wanted < n and self.is_recurrent:
            wanted = 0
        if source != target:
            self.adopt(target, wanted, *self.hold(source))
            self.mark(target, self.positions[source].listed[:wanted], self.computed(source))
        return self.next_position(target)

    def adopt(self, seq: int, n: int, pages: list[int], row: int, ids: Sequence[int] | Ids | None = None) -> None:
        """Make the sequence n tokens with the shared `pages` and the shared state `row`.

        ids: the tokens, needed if `has_axes`, because the positions after a picture depend on it.
        """
        self.check(seq)
        self.attention.adopt(seq, pages[: pages_of(n)] if self.attention.specs else [])
        if self.is_recurrent:
            self.recurrent.put(seq, self.recurrent.pool.share(row) if n else -1)
        self.n_past[seq] = n
        self.writable[seq] = 0
        self.mark(seq, places_of(ids, 0) if ids is not None and self.has_axes and has_pictures(ids) else None)

    # --- loans ---
    def lend(self, loan: Loan) -> None:
        """Register a loan, which owns its pages and row: until `end_loan` nobody else writes them."""
        self.loans.add(loan)

    def end_loan(self, loan: Loan) -> None:
        """Give back the loan's pages and row."""
        for page in loan.pages:
            self.attention.pool.drop(page)
        if loan.row >= 0:
            self.recurrent.pool.drop(loan.row)
        loan.pages, loan.row = [], -1
        self.loans.discard(loan)

    # --- after a fault: see recount.py ---
    def wipe(self, seq: int) -> None:
        """Empty a sequence without giving back its pages and row, whose owner counts may be wrong."""
        self._moves.pop(seq, None)
        self._computed.pop(seq, None)
        self.n_past[seq], self.writable[seq], self.positions[seq] = 0, 0, Positions()
        self.attention.wipe(seq)
        self.recurrent.row[seq] = -1

    def is_sound(self, seq: int) -> bool:
        """Whether a sequence has pages and a row for its tokens."""
        n, row = int(self.n_past[seq]), self.recurrent.row[seq]
        fits = 0 <= n <= self.n_ctx and self.attention.is_sound(seq, n)
        return fits and (row >= 0) == (self.is_recurrent and n > 0) and row < self.recurrent.pool.touched

    def rows_of(self, seq: int) -> set[int]:
        """The rows of a sequence: its state, and the rows that an unfinished run writes."""
        move = self._moves.get(seq)
        rows = {self.recurrent.row[seq], *(move.rows if move is not None and self.is_recurrent else ())}
        return rows - {-1}

    # --- as arrays ---
    def export(self, seq: int) -> Iterator[tuple[str, np.ndarray]]:
        """Named arrays with everything that the memory knows of a sequence, without padding."""
        self.check(seq)
        n = int(self.n_past[seq])
        yield from self.attention.export(self.attention.pages(seq), n)
        if n:
            yield from self.recurrent.export(self.recurrent.row[seq])

    def layout(self, n: int) -> ArrayLayout:
        """Names, dtypes and shapes of `export` for a sequence of n tokens."""
        recurrent = self.recurrent.shapes() if n else {}
        return self.attention.layout(n) | {name: (np.dtype(np.float32), shape) for name, shape in recurrent.items()}

    def load(self, seq: int, n: int, arrays: dict[str, np.ndarray]) -> None:
        """Inverse of `export`; `arrays` has the names, dtypes and shapes of `layout(n)`."""
        self.release(seq)
        self.attention.extend(seq, 0, n)
        self.attention.load(self.attention.pages(seq), n, arrays)
        if n and self.is_recurrent:
            self.recurrent.put(seq, self.recurrent.pool.take())
            self.recurrent.load(self.recurrent.row[seq], arrays)
        self.n_past[seq] = n

    # --- a prefix of all sequences (AttentionSpec.prefix) ---
    def for_prefix(self) -> "HybridMemory":
        """A memory in which the prefix is computed: of one sequence, which sees all of itself."""
        specs = [replace(s, prefix=0) for s in self.attention.pairs]
        n = PAGE * len(self.attention.prefix)
        memory = HybridMemory([*specs, *self.recurrent.specs], 1, n, self.attention.kind)
        memory.first_position = -n
        return memory

    def keep_prefix(self, computed: "HybridMemory") -> None:
        """Let all sequences begin after the sequence in this memory of `for_prefix`."""
        pages, row = computed.attention.pages(0), computed.recurrent.row[0]
        for own, other in zip(self.attention.stored(), computed.attention.stored(), strict=True):
            own[self.attention.prefix] = other[pages]
        for own, other in zip(self.recurrent.arrays(), computed.recurrent.arrays(), strict=True):
            own[self.recurrent.start] = other[row]

    def fill(self, seq: int, n: int, seed: int = 0) -> None:
        """Random finite contents, as if the sequence had n tokens: to measure at a depth without computing it."""
        rng = np.random.default_rng(seed)
        self.release(seq)
        self.attention.fill(seq, n, rng)
        self.recurrent.fill(seq, rng)
        self.n_past[seq] = n
