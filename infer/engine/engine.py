"""The engine: one model's weights and memory, its programs by shape of work, and the batches that run through them."""

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np

from hybrid.quant.ggml.adapter import Adapter
from hybrid.quant.ggml.errors import UsageError
from hybrid.quant.ggml.families.hparams import Hparams
from hybrid.quant.ggml.machine_memory import MachineMemory, machine_memory
from hybrid.quant.ggml.reader import GGUFFile

from ..kernels.attention.kv import PAGE, CacheTypes
from ..kernels.build.jit import CompileProgress
from ..kernels.products.low_rank import low_rank_inputs, low_rank_sums
from ..loading.options import DEFAULT_UBATCH
from ..loading.read_ahead import ReadAhead
from ..memory import HybridMemory, Move, plan_memory
from ..memory.needs import Room
from ..program.builder import GEMV_COLUMNS, Op, Program, Rows
from ..program.threads import Interrupted, Pool, Stop
from .applied import NONE, Applied
from .collection import Collection
from .context import Context, Rooms, chosen_context
from .network import Network
from .op_times import OpTime, OpTimes
from .picture_passes import PicturePasses
from .pictures import Shown
from .prefix_pass import compute_prefix
from .programs import ModelPrograms
from .ubatch import Control, Segment

# upper bounds: bytes of the programs for DEFAULT_UBATCH tokens, and more bytes per token of the context
SURELY, SURELY_PER_TOKEN = 2 << 30, 4096
QUICK_BYTES = 1 << 33  # with fewer bytes of weights a pass of one token ends so soon that Ctrl-C can wait
QUICK_STEP = 16  # sequences, of which such a pass may have a token each


