"""How many tokens a sequence of a loaded model can have: as many as are asked for, or what the model was trained for as
far as the memory allows; and what is to be said about that.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from hybrid.quant.ggml.byte_sizes import size_text
from hybrid.quant.ggml.errors import Remedy, UsageError

from ..kernels.attention.kv import KVType
from ..memory.needs import Room, SequenceNeeds, fitting_context
from .network import Network


@dataclass(frozen=True)
class Context:
    """Tokens of a sequence, and one line for the user where they are not what the model was trained for, or may not
    fit; mostly empty."""

    n: int
    note: str = ""


class Rooms(NamedTuple):
    """What there is for sequences when these have so many tokens: `least` is at once known not to be more."""

    least: Callable[[int], Room]
    exact: Callable[[int], Room]

    def of(self, n: int, needs: SequenceNeeds, n_seq: int) -> Room:
        """The exact one, unless n tokens fit anyway."""
        least = self.least(n)
        return least if needs.nbytes(n_seq, n) <= least.of_sequences else self.exact(n)


def chosen_context(network: Network, asked: int, n_seq: int, kind: KVType, rooms: Rooms) -> Context:
    """`asked` tokens for each of n_seq sequences; 0: what fits. UsageError: the model has fewer positions."""
    hparams, needs = network.hparams, SequenceNeeds.of(network.all_specs, kind)
    most = network.positions.rows if network.positions else None
    if most is not None and asked > most:
        raise UsageError(
            f"a context of {asked} tokens: {network.weights.gguf.path.name} has {most} positions.",
            remedy=Remedy.SMALLER_CONTEXT,
        )
    trained, tensors = hparams.n_ctx_train, network.weights.gguf.tensors
    if asked:
        return Context(asked, _about_asked(asked, trained, n_seq, needs, rooms.of(asked, needs, n_seq)))
    usual = hparams.usual_context(tensors)
    wished = usual if most is None else min(usual, most)
    room = rooms.of(wished, needs, n_seq)
    n = fitting_context(wished, needs, n_seq, room)
    said = f"a context of {n} tokens"
    if n < wished:
        need = _needed(wished, n_seq, needs)
        room_text = size_text(max(0, room.grantable))
        return Context(n, f"{said}: the {wished} that the model was trained for need {need}, {room_text} are free")
    if n == usual < trained:
        changed = hparams.variant(tensors, trained)
        return Context(
            n,
            f"{said}: with the {trained} that the model was trained for it reads short texts otherwise, "
            f"too ({changed})",
        )
    return Context(n)


def _about_asked(n: int, trained: int, n_seq: int, needs: SequenceNeeds, room: Room) -> str:
    lines = []
    if n > trained:
        lines.append(f"the model was trained for {trained}: beyond them its answers may be poor")
    if needs.nbytes(n_seq, n) > room.of_sequences:
        free = size_text(max(0, room.of_sequences))
        lines.append(f"full they need {_needed(n, n_seq, needs)}, {free} are free: the system may end the program then")
    return f"a context of {n} tokens: " + "; ".join(lines) if lines else ""


def _needed(n: int, n_seq: int, needs: SequenceNeeds) -> str:
    size = size_text(needs.nbytes(n_seq, n))
    return f"{size} for {n_seq} sequences" if n_seq > 1 else size
