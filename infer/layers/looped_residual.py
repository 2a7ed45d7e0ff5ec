"""Layers that a token passes several times, on banked residuals (Inkling 2 with loops).

Every pass after the first begins with the stream before the first pass, and receives messages from the pass before.
"""

from dataclasses import dataclass

from ..kernels.rows import elementwise
from ..kernels.rows.message_gate import message_gate
from ..loading.weights import Weights
from ..memory import HybridMemory
from ..program.builder import Builder, Rows
from .banked_residual import BankedResidual, BankedStreams, Banks


@dataclass(frozen=True)
class Loop:
    """Layers first .. end - 1 are passed n_pass times."""

    first: int
    end: int
    n_pass: int

    @property
    def n(self) -> int:
        return self.end - self.first

    @property
    def n_more(self) -> int:
        """Layers of the passes after the first."""
        return (self.n_pass - 1) * self.n

    def place(self, i: int) -> tuple[int, int]:
        """The layer that block i is a pass through, without counting later passes, and the number of the pass."""
        if i < self.end:
            return i, 0
        if i < self.end + self.n_more:
            return self.first + (i - self.first) % self.n, (i - self.first) // self.n
        return i - self.n_more, 0

    def sent(self, banks: Banks) -> int:
        """Rows that a pass leaves to the next: the banks after its first one, and the stream."""
        return self.n // banks.n_block


class LoopedStreams(BankedStreams):
    """After the banks, room for the rows that a pass leaves to the next one."""

    def __init__(self, banks: Banks, loop: Loop) -> None:
        super().__init__(banks)
        self.n += loop.sent(banks)


@dataclass
class LoopedResidual(BankedResidual):
    """A layer of a later pass. Its input is mixed with messages: x = (1 - tanh(F g)) x + tanh(G g) message, with
    g = D [norm(x), norm(message)]. Tensors: msg_`name`_{score,down,forget,gain}, and a message is the mix of the rows
    that the pass before has left, by `score`.

    names   of its messages; of three, the layer's inputs are side by side
    own     each input has a norm and a query of its own, whose names end in _q, _k and _v
    begins  it is the first of its pass
    """

    loop: Loop = Loop(1, 1, 1)
    names: tuple[str, ...] = ("ffn",)
    own: bool = False
    begins: bool = False

    def load(self, w: Weights) -> None:
        n, p = self.banks.n_embd, f"blk.{self.block}."

        def called(name: str, part: str) -> str:
            return p + (f"{name.removesuffix('.weight')}_{part}.weight" if self.own else name)

        self.vectors = [
            (w.vector(called(self.score, part), n), w.vector(called(self.norm, part), n)) for part in self.names
        ]
        self.scores = [w.vector(f"{p}msg_{part}_score.weight", n) for part in self.names]
        rank = w.gguf.info(f"{p}msg_{self.names[0]}_down.weight").shape[0]
        sizes = {"down": (rank, 2 * n), "forget": (n, rank), "gain": (n, rank)}
        self.gates = [
            {name: w.matrix(f"{p}msg_{part}_{name}.weight", *size) for name, size in sizes.items()}
            for part in self.names
        ]
        self.layer.load(w)

    def write(self, b: Builder, x: Rows, memory: HybridMemory) -> None:
        if self.begins:
            self._restart(b, x)
        super().write(b, x, memory)

    def _stream(self, x: Rows, number: int, count: int = 1) -> Rows:
        return x.columns(number * self.banks.n_embd, count * self.banks.n_embd)

    def _restart(self, b: Builder, x: Rows) -> None:
        """Move the stream of the previous pass after the banks; it becomes the stream before the first pass."""
        bank, sent = 1 + self.banks.filled(self.loop.first), self.loop.sent(self.banks)
        target = 1 + self.banks.count
        moves = [(bank + 1 + i, target + i) for i in range(sent - 1)] + [(0, target + sent - 1), (bank, 0)]
        for source, to in moves:
            b.op(
                elementwise.copy_rows, name="pass", count=b.batch.n_tok, x=self._stream(x, source),
                out=self._stream(x, to), n=self.banks.n_embd,
            )  # fmt: skip

    def inputs(self, b: Builder, x: Rows, n_bank: int) -> Rows:
        n, out = self.banks.n_embd, b.rows(len(self.names) * self.banks.n_embd)
        mixed: dict[int, Rows] = {}
        for i, (query, norm) in enumerate(self.vectors):
            if query not in mixed:
                mixed[query] = self.mix(b, x, n_bank, query)
            b.norm(self._with_message(b, x, mixed[query], i), norm, self.banks.eps, out=out.columns(i * n, n))
        return out

    def _with_message(self, b: Builder, x: Rows, row: Rows, i: int) -> Rows:
        banks, sent = self.banks, self.loop.sent(self.banks)
        message = banks.mixed(b, self._stream(x, 1 + banks.count, sent), sent - 1, self.scores[i], b.batch.n_tok)
        both, out = b.rows(2 * row.n), b.rows(row.n)
        for j, part in enumerate((row, message)):
            b.norm(part, 0, banks.eps, name="msg_norm", out=both.columns(j * row.n, row.n))
        gates = self.gates[i]
        low = b.matmul(both, gates["down"], "msg_down")
        forget, gain = (b.matmul(low, gates[name], f"msg_{name}") for name in ("forget", "gain"))
        b.op(
            message_gate, count=b.batch.n_tok, x=row, message=message, forget=forget, gain=gain, out=out, n=row.n,
        )  # fmt: skip
        return out