class Engine(ModelPrograms):
    """Everything except text: raw ubatches in, logits or likelihoods out.

    stages: the blocks of each stage, where the model is divided (infer/stages); here it is not
    """

    stages: Sequence[range] = ()

    def __init__(
        self,
        gguf: GGUFFile,
        *,
        n_ctx: int,
        n_seq_max: int,
        n_ubatch: int,
        n_threads: int,
        exact: bool,
        kv_type: CacheTypes,
        spare: int = 0,
        adapters: Sequence[Adapter] = (),
        beside: int = 0,
        cpus: Sequence[int] = (),
        nodes: Sequence[int] = (),
    ) -> None:
        self.gguf, self.n_ubatch = gguf, n_ubatch
        self._cpus, self._nodes = cpus, nodes  # for the threads and for the memory they touch; empty: any
        padding = gguf.get("tokenizer.ggml.padding_token_id", 0)
        self._control = Control(n_ubatch, padding if isinstance(padding, int) else 0, len(adapters))
        self._pictures: PicturePasses | None = None
        net = self._network(adapters, n_ctx)
        # batches make steps of a few tokens, which are worth their own kernels; so does speculation, later
        few = n_seq_max > 1
        super().__init__(net, self._control.batch, n_ubatch=n_ubatch, n_threads=n_threads, exact=exact, few=few)
        self.hparams: Hparams = net.hparams
        self.stop: Stop | None = None  # interrupts the current runs
        self.keeps_states = False  # whether `last_states` will be called
        self.collection: Collection | None = None  # of the current measurement of inputs, between its passes
        self.pool: Pool | None = None
        self._read_ahead: ReadAhead | None = None
        self._lender: Engine | None = None  # whose threads it uses
        machine = self._machine()
        self._kind, self._beside = kv_type, beside
        rooms = Rooms(lambda n: self._least_room(machine, n, spare), lambda n: self.room(machine, n, n_seq_max, spare))
        self.context = self._context(n_ctx, n_seq_max, spare, rooms)
        self.n_ctx = self.context.n
        self.memory = self._memory(n_seq_max, spare, machine)
        self._lacks_prefix = net.prefix is not None
        self.memory.learned_positions = net.positions is not None
        self.memory.has_axes, self.memory.is_together = net.weights.has_axes, net.weights.is_together

    # --- overridden for a part of a model (infer/stages) ---
    def _network(self, adapters: Sequence[Adapter], n_ctx: int) -> Network:
        return Network(self.gguf, self.n_ubatch, adapters, n_ctx)

    def _machine(self) -> MachineMemory:
        """The memory of the machine on which the model runs."""
        return machine_memory()

    def _context(self, n_ctx: int, n_seq_max: int, spare: int, rooms: Rooms) -> Context:
        """The context: n_ctx, or chosen if that is 0. spare: bytes for the prompt cache."""
        return chosen_context(self.network, n_ctx, n_seq_max, self._kind, rooms)

    def _memory(self, n_seq_max: int, spare: int, machine: MachineMemory) -> HybridMemory:
        return plan_memory(self.network.specs, n_seq_max, self.n_ctx, self._kind, spare, machine)

    # --- memory needs ---
    def room(self, machine: MachineMemory, n_ctx: int, n_seq: int, cache: int) -> Room:
        """The part of a machine's memory that is available for n_seq sequences of n_ctx tokens."""
        return Room(machine, self.gguf.nbytes, self.working_bytes(n_ctx, n_seq), cache, self._beside)

    def _least_room(self, machine: MachineMemory, n_ctx: int, cache: int) -> Room:
        """A lower bound of `room`, which itself takes as long as half of a load."""
        surely = SURELY * -(-self.n_ubatch // DEFAULT_UBATCH) + SURELY_PER_TOKEN * n_ctx
        return Room(machine, self.gguf.nbytes, surely, cache, self._beside)

    def working_bytes(self, n_ctx: int, n_seq: int) -> int:
        """Bytes for the computation of passes with n_seq sequences of n_ctx tokens, and of copies from the file."""
        memory, before = HybridMemory(self.network.specs, 1, PAGE, self._kind), self.expects_few
        try:
            self.expects_few = n_seq > 1
            with self.network.weights.trial():
                either = (False, True) if self.network.weights.adapters else (False,)
                arenas = sum(
                    self._recorded(*shape, memory, adapts=adapts)[0].nbytes(n_ctx)
                    for shape in self.usual_shapes()
                    for adapts in either
                )
        finally:
            self.expects_few = before
        return self.network.nbytes + self._control.nbytes + self._nll.nbytes + arenas

    def picture_bytes(self, n_ctx: int) -> int:
        """Bytes that passes with pictures take in addition: their arrays, and the largest of their programs."""
        passes, memory = self._picture_passes(), HybridMemory(self.network.specs, 1, PAGE, self._kind)
        with self.network.weights.trial():
            return passes.nbytes + self._recorded("body", self.n_ubatch, memory, passes.batch)[0].nbytes(n_ctx)

    def trace(self, segments: Sequence[Segment]) -> list[np.ndarray]:
        """Run one ubatch and return the residual stream, f32 [n_tok, n_embd]: the embedding, then after every block.

        Use it to find the layer at which a model and its reference diverge.
        """
        n_tok = sum(len(s.tokens) for s in segments)
        b = self._builder(self.capacity(n_tok, self.n_ubatch), adapts=_adapts(segments))
        kept: list[Rows] = []
        self.network.add_body(b, self.memory, kept)
        b.keep(*kept)
        program = b.build()
        self.compile_program(program)
        moves = self._begin(segments, keep=True)
        self._control.fill(segments, moves)
        with self._whole(moves):
            self._run(program, stoppable=True)
        return [program.view(rows, n_tok).copy() for rows in kept]

    def prepare(self, progress: CompileProgress | None = None, helper: Sequence[str] = ()) -> None:
        """Build and compile the programs for generation, while weights are read. `helper`: see compile_kernels."""
        self._read_ahead = ReadAhead(self.gguf, self.network.read_by_passes())
        begin = time.perf_counter()
        programs = self._first_programs()
        self._few_seconds = time.perf_counter() - begin  # of as many programs
        self._compile((k for program, _ in programs.values() for k in program.kernels), progress, helper)
        if self.network.weights.adapters:
            self._compile([low_rank_inputs, low_rank_sums])
        for key, (program, logits) in programs.items():
            program.link()
            self._programs[key] = program, logits

    # --- running ---
    @contextmanager
    def stopped_by(self, stop: Stop) -> Iterator[None]:
        """See `LoadedModel.stopped_by`."""
        before, self.stop = self.stop, stop
        try:
            yield
        finally:
            self.stop = before

    def with_stop(self) -> AbstractContextManager[None]:
        """A context with something for `LoadedModel.stop` to set, even if the caller gave no stop."""
        return self.stopped_by(Stop()) if self.stop is None else nullcontext()

    def _run(self, program: Program, stoppable: bool, stamps: int = 0) -> None:
        self._threads().run(program, stoppable=stoppable, stop=self.stop, stamps=stamps)

    def run_in_threads_of(self, other: "Engine") -> None:
        """Use the threads of `other` from now on: it has as many, and the two never run at the same time."""
        assert other.n_threads == self.n_threads and self.pool is None
        self._lender = other

    def _threads(self) -> Pool:
        if self._lender is not None:
            return self._lender._threads()
        if self.pool is None:
            self.pool = Pool(self.n_threads, self._cpus, self._nodes)
        return self.pool

    def run(self, segments: Sequence[Segment], *, likelihood: bool = False, hidden: bool = False) -> np.ndarray | None:
        """Run one ubatch. Returns logits f32 [n_out, n_vocab] of the output tokens.

        likelihood: -log p of the targets, f64 [n_out], instead; hidden: the rows after the last norm, f32 [n_out,
        n_embd], instead.

        Raises Interrupted when stopped. The memory of every sequence is then as before: a ubatch is read whole, or not
        at all. A short run, which overwrites states in place, is not stopped; the next run is.
        """
        n_tok = sum(len(s.tokens) for s in segments)
        assert 0 < n_tok <= self.n_ubatch
        self.expects_few = self.expects_few or (n_tok > GEMV_COLUMNS and any(s.each for s in segments))
        is_long = self._is_long(n_tok, len(segments))
        moves = self._begin(segments, keep=is_long)
        rows, targets = self._control.fill(segments, moves)
        wanted = "likelihood" if likelihood else "hidden" if hidden else "head"
        with self._whole(moves):
            body, adapts = None, _adapts(segments)
            if any(s.pictures for s in segments):
                self.picture_passes.fill(segments, moves)
                body = self._program_with_pictures(n_tok, adapts=adapts)
            return self._compute(n_tok, rows, targets, wanted, body, adapts=adapts, stoppable=is_long)

    def check_picture(self, shown: Shown) -> None:
        """Raise UsageError if the model cannot read this part of a picture."""
        picture, n_embd, n_added = shown.picture, self.hparams.n_embd, len(self.network.picture_blocks)
        if picture.rows.shape[1] != n_embd or len(picture.added) != n_added:
            raise UsageError(
                f"the picture's rows have {picture.rows.shape[1]} values, this model's {n_embd}, and it has "
                f"{len(picture.added)} sets of rows for later layers, this model {n_added}: they are of another model."
            )
        if self.memory.is_together and shown.n < len(picture.ids):
            raise UsageError("this model reads a picture whole: its tokens cannot be given in parts.")
        if self.memory.is_together and shown.n > self.n_ubatch:
            raise UsageError(
                f"a picture of {shown.n} tokens does not fit a pass of {self.n_ubatch} tokens. Load the model with a "
                "larger n_ubatch."
            )

    @property
    def picture_passes(self) -> PicturePasses:
        """What passes with pictures need, made when the first is read."""
        if self._pictures is None:
            self._pictures = self._picture_passes()
        return self._pictures

    def _picture_passes(self) -> PicturePasses:
        return PicturePasses(self.batch, self.network.picture_blocks, self.hparams.n_embd, self.n_ubatch)

    def _program_with_pictures(self, n_tok: int, *, adapts: bool) -> Program:
        """The body's program for n_tok tokens, some of pictures."""
        passes, capacity = self.picture_passes, self.capacity(n_tok, self.n_ubatch)
        if (key := (capacity, adapts)) not in passes.programs:
            program = self._recorded("body", capacity, self.memory, passes.batch, adapts=adapts)[0].build()
            self.compile_program(program)
            passes.programs[key] = program
        return passes.programs[key]

    def _compute(
        self,
        n_tok: int,
        rows: Sequence[int],
        targets: Sequence[int],
        wanted: str,
        body: Program | None = None,
        *,
        adapts: bool = False,
        stoppable: bool,
    ) -> np.ndarray | None:
        """Run the ubatch in the control block; returns the `wanted` result of `rows` (see `run`).

        body: the program, where it is not the usual one; adapts: some tokens have adapters; stoppable: see `Pool.run`.
        """
        whole = len(rows) == n_tok or not self.keeps_states  # "step" keeps only the states of output tokens
        if body is None and n_tok <= GEMV_COLUMNS and len(rows) > 0 and wanted == "head" and whole:
            self._control.want(rows)
            program, logits = self.program("step", n_tok, adapts=adapts)
            self._run(program, stoppable=stoppable)
            assert logits is not None
            return program.view(logits, len(rows)).copy()
        if body is None:
            body, _ = self.program("body", n_tok, adapts=adapts)
        self._run(body, stoppable=stoppable)
        results = []
        for i in range(0, len(rows), self.n_out_max):
            part = rows[i : i + self.n_out_max]
            self._control.want(part, targets[i : i + self.n_out_max])
            head, logits = self.program(wanted, len(part), adapts=adapts)
            self._run(head, stoppable=stoppable and len(part) > GEMV_COLUMNS)
            assert logits is not None
            few = self._nll[: len(part)] if wanted == "likelihood" else head.view(logits, len(part))
            results.append(few.copy())
        return np.concatenate(results) if results else None

    def last_states(self, n: int) -> np.ndarray:
        """The states that a head for multi-token prediction reads, f32 [n, width], for all n tokens of the last run.

        Needs `keeps_states`. They are the rows after the last norm, or all residual streams before they are joined.
        """
        if self.network.head is not None and self.network.head.streams is not None:
            return self.network.streams_of(n)
        rows = []
        for i in range(0, n, self.n_out_max):
            part = range(i, min(i + self.n_out_max, n))
            self._control.want(part)
            program, states = self.program("hidden", len(part))
            self.run_program(program)
            assert states is not None
            rows.append(program.view(states, len(part)).copy())
        return np.concatenate(rows)

    def run_program(self, program: Program) -> None:
        """Run a short program, which cannot be stopped."""
        self._run(program, stoppable=False)

    def _is_long(self, n_tok: int, n_seq: int) -> bool:
        """Whether a run of n_tok tokens of n_seq sequences takes so long that it must be possible to stop it. States of
        other runs change in place: recurrent states are then read and written once, not copied to other rows."""
        most = QUICK_STEP if n_tok == n_seq else GEMV_COLUMNS
        return n_tok > most or self.gguf.nbytes >= QUICK_BYTES

    def step(self, slot: int, token: int, applied: Applied = NONE) -> np.ndarray:
        """`run` of one token with its logits, f32 [n_vocab], without the overhead for several tokens.

        The Python overhead per token matters: small models spend less than a millisecond on the rest.
        """
        if applied or self._is_long(1, 1):
            values = self.run([Segment(slot, (token,), (0,), applied=applied)])
            assert values is not None
            row_of_logits: np.ndarray = values[0]
            return row_of_logits
        if self.stop is not None:
            self.stop.check()
        past = self.memory.n_past.item(slot)
        if past >= self.memory.writable[slot]:
            self._read_prefix()
            move = self.memory.begin(slot, 1)
            self.reach(move)
            row, before = move.rows[0], move.before
        else:
            move, row = None, self.memory.recurrent.row[slot]
            before = row
        if self._one is None:
            program, logits = self.program("step", 1)
            assert logits is not None
            self._one = program, program.view(logits, 1)[0]
        program, view = self._one
        position = past + self.memory.positions[slot].offset
        self._control.fill_one(slot, token, past, position, row, before)
        self._run(program, stoppable=False)
        if move is not None:
            self.memory.finish(move)
        return view.copy()

    def _begin(self, segments: Sequence[Segment], keep: bool) -> list[Move]:
        """Make room for the segments. keep: preserve the states before them, which a run that can be stopped needs."""
        if self.stop is not None:
            self.stop.check()
        self._read_prefix()
        moves: list[Move] = []
        try:
            for s in segments:
                n = len(s.tokens)
                pictures = s.tokens if s.pictures else None
                moves.append(self.memory.begin(s.slot, n, keep=keep, pieces=n if s.each else 1, pictures=pictures))
                self.reach(moves[-1])
        except BaseException:
            for move in moves:
                self.memory.abandon(move)
            raise
        return moves

    def _read_prefix(self) -> None:
        """Compute the prefix of all texts before the first run, if the model has one."""
        if self._lacks_prefix:
            self.memory.keep_prefix(compute_prefix(self, self._control))
            self._lacks_prefix = False

    def reach(self, move: Move) -> None:
        """Extend the weights' position tables to the positions of the run and of single tokens after it."""
        self.network.weights.reach(min(self.n_ctx, move.position + move.reach - move.past))

    @contextmanager
    def _whole(self, moves: Sequence[Move]) -> Iterator[None]:
        """Within it a program changes the memory; after a stop the sequences are as before.

        After any other exception the next run settles the memory, by what the program has written.
        """
        try:
            yield
        except Interrupted:
            for move in moves:
                self.memory.abandon(move)
            raise
        for move in moves:
            if len(move.rows) == 1:
                self.memory.finish(move)

    def settle(self, slot: int, n: int) -> None:
        """Keep only the first n tokens, at least 1, of a segment that left a state at `each` token."""
        self.memory.keep_pieces(slot, n)

    def profile(self, segments: Sequence[Segment]) -> list[OpTime]:
        """Run one ubatch; returns time, bytes and operations, summed by op name."""
        lengths = [(int(self.memory.n_past[s.slot]), len(s.tokens)) for s in segments]
        n_tok = sum(n for _, n in lengths)
        is_long = self._is_long(n_tok, len(segments))
        moves = self._begin(segments, keep=is_long)
        rows, _ = self._control.fill(segments, moves)
        self._control.want(rows)
        totals = OpTimes()
        with self._whole(moves):
            for part in ["step"] if n_tok <= GEMV_COLUMNS else ["body", "head"]:
                n = n_tok if part != "head" else len(rows)
                program, _ = self.program(part, n, profiled=True, adapts=_adapts(segments))
                for op, seconds in self._timed(program, is_long):
                    totals.add(op, seconds, *program.work_of(op, n, lengths))
        return totals.slowest_first()

    def _timed(self, program: Program, stoppable: bool) -> list[tuple[Op, float]]:
        """Run a program; returns every op with its seconds."""
        stamps = np.zeros(len(program.ops) + 1, np.int64)
        start = time.perf_counter()
        self._run(program, stoppable=stoppable, stamps=int(stamps.ctypes.data))
        elapsed = time.perf_counter() - start
        ticks = max(1, int(stamps[-1] - stamps[0]))
        return [(op, float(t) / ticks * elapsed) for op, t in zip(program.ops, np.diff(stamps), strict=True)]

    def close(self) -> None:
        """Stop the threads. The weights no longer count as this process's memory."""
        if self._read_ahead is not None:
            self._read_ahead.stop()
        if self.pool is not None:
            self.pool.close()
            self.pool = None
        self.gguf.release_all()


def _adapts(segments: Sequence[Segment]) -> bool:
    """Whether some tokens have adapters."""
    return any(s.applied for s in segments)
