"""Computes the prefix of a model whose texts all begin after the same rows (Hymba's meta tokens), once."""

from ..memory import HybridMemory
from ..program.builder import Builder
from .programs import ModelPrograms
from .ubatch import Control, Segment


def compute_prefix(programs: ModelPrograms, control: Control) -> HybridMemory:
    """A memory of `HybridMemory.for_prefix` with the prefix as its only sequence.

    The caller's threads run the program: see `ModelPrograms.run_program`.
    """
    net, memory = programs.network, programs.memory.for_prefix()
    assert net.prefix is not None
    n, rows = len(net.prefix), net.prefix
    with net.weights.trial():  # its positions are its own
        b = Builder(programs.n_ubatch, programs.n_threads, exact=programs.exact, batch=control.batch)
        net.add_body(b, memory, embeds=False)
        program = b.build()
        programs.compile_program(program)
        net.weights.reach(n)
        for first in range(0, n, programs.n_ubatch):
            part = rows[first : first + programs.n_ubatch]
            move = memory.begin(0, len(part))
            control.fill([Segment(0, [0] * len(part), ())], [move])
            net.fill_stream(part)
            programs.run_program(program)
            memory.finish(move)
    return memory
