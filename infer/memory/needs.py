"""The memory that a model needs, and the longest context that fits a machine.

Mapped memory becomes resident only when it is written, so a long context costs nothing until it is used. But a text
that grows into it must find the memory there: with the default context all sequences can be full at a time.
"""

from dataclasses import dataclass

from hybrid.quant.ggml.machine_memory import MachineMemory

from ..kernels.attention.kv import PAGE, CacheTypes, pages_of
from .attention import AttentionSpec
from .recurrent import RecurrentSpec
from .rows import RowsSpec

Specs = list[AttentionSpec | RowsSpec | RecurrentSpec]

LEAST_CONTEXT = 4096
"""Minimum context, however little memory there is, unless the model was trained for less: most texts need only a part
of it, and the rest may never be written."""
ENDLESS = 1 << 40  # tokens: context where memory does not depend on the number of tokens
ROUND = 1024  # a context below the trained one is a multiple of it
TABLE_ITEM = 8  # bytes of a page number in the table
TURN_BYTES = 8  # cos and sin, f32, of a pair
LEAST_MARGIN = 128 << 20
_MARGIN_SHARE = 8
_CACHE_SHARE = 4
_MAPPED_SHARE = 2


def split_specs(specs: Specs) -> tuple[list[AttentionSpec | RowsSpec], list[RecurrentSpec]]:
    """(specs of memory per token, specs of memory per sequence)"""
    return [s for s in specs if not isinstance(s, RecurrentSpec)], [s for s in specs if isinstance(s, RecurrentSpec)]


def margin(available: int) -> int:
    """Bytes that stay free: for Python, the rest of this process and the growth of other programs."""
    return max(LEAST_MARGIN, available // _MARGIN_SHARE)


@dataclass(frozen=True)
class SequenceNeeds:
    """Bytes that sequences need, summed over all layers.

    per_token     keys and values of a token
    state         a row of recurrent states; a sequence has two, before a pass and after it
    per_position  cos and sin of a position, which all sequences share
    prefix        keys, values and a state of the prefix of all sequences
    """

    per_token: int
    state: int
    per_position: int
    prefix: int = 0

    @classmethod
    def of(cls, specs: Specs, kind: CacheTypes) -> "SequenceNeeds":
        kv, states = split_specs(specs)
        # layers with equal rotations share one table of cos and sin, f32
        rotations = [s.rotation for s in kv if isinstance(s, AttentionSpec) and s.rotation is not None]
        tables = {rotation.turns.tobytes(): len(rotation.turns) for rotation in rotations}
        per_token, state = sum(s.bytes_per_token(kind) for s in kv), sum(s.row_nbytes for s in states)
        n_prefix = max((s.prefix for s in kv if isinstance(s, AttentionSpec)), default=0)
        prefix = n_prefix * per_token + (state if n_prefix else 0)
        return cls(per_token, state, TURN_BYTES * sum(tables.values()), prefix)

    def nbytes(self, n_seq: int, n_ctx: int) -> int:
        """Bytes of n_seq full sequences of n_ctx tokens."""
        pages = pages_of(n_ctx) * self._page_nbytes
        return n_seq * (pages + 2 * self.state) + n_ctx * self.per_position + self.prefix

    @property
    def _page_nbytes(self) -> int:
        return PAGE * self.per_token + TABLE_ITEM if self.per_token else 0

    def longest(self, n_seq: int, room: int) -> int:
        """Largest context, in whole pages, of n_seq sequences in `room` bytes; at least 0."""
        left = room - 2 * n_seq * self.state - self.prefix
        per_page = n_seq * self._page_nbytes + PAGE * self.per_position
        if not per_page:
            return ENDLESS if left >= 0 else 0
        return max(0, left // per_page * PAGE)


@dataclass(frozen=True)
class Room:
    """The part of a machine's memory that is available for sequences.

    weights  bytes of the file, which have to stay in memory though the system counts them as free
    working  bytes for the computation of passes
    cache    bytes wanted for the prompt cache (`LoadOptions.checkpoint_budget`); at most a quarter of the rest
    beside   bytes that something else in this process will need (`LoadOptions.beside`)
    """

    machine: MachineMemory
    weights: int
    working: int
    cache: int = 0
    beside: int = 0

    @property
    def free(self) -> int:
        """Bytes for sequences and cache; may be negative."""
        available = self.machine.available
        return available - self.weights - self.working - self.beside - margin(available)

    @property
    def of_sequences(self) -> int:
        """Bytes for sequences alone."""
        return self.free - self.of_cache

    @property
    def of_cache(self) -> int:
        return max(0, min(self.cache, self.free // _CACHE_SHARE))

    @property
    def grantable(self) -> int:
        """Bytes for sequences, at most half of the mappable ones: threads, machine code and the cache need some."""
        return min(self.of_sequences, self.machine.mappable // _MAPPED_SHARE)


def fitting_context(wished: int, needs: SequenceNeeds, n_seq: int, room: Room) -> int:
    """`wished` tokens or, when fewer fit, a multiple of ROUND, but at least LEAST_CONTEXT."""
    fits = needs.longest(n_seq, room.grantable)
    if fits >= wished:
        return wished
    # Below LEAST_CONTEXT only where no more can be mapped.
    least = min(LEAST_CONTEXT, needs.longest(n_seq, room.machine.mappable))
    return max(1, min(wished, max(least, fits // ROUND * ROUND)))


@dataclass(frozen=True)
class KindNeeds:
    """Bytes that all layers of one kind (`mixer`) keep: keys and values per token, states per sequence."""

    mixer: str
    n_layers: int
    per_token: int
    state: int


def needs_by_kind(specs: Specs, kind: CacheTypes) -> list[KindNeeds]:
    """The needs of every kind of layer that keeps something, in order of first appearance."""
    found: dict[str, KindNeeds] = {}
    for s in specs:
        old = found.get(s.mixer, KindNeeds(s.mixer, 0, 0, 0))
        needs = SequenceNeeds.of([s], kind)
        found[s.mixer] = KindNeeds(
            s.mixer, old.n_layers + 1, old.per_token + needs.per_token, old.state + 2 * needs.state
        )
    return list(found.values())
