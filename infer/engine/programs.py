"""The programs of one model: recorded per shape of work, compiled and kept."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from ..kernels import execute
from ..kernels.build.jit import CompileProgress, Kernel, compile_kernels, load_cached
from ..kernels.emit.isa import host
from ..kernels.products import gemm
from ..kernels.products.inputs import SquareSums
from ..memory import HybridMemory
from ..program.builder import FEW_COLUMNS, GEMV_COLUMNS, Batch, Builder, Program, Rows, round_up
from ..program.threads import default_threads
from .collection import Collection, Programs
from .network import Network

LOGITS_BYTES = 32 << 20  # most bytes of the logits of one run; more outputs take several runs
KERNEL_SECONDS = 0.4  # to compile a kernel that the disk cache lacks
MOST_COMPILERS = 4  # processes: the longest of a model's 20 kernels takes a sixth of the time


class ModelPrograms(ABC):
    """The programs for passes of up to n_ubatch tokens.

    few     steps of a few tokens are expected, and get their own kernels
    memory  of the sequences, which programs read and write
    """

    memory: HybridMemory

    def __init__(
        self, network: Network, batch: Batch, *, n_ubatch: int, n_threads: int, exact: bool, few: bool
    ) -> None:
        self.network, self.batch, self.n_ubatch, self.n_threads, self.exact = network, batch, n_ubatch, n_threads, exact
        self.n_vocab = network.n_vocab
        self.expects_few = few
        self.compile_seconds, self.n_compiled = 0.0, 0
        self._programs: Programs = {}
        self.n_out_max = max(16, min(round_up(n_ubatch, 16), LOGITS_BYTES // (4 * self.n_vocab) // 16 * 16))
        self._nll = np.zeros(n_ubatch, np.float64)
        self._inputs: SquareSums | None = None
        self._one: tuple[Program, np.ndarray] | None = None  # program and logits of a step of one token
        self._few: Programs | None = None  # programs for a few tokens that lack kernels
        self._few_seconds = 0.0  # estimated time until these can run

    # --- per shape of work ---
    def usual_shapes(self) -> set[tuple[str, int]]:
        """(part, capacity) of the programs that generation needs sooner or later."""
        tile = gemm.tiles(host())[0].cols
        few = [GEMV_COLUMNS, FEW_COLUMNS, tile, 4 * tile] if self.expects_few else []
        passes = {self.shape(n) for n in (1, *few, self.n_ubatch)}
        return passes | {self._key("head", n) for n in (1, *few, self.n_ubatch)}

    def capacity(self, n: int, largest: int) -> int:
        """Columns of the program for n columns, at most `largest`."""
        if n == 1 or (n <= GEMV_COLUMNS and not self.expects_few):
            return min(GEMV_COLUMNS, largest)
        # without batches and speculation few columns occur only at the end of a prompt: not worth kernels
        if self.expects_few:
            narrow, _ = gemm.tiles(host())
            for size in (FEW_COLUMNS, narrow.cols, 4 * narrow.cols):  # the last: an expert still gets few columns
                if n <= size:
                    return min(size, largest)
        return largest

    def _builder(self, capacity: int, batch: Batch | None = None, *, adapts: bool = False) -> Builder:
        b = Builder(capacity, self.n_threads, exact=self.exact, batch=batch or self.batch, adapts=adapts)
        b.inputs = self._inputs
        return b

    def _build(
        self, part: str, capacity: int, *, profiled: bool = False, adapts: bool = False
    ) -> tuple[Program, Rows | None]:
        b, logits = self._recorded(part, capacity, self.memory, adapts=adapts)
        if profiled:
            b.keep_groups()
        return b.build(), logits

    def _recorded(
        self, part: str, capacity: int, memory: HybridMemory, batch: Batch | None = None, *, adapts: bool = False
    ) -> tuple[Builder, Rows | None]:
        """The builder with a program's ops, and its rows of logits; see `program`."""
        b, net = self._builder(capacity, batch, adapts=adapts), self.network
        logits: Rows | None = None
        residual: Rows | None = None
        if part in ("body", "step"):
            residual = net.add_body(b, memory)
        if part == "body":
            if residual is not None:
                net.add_residual(b, residual)
        else:
            logits = net.add_last_norm(b, residual) if part == "hidden" else net.add_head(b, residual)
            if part == "likelihood":
                net.add_likelihood(b, logits, int(self._nll.ctypes.data))
            else:
                b.keep(logits)
        return b, logits

    def shape(self, n: int) -> tuple[str, int]:
        """The key of the programs that passes of n tokens run."""
        return self._key("step" if n <= GEMV_COLUMNS else "body", n)

    def _key(self, part: str, n: int) -> tuple[str, int]:
        return part, self.capacity(n, self.n_ubatch if part in ("body", "step") else self.n_out_max)

    def program(
        self, part: str, n: int, *, profiled: bool = False, adapts: bool = False
    ) -> tuple[Program, Rows | None]:
        """The compiled program for n columns, and the rows with its result.

        part: 'body', 'head' (logits), 'likelihood' (head and likelihood), 'hidden' (rows after the last norm instead of
        logits), or 'step' (body and head in one).

        profiled: the program can report the work of its ops, see `Program.work_of`.
        adapts: some tokens have adapters.
        """
        shape = self._key(part, n)
        key = (*shape, profiled, adapts) if profiled or adapts else shape
        if key not in self._programs:
            program, logits = self._build(*shape, profiled=profiled, adapts=adapts)
            self.compile_program(program)
            self._programs[key] = (program, logits)
        return self._programs[key]

    def _compile(
        self, kernels: Iterable[Kernel], progress: CompileProgress | None = None, helper: Sequence[str] = ()
    ) -> None:
        kernels = [execute.EXECUTE, *kernels]
        pending = [k for k in dict.fromkeys(kernels) if not k.ready]
        self.compile_seconds += compile_kernels(pending, progress, helper, min(MOST_COMPILERS, default_threads()))
        self.n_compiled += sum(not k.from_cache for k in pending)

    @abstractmethod
    def run_program(self, program: Program) -> None:
        """Run a short program, which cannot be stopped."""

    def compile_program(self, program: Program) -> None:
        """Compile and link a program."""
        self._compile(program.kernels)
        program.link()

    def expect_few(self, affordable: float) -> bool:
        """Make the programs for passes of a few tokens, if that takes at most `affordable` seconds, as estimated.
        Returns whether they are there, and used from now on."""
        if self.expects_few or affordable < self._few_seconds:
            return self.expects_few
        if self._few is None:
            self.expects_few = True
            keys = [
                self._key(part, n) for part, n in (("step", GEMV_COLUMNS), ("body", FEW_COLUMNS), ("head", FEW_COLUMNS))
            ]
            self.expects_few = False
            self._few = {key: self._build(*key) for key in keys if key not in self._programs}
            missing = load_cached(
                [k for program, _ in self._few.values() for k in dict.fromkeys(program.kernels) if not k.ready]
            )
            self._few_seconds = KERNEL_SECONDS * len(set(missing))
            if affordable < self._few_seconds:
                return False
        for program, _ in self._few.values():
            self.compile_program(program)
        self._programs |= self._few
        self._few, self.expects_few = None, True
        return True

    def _first_programs(self) -> dict[tuple[str, int], tuple[Program, Rows | None]]:
        """The programs, not compiled, for steps of one token and for prompts."""
        keys = [self._key(part, n) for part, n in (("step", 1), ("body", self.n_ubatch), ("head", 1))]
        return {key: self._build(*key) for key in keys if key not in self._programs}

    def first_kernels(self) -> list[Kernel]:
        """The kernels that `prepare` compiles."""
        return [execute.EXECUTE, *(k for program, _ in self._first_programs().values() for k in program.kernels)]

    def usual_kernels(self) -> list[Kernel]:
        """The kernels of all programs for generation and for measuring texts; `first_kernels` come first."""
        keys = [*self._first_programs(), *sorted(self.usual_shapes()), self._key("likelihood", self.n_ubatch)]
        programs = (self._build(*key)[0] for key in dict.fromkeys(keys))
        return [execute.EXECUTE, *(k for program in programs for k in program.kernels)]

    def compile_usual(self, progress: CompileProgress | None = None, helper: Sequence[str] = ()) -> int:
        """Compile the usual kernels that the disk cache lacks; returns the number of all. `helper`: see `prepare`."""
        kernels = dict.fromkeys(self.usual_kernels())
        self._compile(kernels, progress, helper)
        return len(kernels)

    # --- measuring inputs ---
    @contextmanager
    def collecting(self, collection: Collection) -> Iterator[None]:
        """Within it, runs add to the collection, with separate programs, so that other runs are not slower."""
        before = self._inputs, self._programs, self._one
        try:
            self._inputs, self._programs, self._one = collection.sums, collection.programs, None
            yield
        finally:
            self._inputs, self._programs, self._one = before
