"""Estimate the memory that a model needs, and what fits a machine, without loading it.

The calculation is the loader's (engine.py, memory/needs.py).

    with Estimate("model.gguf") as estimate:
        estimate.account(32768, n_seq=4, kv_type="q8_0").total
        estimate.longest(MachineMemory.of(8 << 30), n_seq=4, kv_type="q8_0")
"""

from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

from hybrid.quant.ggml.errors import UsageError
from hybrid.quant.ggml.machine_memory import MachineMemory
from hybrid.quant.ggml.split import open_gguf

from ..kernels.attention.kv import cache_types
from ..loading.options import DEFAULT_UBATCH
from ..loading.weights import OUTPUT
from ..memory.needs import ROUND, KindNeeds, Room, SequenceNeeds, needs_by_kind
from ..program.threads import default_threads
from .engine import Engine


@dataclass(frozen=True)
class Account:
    """Bytes that n_seq sequences of n_ctx tokens need when all are full.

    weights      of the file, mapped: shared with other processes that have it
    working      for the computation of passes
    states       recurrent states, two per sequence: before a pass and after it
    keys_values  of all tokens, with their page tables
    positions    cos and sin of every position
    """

    n_ctx: int
    n_seq: int
    kv_type: str
    weights: int
    working: int
    states: int
    keys_values: int
    positions: int

    @property
    def total(self) -> int:
        return self.weights + self.working + self.states + self.keys_values + self.positions


@dataclass(frozen=True)
class DiskReads:
    """Weights that a model larger than the memory reads from the disk. Bytes; `per_token` is an expectation, if all
    experts are used equally often.

    always     read for every token
    experts    of all experts, of which a token uses some
    used       of the experts of a token
    per_token  not in memory when a token needs them
    """

    always: int
    experts: int
    used: int
    per_token: int

    @classmethod
    def of(cls, always: int, experts: int, used: int, room: int) -> "DiskReads":
        """room: bytes of memory for weights."""
        left = room - always
        if left < 0:  # the first pages are gone when the next token needs them
            return cls(always, experts, used, always + used)
        return cls(always, experts, used, round(used * max(0.0, 1 - left / experts)) if experts else 0)


class Estimate:
    """The needs of the model at `path`. Raises the same errors as `LoadedModel.load`."""

    def __init__(self, path: Path | str, *, n_threads: int = 0, exact: bool = False) -> None:
        self._engine = Engine(
            open_gguf(path),
            n_ctx=1,
            n_seq_max=1,
            n_ubatch=DEFAULT_UBATCH,
            n_threads=n_threads or default_threads(),
            exact=exact,
            kv_type=cache_types("f32"),
        )
        self.n_threads, self.n_ubatch = self._engine.n_threads, DEFAULT_UBATCH
        # by context and whether there are several sequences
        self._working = cache(lambda n_ctx, several: self._engine.working_bytes(n_ctx, 2 if several else 1))

    @property
    def path(self) -> Path:
        """The model's file, the first of several parts."""
        return self._engine.gguf.path

    @property
    def n_ctx_train(self) -> int:
        """The context for which the model was trained."""
        return self._engine.hparams.n_ctx_train

    @cached_property
    def usual_context(self) -> int:
        """The default context, where memory allows it."""
        positions = self._engine.network.positions
        usual = self._engine.hparams.usual_context(self._engine.gguf.tensors)
        return min(usual, positions.rows) if positions else usual

    def kinds(self, kv_type: str) -> list[KindNeeds]:
        """The memory that layers keep, by kind."""
        return needs_by_kind(self._engine.network.all_specs, cache_types(kv_type))

    def account(self, n_ctx: int, *, n_seq: int = 1, kv_type: str = "f16") -> Account:
        """The needs of n_seq sequences of n_ctx tokens."""
        if n_ctx < 1 or n_seq < 1:
            raise UsageError(f"{n_seq} sequences of {n_ctx} tokens: expected at least one of each.")
        needs, working = self._needs(kv_type), self._working(n_ctx, n_seq > 1)
        states, positions = 2 * n_seq * needs.state, n_ctx * needs.per_position
        keys_values = needs.nbytes(n_seq, n_ctx) - states - positions
        return Account(n_ctx, n_seq, kv_type, self._engine.gguf.nbytes, working, states, keys_values, positions)

    def disk_reads(self, machine: MachineMemory) -> DiskReads | None:
        """What each token reads from the disk on this machine; None: the weights fit."""
        gguf, weights = self._engine.gguf, self._engine.network.weights
        room = machine.available - self._working(1, False)
        if gguf.nbytes <= room:
            return None
        stacks = [w for w in weights.matrices if w.n_expert > 1 and w.name in weights]
        experts = sum(w.nbytes * w.n_expert for w in stacks)
        n_used = getattr(self._engine.hparams, "n_expert_used", 0)
        used = sum(w.nbytes * min(w.n_expert, n_used) for w in stacks)
        only_rows = sum(gguf.info(name).nbytes for name in weights.looked_up) if OUTPUT in gguf.tensors else 0
        return DiskReads.of(gguf.nbytes - experts - only_rows, experts, used, room)

    def picture_bytes(self, n_ctx: int) -> int:
        """Bytes that passes with pictures take in addition to an account's."""
        return self._engine.picture_bytes(n_ctx)

    def longest(
        self, machine: MachineMemory, *, n_seq: int = 1, kv_type: str = "f16", cache: int = 0, beside: int = 0
    ) -> int:
        """The context of each of n_seq sequences, at most `usual_context`, with `cache` bytes for the prompt cache.

        `LoadedModel.load` chooses the same with the same `beside`, except a short context that does not fit: then 0.
        """
        wished, needs = self.usual_context, self._needs(kv_type)
        room = Room(machine, self._engine.gguf.nbytes, self._working(wished, n_seq > 1), cache, beside)
        fits = needs.longest(n_seq, room.grantable)
        return wished if fits >= wished else fits // ROUND * ROUND

    def _needs(self, kv_type: str) -> SequenceNeeds:
        return SequenceNeeds.of(self._engine.network.all_specs, cache_types(kv_type))

    def close(self) -> None:
        self._engine.close()
        self._engine.gguf.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
