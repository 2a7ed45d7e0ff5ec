"""The leader of a model in stages. Runner and Sequence use it as an Engine."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial

import numpy as np

from hybrid.quant.ggml.adapter import Adapter
from hybrid.quant.ggml.byte_sizes import size_text
from hybrid.quant.ggml.errors import UsageError
from hybrid.quant.ggml.machine_memory import MachineMemory
from hybrid.quant.ggml.reader import GGUFFile

from ..engine.applied import NONE, Applied
from ..engine.collection import Collection
from ..engine.context import Context, Rooms
from ..engine.engine import Engine
from ..engine.network import Network
from ..engine.op_times import OpTime
from ..engine.ubatch import Segment
from ..kernels.attention.kv import cache_types
from ..kernels.build.jit import CompileProgress
from ..loading.options import LoadOptions
from ..memory import plan_memory
from ..memory.needs import LEAST_CONTEXT, ROUND, Room
from ..program.builder import GEMV_COLUMNS
from ..program.threads import default_threads
from .cuts import Cut, cuts_of, fewest, fitting, planned
from .line import Foreman, Line, Ticket
from .memory import LedMemory
from .orders import Opening, Pass, Wanted
from .sizes import StageSizes, Texts

AUTO = 0  # stages: as few as fit the memory
STAGE_SECONDS = 4.0  # assumed time to make programs for a few tokens in all stages
LEAST_PIECE = 64  # least tokens of an ubatch when a prompt is cut so that all stages have work


class StagedEngine(Engine):
    """n_stages stages on a line; AUTO: as few as fit the memory of their machines.

    tight: a message for each stage that is larger than the free memory of its machine.
    Raises FormatError, UnsupportedError or UsageError, also if the model cannot be cut into n_stages.
    """

    memory: LedMemory

    def __init__(
        self, gguf: GGUFFile, line: Line, n_stages: int, given: LoadOptions, adapters: Sequence[Adapter] = ()
    ) -> None:
        self.line, self.foreman, self._asked = line, Foreman(line), n_stages
        self.tight: list[str] = []
        self._machines: list[MachineMemory] = []
        super().__init__(
            gguf, n_ctx=given.n_ctx, n_seq_max=given.n_seq_max, n_ubatch=given.n_ubatch,
            n_threads=given.n_threads or default_threads(), exact=given.exact, kv_type=cache_types(given.kv_type_used),
            spare=given.checkpoint_budget, adapters=adapters,
        )  # fmt: skip
        if given.checkpoint_budget and given.checkpoint_type != "f32":
            raise UsageError(
                f"checkpoint_type = {given.checkpoint_type!r}: the states of a model in stages are always kept as f32."
            )
        self.stages = self._planned(n_stages, given.checkpoint_budget)
        self.openings = self._openings(given)
        line.open(self.openings)

    def _context(self, n_ctx: int, n_seq_max: int, spare: int, rooms: Rooms) -> Context:
        """As `Engine._context`, and each stage fits its machine, unless n_ctx is given."""
        self.cuts = cuts_of(self.network, self._kind, exact=self.exact)
        context = super()._context(n_ctx, n_seq_max, spare, rooms)
        working = self.working_bytes(context.n, n_seq_max)
        self._rooms = [max(0, Room(one, 0, working).free) for one in self._machines]
        low, high = -(-LEAST_CONTEXT // ROUND), context.n // ROUND
        if n_ctx or high <= low or self._stages(Texts(self._kind, n_seq_max, context.n, spare)):
            return context
        while low < high:
            middle = -(-(low + high) // 2)
            fits = self._stages(Texts(self._kind, n_seq_max, middle * ROUND, spare))
            low, high = (middle, high) if fits else (low, middle - 1)
        n = low * ROUND
        return Context(
            n, f"a context of {n} tokens: with {context.n}, no cut makes every stage fit what its worker has free"
        )

    def _stages(self, texts: Texts) -> list[range]:
        """Stages that fit the machines; empty if no cuts fit."""
        sizes, n = StageSizes(self.network, texts), self._asked
        if n == AUTO:
            return fewest(sizes, self.cuts, self._rooms)
        return fitting(sizes, self.cuts, self._rooms[:n]) if n <= len(self._rooms) else []

    def _planned(self, n: int, spare: int) -> list[range]:
        n_ctx, n_seq, rooms = self.n_ctx, self.memory.n_seq_max, self._rooms
        texts = Texts(self._kind, n_seq, n_ctx, spare)
        holding = f"{n_seq} sequences of {n_ctx} tokens" if n_seq > 1 else f"a context of {n_ctx} tokens"
        if n == AUTO:
            stages = self._stages(texts)
            if not stages:
                raise UsageError(
                    f"{self.gguf.path.name} ({size_text(self.gguf.nbytes)}) with {holding} does not fit the free "
                    f"memory of {len(rooms)} workers ({', '.join(map(size_text, rooms))}), however it is cut. Start "
                    "more of them, give a smaller context, or say a number of stages."
                )
            return stages
        # with fewer rooms than stages, the stages share one machine and its whole memory
        sizes = StageSizes(self.network, texts)
        stages = planned(sizes, self.cuts, n, rooms if len(rooms) >= n else ())
        for blocks, nbytes, room in zip(stages, sizes.all(stages), rooms, strict=False):
            if nbytes > room and len(rooms) >= n:
                self.tight.append(
                    f"blocks {blocks.start} to {blocks.stop - 1} need {size_text(nbytes)} with their part of "
                    f"{holding}, their worker has {size_text(room)} free for them: the rest is read from its "
                    "disk again and again"
                )
        return stages

    def _openings(self, given: LoadOptions) -> list[Opening]:
        at = {cut.block: cut for cut in self.cuts}
        none = Cut(0, 0)
        return [
            Opening(
                blocks, at.get(blocks.start, none).carried, at.get(blocks.stop, none).carried, self.n_ctx,
                given.n_seq_max, self.memory.n_spare_pages, self.memory.n_spare_rows, given.n_ubatch, given.n_threads,
                given.exact, given.kv_type_used, tuple((str(file), scale) for file, scale in given.lora),
            )
            for blocks in self.stages
        ]  # fmt: skip

    def _network(self, adapters: Sequence[Adapter], n_ctx: int) -> Network:
        return Network(self.gguf, self.n_ubatch, adapters, n_ctx, heads=False)

    def _machine(self) -> MachineMemory:
        each = self._machines = self.line.machines()
        total, available = sum(one.total for one in each), sum(one.available for one in each)
        return MachineMemory(total, available, min(one.mappable for one in each))

    def _memory(self, n_seq_max: int, spare: int, machine: MachineMemory) -> LedMemory:
        make = partial(LedMemory, foreman=self.foreman)
        memory = plan_memory(self.network.specs, n_seq_max, self.n_ctx, self._kind, spare, machine, make)
        assert isinstance(memory, LedMemory)
        return memory

    # --- passes ---
    @property
    def depth(self) -> int:
        """Number of passes that can be under way at a time."""
        return len(self.stages)

    def piece(self, n_tok: int) -> int:
        """Limit on the tokens of an ubatch when n_tok are read: two ubatches per stage, unless tiny."""
        return min(self.n_ubatch, max(LEAST_PIECE, -(-n_tok // (2 * self.depth))))

    def run(self, segments: Sequence[Segment], *, likelihood: bool = False, hidden: bool = False) -> np.ndarray | None:
        """As `Engine.run`."""
        (values,) = self.passes([segments], likelihood=likelihood, hidden=hidden)
        return values

    def passes(
        self, ubatches: Iterable[Sequence[Segment]], *, likelihood: bool = False, hidden: bool = False
    ) -> "Passes":
        """`run` for several ubatches: while the caller waits for the first, later ones are computed."""
        return Passes(self, ubatches, "likelihood" if likelihood else "hidden" if hidden else "head")

    def start(self, segments: Sequence[Segment], wanted: Wanted) -> Ticket:
        """Order a pass. The leader's bookkeeping counts it as done."""
        n_tok = sum(len(s.tokens) for s in segments)
        assert 0 < n_tok <= self.n_ubatch
        self.expects_few = self.expects_few or (n_tok > GEMV_COLUMNS and any(s.each for s in segments))
        moves = self._begin(segments, keep=False)
        rows, targets = self._control.fill(segments, moves)
        reach = max(min(self.n_ctx, move.position + move.reach - move.past) for move in moves)
        pictures = None
        if any(s.pictures for s in segments):
            self.picture_passes.fill(segments, moves)
            pictures = self.picture_passes.copied(sum(len(s.tokens) for s in segments))
        control, few = self._control.copied(), self.expects_few
        ticket = self.foreman.put(Pass(control, rows, targets, wanted if rows else "none", reach, few, pictures))
        for move in moves:
            self.memory.n_past[move.seq] = move.past + move.n
            if len(move.rows) == 1:
                self.memory.finish(move)
        return ticket

    def step(self, slot: int, token: int, applied: Applied = NONE) -> np.ndarray:
        """As `Engine.step`."""
        values = self.run([Segment(slot, (token,), (0,), applied=applied)])
        assert values is not None
        logits: np.ndarray = values[0]
        return logits

    def reopen(self) -> None:
        """After a stage was lost, open all stages again with empty memory, and empty all sequences of the leader.

        Raises Interrupted, with everything unchanged, if `stop` is set while waiting for a worker.
        """
        self.line.open(self.openings, self.stop)
        for slot in range(self.memory.n_seq_max):
            self.memory.release(slot)

    def expect_few(self, affordable: float) -> bool:
        """As `Engine.expect_few`: the stages make such programs with the next wider guess, and may lack the kernels."""
        self.expects_few = self.expects_few or affordable > STAGE_SECONDS
        return self.expects_few

    def prepare(self, progress: CompileProgress | None = None, helper: Sequence[str] = ()) -> None:
        """Does nothing: each stage compiles its own kernels."""

    def close(self) -> None:
        self.line.close()
        super().close()

    # --- not possible in stages ---
    def profile(self, segments: Sequence[Segment]) -> list[OpTime]:
        raise UsageError("the time of every operation cannot be measured in stages. Load the whole model for that.")

    def collecting(self, collection: Collection) -> AbstractContextManager[None]:  # type: ignore[override]
        raise UsageError("an importance matrix cannot be collected in stages. Load the whole model for that.")

    def trace(self, segments: Sequence[Segment]) -> list[np.ndarray]:
        raise UsageError("the layers of a model in stages cannot be traced. Load the whole model for that.")


