"""The context of a loaded model, in tokens: as requested, or the trained one if memory allows; and a note about it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from hybrid.quant.ggml.byte_sizes import size_text
from hybrid.quant.ggml.errors import Remedy, UsageError

from ..kernels.attention.kv import CacheTypes
from ..memory.needs import Room, SequenceNeeds, fitting_context
from .network import Network


@dataclass(frozen=True)
class Context:
    """Tokens of a sequence, and a one-line note for the user, mostly empty.

    The note explains a context that differs from the trained one or may not fit the memory.
    """

    n: int
    note: str = ""


class Rooms(NamedTuple):
    """Functions of the context: the memory available for sequences. `least` is a lower bound without delay."""

    least: Callable[[int], Room]
    exact: Callable[[int], Room]

    def of(self, n: int, needs: SequenceNeeds, n_seq: int) -> Room:
        """The lower bound if n tokens fit it, else the exact room."""
        least = self.least(n)
        return least if needs.nbytes(n_seq, n) <= least.of_sequences else self.exact(n)


def chosen_context(network: Network, asked: int, n_seq: int, kind: CacheTypes, rooms: Rooms) -> Context:
    """`asked` tokens for each of n_seq sequences; 0: the largest that fits.

    Raises UsageError if the model has fewer learned positions.
    """
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
            f"{said}: with the {trained} that the model was trained for, short texts would also be "
            f"computed differently ({changed})",
        )
    return Context(n)


def _about_asked(n: int, trained: int, n_seq: int, needs: SequenceNeeds, room: Room) -> str:
    lines = []
    if n > trained:
        lines.append(f"the model was trained for {trained}: beyond that its answers may be poor")
    if needs.nbytes(n_seq, n) > room.of_sequences:
        free = size_text(max(0, room.of_sequences))
        lines.append(
            f"when full, it needs {_needed(n, n_seq, needs)}, {free} are free: the system may then end the program"
        )
    return f"a context of {n} tokens: " + "; ".join(lines) if lines else ""


def _needed(n: int, n_seq: int, needs: SequenceNeeds) -> str:
    size = size_text(needs.nbytes(n_seq, n))
    return f"{size} for {n_seq} sequences" if n_seq > 1 else size
