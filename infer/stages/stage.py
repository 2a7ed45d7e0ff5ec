"""A stage: some blocks of a model with their part of the memory, which obeys a leader's orders."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hybrid.quant.ggml.adapter import Adapter, open_all
from hybrid.quant.ggml.byte_sizes import size_text
from hybrid.quant.ggml.errors import Remedy, UsageError
from hybrid.quant.ggml.machine_memory import MachineMemory
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.split import open_gguf

from ..engine.engine import Engine
from ..engine.network import Network
from ..kernels.attention.kv import cache_types
from ..memory import HybridMemory
from ..memory.needs import SequenceNeeds
from ..program.builder import Program, Rows
from ..program.threads import default_threads
from .orders import Arrays, AskKept, Keep, Opening, Order, Pass, TakeUp
from .stage_files import StageFiles


class _Part(Engine):
    """The engine of a stage. It does no bookkeeping: the leader fills its control block."""

    def __init__(self, gguf: GGUFFile, opening: Opening) -> None:
        self.opening = o = opening
        arch = str(gguf.get("general.architecture"))
        super().__init__(
            gguf, n_ctx=o.n_ctx, n_seq_max=o.n_seq_max, n_ubatch=o.n_ubatch, n_threads=o.n_threads or default_threads(),
            exact=o.exact, kv_type=cache_types(o.kv_type), adapters=open_all(o.adapters, arch),
        )  # fmt: skip

    def _network(self, adapters: Sequence[Adapter], n_ctx: int) -> Network:
        o = self.opening
        return Network(self.gguf, o.n_ubatch, adapters, n_ctx, o.blocks, o.given, o.left)

    def _memory(self, n_seq_max: int, spare: int, machine: MachineMemory) -> HybridMemory:
        o, specs = self.opening, self.network.specs
        need = SequenceNeeds.of(specs, self._kind).nbytes(n_seq_max, o.n_ctx)
        if need > machine.total:
            raise UsageError(
                f"blocks {o.blocks.start} to {o.blocks.stop - 1}: {n_seq_max} sequences of {o.n_ctx} tokens need "
                f"{size_text(need)}, the machine of this stage has {size_text(machine.total)}.",
                remedy=Remedy.SMALLER_CONTEXT,
            )
        return HybridMemory(specs, n_seq_max, o.n_ctx, self._kind, o.n_pages, o.n_rows)

    def usual_shapes(self) -> set[tuple[str, int]]:
        return {self._possible(*key) for key in super().usual_shapes() if self._runs(key[0])}

    def _first_programs(self) -> dict[tuple[str, int], tuple[Program, Rows | None]]:
        if self.network.is_last:
            return super()._first_programs()
        keys = [self._key("body", n) for n in (1, self.n_ubatch)]
        return {key: self._build(*key) for key in keys if key not in self._programs}

    def _runs(self, part: str) -> bool:
        return self.network.is_last or part in ("body", "step")

    def _possible(self, part: str, capacity: int) -> tuple[str, int]:
        return (part if self.network.is_last else "body"), capacity

    def obey(self, order: Pass, entering: np.ndarray | None) -> np.ndarray | None:
        """Compute a pass. Returns the rows that leave the stage, f32 [n_tok, sum of widths]; the last stage returns
        the wanted results."""
        n, net = order.n_tok, self.network
        self._control.put(order.control)
        self.expects_few = self.expects_few or order.few
        net.weights.reach(order.reach)
        if not net.is_first:
            assert entering is not None
            at = 0
            for rows in net.entering():
                rows[:n] = entering[:, at : at + rows.shape[1]]
                at += rows.shape[1]
        body, adapts, is_long = None, "adapted" in order.control, self._is_long(n, 0)
        if order.pictures is not None:
            self.picture_passes.put(order.pictures)
            body = self._program_with_pictures(n, adapts=adapts)
        if net.is_last:
            rows_wanted = order.rows if order.wanted != "none" else []
            return self._compute(n, rows_wanted, order.targets, order.wanted, body, adapts=adapts, stoppable=is_long)
        self._compute(n, [], [], "none", body, adapts=adapts, stoppable=is_long)
        return np.concatenate([rows[:n] for rows in net.leaving()], axis=1)


class Stage:
    """Some blocks of a model with their memory. files: where it saves pages and rows. Raises as `LoadedModel.load`."""

    def __init__(self, gguf: GGUFFile, opening: Opening, files: StageFiles) -> None:
        self.gguf, self.blocks, self.files = gguf, opening.blocks, files
        self.engine = _Part(gguf, opening)
        self.engine.prepare()

    @classmethod
    def open(cls, path: Path, opening: Opening, files: StageFiles) -> "Stage":
        return cls(open_gguf(path), opening, files)

    @property
    def tensors(self) -> set[str]:
        """Names of the tensors that it uses. No others are read."""
        return self.engine.network.weights.used

    def obey(self, order: Order, entering: np.ndarray | None = None) -> Arrays | np.ndarray | None:
        """Carry out an order. Returns the result of `_Part.obey` for a pass, otherwise the answer of the chore."""
        table = self.engine.memory.attention.table
        for slot, i, page in order.pages:
            table[slot, i] = page
        if isinstance(order.what, Pass):
            return self.engine.obey(order.what, entering)
        if isinstance(order.what, Keep | AskKept | TakeUp):
            return order.what.do(self.engine.memory, self.files)
        return order.what.do(self.engine.memory)

    def close(self, *, remove: bool = True) -> None:
        """End its threads. The model file stays open: others may use it. remove: delete its saved pages and rows."""
        self.engine.close()
        self.files.close(remove=remove)