class Passes:
    """Iterates over the values of ubatches, in their order. Some ubatches are ordered ahead, `depth` + 1 at most.

    An exception takes all sequences back to before the first ubatch.
    """

    def __init__(self, engine: StagedEngine, ubatches: Iterable[Sequence[Segment]], wanted: Wanted) -> None:
        self._engine, self._left, self._wanted = engine, iter(ubatches), wanted
        self._held: dict[int, tuple[int, int]] = {}
        self._under_way: deque[Ticket] = deque()

    def order(self) -> None:
        """Order ubatches until one more than there are stages is under way. Does not wait."""
        memory = self._engine.memory
        try:
            while len(self._under_way) <= self._engine.depth and (segments := next(self._left, None)) is not None:
                for s in segments:
                    if s.slot not in self._held:
                        self._held[s.slot] = memory.hold_row(s.slot)
                self._under_way.append(self._engine.start(segments, self._wanted))
        except BaseException:
            self.go_back()
            raise

    def __iter__(self) -> Iterator[np.ndarray | None]:
        try:
            while True:
                self.order()
                if not self._under_way:
                    break
                (values,) = self._under_way.popleft().wait(self._engine.stop)
                assert not isinstance(values, dict)
                yield values
        except BaseException:
            self.go_back()
            raise
        for _, row in self._held.values():
            self._engine.memory.let_row_go(row)

    def go_back(self) -> None:
        """Take all sequences back to before the first ubatch."""
        held, self._held = self._held, {}
        for slot, before in held.items():
            self._engine.memory.go_back(slot, *before)
