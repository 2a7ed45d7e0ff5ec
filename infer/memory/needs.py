"""What a model needs of a machine's memory, and the longest context that fits: one account for whoever loads a model
and for whoever only asks.

Of what is mapped only what is written becomes resident, so a long context costs nothing until it is used. But a text
that grows into it must find the memory there: the context that is chosen where nobody asks for one is such that all
sequences can be full at a time.
"""

from dataclasses import dataclass

from hybrid.quant.ggml.machine_memory import MachineMemory

from ..kernels.attention.kv import PAGE, KVType, pages_of
from .attention import AttentionSpec
from .recurrent import RecurrentSpec
from .rows import RowsSpec

Specs = list[AttentionSpec | RowsSpec | RecurrentSpec]

LEAST_CONTEXT = 4096
"""Tokens that a model is loaded for however little memory there is, if it was trained for so many: the first of them
are what most texts have, and whether the rest is ever written nobody knows."""
ENDLESS = 1 << 40  # tokens: the memory does not depend on their number
ROUND = 1024  # a context that is less than the trained one is a multiple of it
TABLE_ITEM = 8  # bytes of a number of a page
TURN_BYTES = 8  # of the cos and sin of a pair
LEAST_MARGIN = 128 << 20
_MARGIN_SHARE = 8
_CACHE_SHARE = 4
_MAPPED_SHARE = 2


def split_specs(specs: Specs) -> tuple[list[AttentionSpec | RowsSpec], list[RecurrentSpec]]:
    """What is kept of every token, and of a sequence."""
    return [s for s in specs if not isinstance(s, RecurrentSpec)], [s for s in specs if isinstance(s, RecurrentSpec)]


def margin(available: int) -> int:
    """Bytes that stay free: for Python and what else this process does, and for what other programs get meanwhile."""
    return max(LEAST_MARGIN, available // _MARGIN_SHARE)


@dataclass(frozen=True)
class SequenceNeeds:
    """Bytes, of all layers together.

    per_token     keys and values of a token
    state         a row of recurrent states; a sequence has two, before a pass and after it
    per_position  cos and sin of a position, which all sequences share
    """

    per_token: int
    state: int
    per_position: int

    @classmethod
    def of(cls, specs: Specs, kind: KVType) -> "SequenceNeeds":
        kv, states = split_specs(specs)
        # layers that turn alike share one table of cos and sin, f32
        rotations = [s.rotation for s in kv if isinstance(s, AttentionSpec) and s.rotation is not None]
        tables = {rotation.turns.tobytes(): len(rotation.turns) for rotation in rotations}
        per_token, state = sum(s.bytes_per_token(kind) for s in kv), sum(s.row_nbytes for s in states)
        return cls(per_token, state, TURN_BYTES * sum(tables.values()))

    def nbytes(self, n_seq: int, n_ctx: int) -> int:
        """n_seq sequences of n_ctx tokens, each full to the last."""
        pages = pages_of(n_ctx) * self._page_nbytes
        return n_seq * (pages + 2 * self.state) + n_ctx * self.per_position

    @property
    def _page_nbytes(self) -> int:
        return PAGE * self.per_token + TABLE_ITEM if self.per_token else 0

    def longest(self, n_seq: int, room: int) -> int:
        """Tokens that n_seq sequences can have in `room` bytes: whole pages, 0 at least."""
        left = room - 2 * n_seq * self.state
        per_page = n_seq * self._page_nbytes + PAGE * self.per_position
        if not per_page:
            return ENDLESS if left >= 0 else 0
        return max(0, left // per_page * PAGE)


@dataclass(frozen=True)
class Room:
    """What of a machine's memory is there for sequences.

    weights  bytes of the file, which have to stay in memory though the system counts them as free
    working  bytes that passes compute in
    cache    bytes that may be used for what earlier texts leave (`LoadOptions.checkpoint_budget`): a wish, which gets
             a quarter of what is left at most
    beside   bytes that something else in this process will need (`LoadOptions.beside`)
    """

    machine: MachineMemory
    weights: int
    working: int
    cache: int = 0
    beside: int = 0

    @property
    def free(self) -> int:
        """Bytes for sequences and cache: may be below 0."""
        available = self.machine.available
        return available - self.weights - self.working - self.beside - margin(available)

    @property
    def of_sequences(self) -> int:
        """Bytes for sequences."""
        return self.free - self.of_cache

    @property
    def of_cache(self) -> int:
        return max(0, min(self.cache, self.free // _CACHE_SHARE))

    @property
    def grantable(self) -> int:
        """Bytes for sequences that can be mapped, too. The rest of what can be mapped is for threads, machine code and
        the cache."""
        return min(self.of_sequences, self.machine.mappable // _MAPPED_SHARE)


def fitting_context(wished: int, needs: SequenceNeeds, n_seq: int, room: Room) -> int:
    """`wished` tokens, or as many as fit when these are fewer: a multiple of ROUND, and LEAST_CONTEXT in any case."""
    fits = needs.longest(n_seq, room.grantable)
    if fits >= wished:
        return wished
    # Shorter than that only where no more can be mapped.
    least = min(LEAST_CONTEXT, needs.longest(n_seq, room.machine.mappable))
    return max(1, min(wished, max(least, fits // ROUND * ROUND)))


@dataclass(frozen=True)
class KindNeeds:
    """Bytes that layers of one kind (`mixer`) keep together: keys and values of a token, states of a sequence."""

    mixer: str
    n_layers: int
    per_token: int
    state: int


def needs_by_kind(specs: Specs, kind: KVType) -> list[KindNeeds]:
    """Of every kind of layer that keeps something, in the order of the first of each."""
    found: dict[str, KindNeeds] = {}
    for s in specs:
        old = found.get(s.mixer, KindNeeds(s.mixer, 0, 0, 0))
        needs = SequenceNeeds.of([s], kind)
        found[s.mixer] = KindNeeds(
            s.mixer, old.n_layers + 1, old.per_token + needs.per_token, old.state + 2 * needs.state
        )
    return list(found.values())
